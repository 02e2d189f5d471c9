//! Decodes the log that the preloaded library writes. `preload/log.h` describes its form and its
//! numbers.
//!
//! Unaware of: what follows from an event.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Duration;

use larder_model::Identity;

use crate::trace::{Event, Kind, OpenFlags, Trace};

const MAGIC: &[u8; 8] = b"LARDLOG1";
const VERSION: u32 = 5;
pub(crate) const FIRST_EVENT: u64 = 20480;
const OVERFLOW_AT: u64 = 12;
pub(super) const EVENT_HEAD_BYTES: usize = 72;
/// How many 64-bit words at the start of the header a nested wrapper maps.
pub(super) const HEADER_WORDS: usize = 8;
/// The word whose second half is `overflow`.
pub(super) const LOST_WORD: usize = 1;
pub(super) const LOST_BITS: u64 = if cfg!(target_endian = "little") { 1 << 32 } else { 1 };
pub(super) const CAPACITY_WORD: usize = 2;
pub(super) const TAIL_WORD: usize = 3;
/// The bit of `overflow` that tells the library that the kernel asks as well
/// (`LARDER_KERNEL_ASKS`).
const KERNEL_ASKS: u32 = 4;
/// A larger log is not read. The command was too large for this observer.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// Returns the header of an empty log. `wrapper` is the device and inode of the wrapper's program,
/// and `began_s` the start of the run in seconds since 1970.
pub(super) fn header(capacity: u64, wrapper: (u64, u64), began_s: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(capacity.to_ne_bytes());
    bytes.extend(FIRST_EVENT.to_ne_bytes());
    bytes.extend(wrapper.0.to_ne_bytes());
    bytes.extend(wrapper.1.to_ne_bytes());
    // These are `sampler`, `sampler_ends` and `unanswered`.
    bytes.extend([0; 3 * 8]);
    bytes.extend(began_s.to_ne_bytes());
    bytes
}

/// Succeeds if a file is a log of this version.
pub(super) fn check_header(file: &File) -> io::Result<()> {
    let mut head = [0; 12];
    file.read_exact_at(&mut head, 0)?;
    if is_ours(&head) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::InvalidData)) }
}

fn is_ours(head: &[u8]) -> bool {
    head[..8] == *MAGIC && u32_at(head, 8) == VERSION
}

/// Reads a log that no process writes any more.
pub(super) fn read(file: &File) -> io::Result<Trace> {
    let mut head = [0; 32];
    file.read_exact_at(&mut head, 0)?;
    let overflowed = u32_at(&head, 12) & !KERNEL_ASKS != 0;
    let tail = u64_at(&head, 24);
    if !is_ours(&head) || !(FIRST_EVENT..=LOG_BYTES_MAX).contains(&tail) {
        return Ok(Trace { incomplete: true, ..Trace::default() });
    }
    let mut log = vec![0; (tail - FIRST_EVENT) as usize];
    file.read_exact_at(&mut log, FIRST_EVENT)?;
    let mut trace = check(log);
    trace.incomplete |= overflowed;
    Ok(trace)
}

/// Sets the bit of `overflow` that says that the kernel asks as well.
pub(super) fn kernel_asks(file: &File) -> io::Result<()> {
    file.write_all_at(&KERNEL_ASKS.to_ne_bytes(), OVERFLOW_AT)
}

/// Tells processes that outlive the tool to stop preloading the library, whose file goes with this
/// process. Then waits for programs that are being executed: they must have begun before this
/// process ends, or their loader prints that it cannot find the library.
pub(super) fn close(file: &File) {
    const CLOSING: u32 = 2;
    const LOOKS_MAX: u32 = 100;
    const LOOK_EVERY: Duration = Duration::from_millis(2);
    if file.write_all_at(&(CLOSING | KERNEL_ASKS).to_ne_bytes(), OVERFLOW_AT).is_err() {
        return;
    }
    // This pairs with the fence of `log_closing` in `preload/log.c`.
    fence(SeqCst);
    for _ in 0..LOOKS_MAX {
        match read(file) {
            Ok(trace) if under_way(&trace) > 0 => std::thread::sleep(LOOK_EVERY),
            _ => return,
        }
    }
}

