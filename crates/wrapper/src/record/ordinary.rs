//! Decides whether a run ended as it will the next time.

use std::time::UNIX_EPOCH;

use larder_model::{Change, Observer, Unrecorded, contains};
use larder_spawn::{Finished, Written};
use larder_sys::ChildEnd;

use super::not_recorded::NotRecorded;

/// Returns the exit code of a run that will end in the same way the next time, judged by its end
/// and its messages. The trace tells the rest (`fold`), for example whether a resource ran out or a
/// child died.
///
/// The kernel observer is asked before a system call and does not see its result. So it cannot tell
/// a full disk from an error in the input, and a failed run that only the kernel observer saw is
/// not recorded.
pub(super) fn exit_code(finished: &Finished, observer: Observer) -> Result<u8, NotRecorded> {
    let because = |why| Err(NotRecorded::Because(why, Vec::new()));
    let ChildEnd::Exited(code) = finished.end else { return because(Unrecorded::Signal) };
    if finished.outlived {
        return because(Unrecorded::Outlives);
    }
    if finished.disturbed {
        return because(Unrecorded::Signal);
    }
    if code != 0 {
        if let Some(why) = extraordinary(code, &finished.written) {
            return because(why);
        }
        if memory_is_refused() {
            return Err(NotRecorded::Because(Unrecorded::Shortage, b"vm.overcommit_memory is 2".to_vec()));
        }
        if observer == Observer::Kernel {
            let what = b"it failed, and the kernel observer cannot see whether memory or disk space ran out";
            return Err(NotRecorded::Because(Unrecorded::Unprovable, what.to_vec()));
        }
    }
    if says_that_a_call_was_refused(code, &finished.written) {
        return because(Unrecorded::Refused);
    }
    Ok(code)
}

/// Returns true if a message says that a system call was refused that another system may allow. The
/// kernel observer cannot see such a call, because seccomp refuses it before the observer is asked.
///
/// For example, `ls` in a container of 2018 prints "cannot access 'x': Operation not permitted",
/// because `statx` is refused, and the script that runs `ls` goes on.
fn says_that_a_call_was_refused(code: u8, written: &Written) -> bool {
    const NOT_THERE: &str = "Function not implemented";
    const REFUSED: &str = "Operation not permitted";
    let is_filtered = larder_sys::calls_may_be_refused;
    holds(written, NOT_THERE) && (code != 0 || is_filtered()) || holds(written, REFUSED) && is_filtered()
}

fn holds(written: &Written, sign: &str) -> bool {
    let texts: [&[u8]; 2] = match written {
        Written::Apart { stdout, stderr } => [stdout, stderr],
        Written::Together(both) => [both, b""],
    };
    texts.iter().any(|text| contains(text, sign))
}

/// Refuses a run if a process that the tool left behind changed an output after the tool had ended.
/// The caller would then have found another output at the tool's end.
///
/// For example, mold's child only unmaps what was written before its parent ended, which changes no
/// file's ctime. A change within the clock tick of the tool's end goes unseen, and is in the output
/// that is recorded.
pub(super) fn unchanged_since_the_end(finished: &Finished, changed: &[(Vec<u8>, Change)]) -> Result<(), NotRecorded> {
    let Some(left_at) = finished.left_at else { return Ok(()) };
    let left_at_ns = left_at.duration_since(UNIX_EPOCH).map_or(i64::MAX, |time| time.as_nanos() as i64);
    // Other processes may change the entries of a directory.
    let is_one = |change: &Change| matches!(change, Change::File { .. } | Change::Link);
    let is_later = |path: &[u8]| larder_sys::lstat(path).is_ok_and(|stat| stat.changed_ns > left_at_ns);
    match changed.iter().find(|(path, change)| is_one(change) && is_later(path)) {
        Some((path, _)) => Err(NotRecorded::Because(Unrecorded::Outlives, path.clone())),
        None => Ok(()),
    }
}

/// Returns why a failed run may not fail the next time, if its messages say so.
///
/// This covers what no observer can see: libc's `malloc` asks the kernel for memory by itself, and
/// fails for a block larger than the machine's memory. Other shortages are in the trace
/// (`Kind::Shortage`), whatever the language of the messages.
fn extraordinary(code: u8, written: &Written) -> Option<Unrecorded> {
    const SIGNS: &[(&str, Unrecorded)] = &[
        ("internal compiler error", Unrecorded::InternalError),
        ("PLEASE submit a bug report", Unrecorded::InternalError),
        ("the compiler unexpectedly panicked", Unrecorded::InternalError),
        ("Cannot allocate memory", Unrecorded::Shortage),
        ("memory exhausted", Unrecorded::Shortage),
        ("out of memory", Unrecorded::Shortage),
        // From the dynamic loader: the cause may be a refused call, or our preloaded library.
        ("error while loading shared libraries", Unrecorded::Suspect),
        ("symbol lookup error", Unrecorded::Suspect),
    ];
    if code >= 128 {
        return Some(Unrecorded::Signal);
    }
    SIGNS.iter().find(|(sign, _)| holds(written, sign)).map(|(_, why)| *why)
}

/// Returns true if the kernel refuses memory before it runs out (`vm.overcommit_memory` is 2). Then
/// any `malloc` may fail without a limit of the process.
fn memory_is_refused() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}
