//! Decoding the log that the preloaded library writes. `preload/log.h` draws it; the numbers here are those there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use larder_model::Identity;

use crate::trace::{Event, Kind, OpenFlags, Trace};

const MAGIC: &[u8; 8] = b"LARDLOG1";
const VERSION: u32 = 1;
const FIRST_EVENT: u64 = 4096;
const EVENT_HEAD_BYTES: usize = 72;
/// A longer log is not read: the command was too large to be recorded by this observer.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// The first bytes of an empty log.
pub(super) fn header(capacity: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(capacity.to_ne_bytes());
    bytes.extend(FIRST_EVENT.to_ne_bytes());
    bytes
}

/// Read a log when nobody writes it any more.
pub(super) fn read(file: &File) -> io::Result<Trace> {
    let mut head = [0; 32];
    file.read_exact_at(&mut head, 0)?;
    let overflowed = u32_at(&head, 12) != 0;
    let tail = u64_at(&head, 24);
    if !(FIRST_EVENT..=LOG_BYTES_MAX).contains(&tail) {
        return Ok(Trace { incomplete: true, ..Trace::default() });
    }
    let mut log = vec![0; (tail - FIRST_EVENT) as usize];
    file.read_exact_at(&mut log, FIRST_EVENT)?;
    let mut trace = check(log);
    trace.incomplete |= overflowed;
    Ok(trace)
}

/// An event that was begun and never finished, or is malformed, makes the trace incomplete.
fn check(log: Vec<u8>) -> Trace {
    let whole: usize = decode(&log).map(|event| size_of_event(&event)).sum();
    Trace { incomplete: whole != log.len(), log, ..Trace::default() }
}

fn size_of_event(event: &Event<&[u8]>) -> usize {
    (EVENT_HEAD_BYTES + event.path.len() + event.path2.len()).next_multiple_of(8)
}

/// The events of a log, up to the first that is not whole.
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

fn kind(number: u16, flags: u16) -> Option<Kind> {
    const KINDS: [Kind; 34] = [
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
        Kind::Rename,
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
    ];
    match KINDS.get(usize::from(number).checked_sub(1)?)? {
        Kind::Open(_) => Some(Kind::Open(OpenFlags(flags))),
        kind => Some(*kind),
    }
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