/// Returns how many programs are about to be executed and have not begun. The first 1 is the tool
/// itself, which we have started without an `Exec` event.
fn under_way(trace: &Trace) -> i64 {
    let change = |event: Event<&[u8]>| match event.kind {
        Kind::Exec | Kind::Anonymous => 1,
        Kind::Start | Kind::ExecFailed => -1,
        _ => 0,
    };
    1 + trace.iter().map(change).sum::<i64>()
}

/// Marks the trace as incomplete if an event was begun but not finished, or is malformed.
fn check(log: Vec<u8>) -> Trace {
    Trace { incomplete: whole_bytes(&log) != log.len(), log, ..Trace::default() }
}

/// Iterates over the events of a log, each with its offset in the file and its bytes.
pub(crate) fn placed(log: &[u8]) -> impl Iterator<Item = (u64, &[u8], Event<&[u8]>)> {
    let mut at = 0;
    decode(log).map(move |event| {
        let begin = at;
        at += size_of_event(&event);
        (FIRST_EVENT + begin as u64, &log[begin..at], event)
    })
}

/// Returns how many bytes from the start are whole events.
pub(crate) fn whole_bytes(log: &[u8]) -> usize {
    decode(log).map(|event| size_of_event(&event)).sum()
}

fn size_of_event(event: &Event<&[u8]>) -> usize {
    (EVENT_HEAD_BYTES + event.path.len() + event.path2.len()).next_multiple_of(8)
}

/// Iterates over the events of a log, up to the first one that is not whole.
pub(crate) fn decode(mut log: &[u8]) -> impl Iterator<Item = Event<&[u8]>> {
    std::iter::from_fn(move || {
        let size = if log.len() < EVENT_HEAD_BYTES { 0 } else { u32_at(log, 0) as usize };
        if size < EVENT_HEAD_BYTES || size > log.len() || size % 8 != 0 {
            return None;
        }
        let (first, rest) = log.split_at(size);
        log = rest;
        event(first)
    })
}

fn event(bytes: &[u8]) -> Option<Event<&[u8]>> {
    let kind = kind(u16_at(bytes, 4), u16_at(bytes, 6))?;
    let path_end = EVENT_HEAD_BYTES.checked_add(u32_at(bytes, 60) as usize)?;
    let path2_end = path_end.checked_add(u32_at(bytes, 64) as usize)?;
    let error = u32_at(bytes, 12) as i32;
    let mode = u32_at(bytes, 56);
    let identity = Identity {
        device: u64_at(bytes, 16),
        inode: u64_at(bytes, 24),
        size_bytes: u64_at(bytes, 32),
        modified_ns: u64_at(bytes, 40) as i64,
        changed_ns: u64_at(bytes, 48) as i64,
    };
    Some(Event {
        pid: u32_at(bytes, 8),
        error,
        kind,
        path: bytes.get(EVENT_HEAD_BYTES..path_end)?,
        path2: bytes.get(path_end..path2_end)?,
        identity: (identity.inode != 0).then_some(identity),
        mode,
        extra: u32_at(bytes, 68),
    })
}

/// The kind with number `n` is at index `n - 1`.
const KINDS: [Kind; 37] = [
    Kind::Start,
    Kind::Object,
    Kind::Exec,
    Kind::ExecFailed,
    Kind::Spawned,
    Kind::Anonymous,
    Kind::Drop,
    Kind::Open(OpenFlags(0)),
    Kind::Stat,
    Kind::Lstat,
    Kind::Access,
    Kind::ReadLink,
    Kind::RealPath,
    Kind::List,
    Kind::Unlink,
    Kind::Rename(OpenFlags(0)),
    Kind::Link,
    Kind::Symlink,
    Kind::MakeDirectory,
    Kind::RemoveDirectory,
    Kind::ChangeMode,
    Kind::Truncate,
    Kind::SetTimes,
    Kind::MakeNode,
    Kind::ChangeOwner,
    Kind::SetAttribute,
    Kind::GetEnvironment,
    Kind::Umask,
    Kind::Clock,
    Kind::Network,
    Kind::UnixSocket,
    Kind::Identity,
    Kind::ChildDied,
    Kind::Closed,
    Kind::Random,
    Kind::Forked,
    Kind::Shortage,
];

