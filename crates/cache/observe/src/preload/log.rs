//! The file of the log that the preloaded library writes: its header, and reading it at the end.
//! `preload/log.h` describes its form and its numbers.
//!
//! Unaware of: what follows from an event.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::Duration;

use crate::encoding::{FIRST_EVENT, u32_at, u64_at, whole_bytes};
use crate::event::{Event, EventKind};
use crate::trace::Trace;

const MAGIC: &[u8; 8] = b"LARDLOG1";
const VERSION: u32 = 8;
const OVERFLOW_AT: u64 = 12;
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
    let mut bits = [0; 4];
    let marked = file.read_exact_at(&mut bits, OVERFLOW_AT).and_then(|()| {
        let bits = u32_at(&bits, 0) | CLOSING | KERNEL_ASKS;
        file.write_all_at(&bits.to_ne_bytes(), OVERFLOW_AT)
    });
    if marked.is_err() {
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
        EventKind::Exec | EventKind::Anonymous => 1,
        EventKind::Start | EventKind::ExecFailed => -1,
        _ => 0,
    };
    1 + trace.iter().map(change).sum::<i64>()
}

/// Marks the trace as incomplete if an event was begun but not finished, or is malformed.
fn check(log: Vec<u8>) -> Trace {
    Trace { incomplete: whole_bytes(&log) != log.len(), log, ..Trace::default() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use larder_model::Identity;
    use larder_testkit::{golden, golden_bytes};

    use super::*;
    use crate::encoding::{EVENT_HEAD_BYTES, decode};
    use crate::event::OpenFlags;

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
        assert_eq!(
            (open.kind, open.path, open.identity),
            (EventKind::Open(OpenFlags(5)), &b"/w/x.c"[..], Some(identity))
        );
        assert_eq!((open.pid, open.error, open.mode, open.extra), (77, 0, 0o100_644, 0o666));
        assert_eq!((rename.kind, rename.error), (EventKind::Rename(OpenFlags(0)), 13));
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
        assert_eq!((first.path, first.kind), (&b"/x"[..], EventKind::Stat));
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
