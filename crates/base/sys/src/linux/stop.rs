//! Stopping a tool and everything that it started: every process below this one.
//!
//! Orphans below this process become its children (`become_subreaper`), so all of them are found.
//!
//! Unaware of: why the tool is stopped.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};

use super::process::numbers_in;

/// The pause between two checks for processes that are left.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The number of checks, which take 5 seconds. A process that is still there then is stuck in the
/// kernel, and is not waited for any longer.
const LOOKS_MAX: u32 = 5000;

/// A process or thread as its `stat` file in `/proc` describes it.
pub(super) struct Shown {
    pub(super) pid: i32,
    parent: i32,
    /// The signal that its parent gets when it ends. It is 0 for a helper process of ours, so that
    /// waiting for the tool's processes does not find it.
    pub(super) end_signal: i32,
    /// True if it has begun to exit.
    pub(super) is_exiting: bool,
    /// The signal that it exits by, or 0. It is also 0 if we are not allowed to read it.
    pub(super) signal: i32,
}

/// Sends a signal to every process below this one.
pub(super) fn signal_descendants(signal: i32) {
    let Some(signal) = Signal::from_named_raw(signal) else { return };
    for process in descendants() {
        // The pid may already belong to another process. So the process is opened first, and then
        // its parent is compared once more.
        if let Ok(handle) = super::open_process(process.pid as u32)
            && shown(process.pid).is_some_and(|now| now.parent == process.parent)
        {
            let _ = pidfd_send_signal(&handle, signal);
        }
    }
}

/// Kills every process below this one, and waits for all of them. Fails if one does not end within
/// 5 seconds.
pub fn end_descendants() -> io::Result<()> {
    for _ in 0..LOOKS_MAX {
        if !super::children_left() {
            return Ok(());
        }
        signal_descendants(libc::SIGKILL);
        std::thread::sleep(LOOK_EVERY);
    }
    Err(io::Error::from(io::ErrorKind::TimedOut))
}

/// Returns the processes below this one, except our own helper processes.
pub(super) fn descendants() -> Vec<Shown> {
    let all: Vec<Shown> = numbers_in("/proc").filter_map(|pid| shown(pid as i32)).collect();
    let own = super::process_id() as i32;
    let mut below: Vec<i32> = vec![own];
    let mut found = Vec::new();
    let mut rest: Vec<Shown> = all.into_iter().filter(|one| one.parent != own || one.end_signal != 0).collect();
    while let Some(parent) = below.pop() {
        let (theirs, others): (Vec<Shown>, Vec<Shown>) = rest.into_iter().partition(|one| one.parent == parent);
        below.extend(theirs.iter().map(|one| one.pid));
        found.extend(theirs);
        rest = others;
    }
    found
}

pub(super) fn shown(pid: i32) -> Option<Shown> {
    shown_at(&format!("/proc/{pid}/stat")).ok()
}

/// Reads and parses a `stat` file in `/proc`.
pub(super) fn shown_at(path: &str) -> io::Result<Shown> {
    let text = std::fs::read(path)?;
    parsed(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn parsed(text: &[u8]) -> Option<Shown> {
    // Indexes of the fields after the name; the state has index 0.
    const PARENT: usize = 1;
    const FLAGS: usize = 6;
    const END_SIGNAL: usize = 35;
    const EXIT_CODE: usize = 49;
    /// `PF_EXITING` of the kernel's `sched.h`.
    const EXITING: u64 = 4;
    let pid = std::str::from_utf8(text.split(|&b| b == b' ').next()?).ok()?.parse().ok()?;
    let after = text.iter().rposition(|&b| b == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(&text[after + 1..]).ok()?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    let is_exiting = fields.get(FLAGS)?.parse::<u64>().ok()? & EXITING != 0;
    let signal = number(EXIT_CODE).unwrap_or_default() as i32 & 0x7f;
    Some(Shown { pid, parent: number(PARENT)? as i32, end_signal: number(END_SIGNAL)? as i32, is_exiting, signal })
}