fn kind(number: u16, flags: u16) -> Option<Kind> {
    match KINDS.get(usize::from(number).checked_sub(1)?)? {
        Kind::Open(_) => Some(Kind::Open(OpenFlags(flags))),
        Kind::Rename(_) => Some(Kind::Rename(OpenFlags(flags))),
        kind => Some(*kind),
    }
}

/// Returns the number of a kind in the log.
pub(super) fn number(kind: Kind) -> u16 {
    let same = |other: &Kind| std::mem::discriminant(other) == std::mem::discriminant(&kind);
    KINDS.iter().position(same).map_or(0, |at| at as u16 + 1)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use larder_testkit::{golden, golden_bytes};

    use super::*;

    fn sample(kind: u16, path: &[u8]) -> Vec<u8> {
        let size = (EVENT_HEAD_BYTES + path.len()).next_multiple_of(8);
        let mut bytes = vec![0; size];
        bytes[0..4].copy_from_slice(&(size as u32).to_ne_bytes());
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[60..64].copy_from_slice(&(path.len() as u32).to_ne_bytes());
        bytes[EVENT_HEAD_BYTES..EVENT_HEAD_BYTES + path.len()].copy_from_slice(path);
        bytes
    }

    /// `crates/testkit/src/golden.rs` says how to renew the golden file. The version is both
    /// `LARDER_LOG_VERSION` in `log.h` and `VERSION` here.
    #[test]
    #[cfg(target_endian = "little")]
    fn golden_log() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/log.hex"));
        let mut open = sample(8, b"/w/x.c");
        open[6..8].copy_from_slice(&5u16.to_ne_bytes());
        open[8..12].copy_from_slice(&77u32.to_ne_bytes());
        for (word, at) in [(1u64, 16), (2, 24), (3, 32), (4, 40), (5, 48)] {
            open[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        open[56..60].copy_from_slice(&0o100_644u32.to_ne_bytes());
        open[68..72].copy_from_slice(&0o666u32.to_ne_bytes());
        let mut rename = sample(16, b"/a/b");
        rename[12..16].copy_from_slice(&13u32.to_ne_bytes());
        rename[60..68].copy_from_slice(&[1, 0, 0, 0, 3, 0, 0, 0]);
        golden(
            path,
            "header of an empty log, an opening, a failed renaming",
            &[header(1 << 20, (8, 9), 10), open, rename].concat(),
        );

        let log = golden_bytes(path);
        let events: Vec<_> = decode(&log[80..]).collect();
        let [open, rename] = &events[..] else { panic!("{events:?}") };
        let identity = Identity { device: 1, inode: 2, size_bytes: 3, modified_ns: 4, changed_ns: 5 };
        assert_eq!((open.kind, open.path, open.identity), (Kind::Open(OpenFlags(5)), &b"/w/x.c"[..], Some(identity)));
        assert_eq!((open.pid, open.error, open.mode, open.extra), (77, 0, 0o100_644, 0o666));
        assert_eq!((rename.kind, rename.error), (Kind::Rename(OpenFlags(0)), 13));
        assert_eq!((rename.path, rename.path2), (&b"/"[..], &b"a/b"[..]));
    }

    #[test]
    fn a_log_of_another_form_is_incomplete() {
        let file = larder_sys::memory_file("log", false).expect("can be made");
        let incomplete = |header: &[u8]| {
            file.write_all_at(header, 0).expect("writes");
            read(&file).is_ok_and(|trace| trace.incomplete)
        };
        let good = header(1 << 20, (8, 9), 10);
        assert!(!incomplete(&good));
        for byte in (0..16).chain(24..32) {
            let mut other = good.clone();
            other[byte] ^= 1;
            assert!(incomplete(&other) || read(&file).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn events_and_what_is_wrong_with_them() {
        let good = sample(9, b"/x");
        let first = decode(&good).next().expect("an event");
        assert_eq!((first.path, first.kind), (&b"/x"[..], Kind::Stat));
        assert!(!check(good.clone()).incomplete);
        for (what, bytes) in [
            ("unfinished", vec![0; 80]),
            ("unknown kind", sample(99, b"/x")),
            ("cut short", good[..40].to_vec()),
            ("path beyond its end", {
                let mut b = sample(9, b"/x");
                b[60] = 200;
                b
            }),
        ] {
            assert!(check(bytes).incomplete, "{what}");
        }
    }
}
