//! The form of the events in a log, as `preload/log.h` describes it: encodes and decodes them.
//!
//! Unaware of: the header of a log, and what follows from an event.

use larder_model::Identity;

use crate::event::{Event, EventKind, HAS_PWD, OF_LINK, OpenFlags};

/// The offset of the first event in the file of a log.
pub(crate) const FIRST_EVENT: u64 = 20480;
/// The size of an event without its paths.
pub(crate) const EVENT_HEAD_BYTES: usize = 72;

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
    let flags = u32::from(u16_at(bytes, 6));
    let bits = match kind {
        // `enum larder_start` in `preload/log.h`.
        EventKind::Start => (flags & 3) * HAS_PWD,
        EventKind::SetTimes | EventKind::ChangeOwner | EventKind::ChangeMode if flags & 1 != 0 => OF_LINK,
        _ => 0,
    };
    let mode = u32_at(bytes, 56) | bits;
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
const KINDS: [EventKind; 38] = [
    EventKind::Start,
    EventKind::Object,
    EventKind::Exec,
    EventKind::ExecFailed,
    EventKind::Spawned,
    EventKind::Anonymous,
    EventKind::Drop,
    EventKind::Open(OpenFlags(0)),
    EventKind::Stat,
    EventKind::Lstat,
    EventKind::Access,
    EventKind::ReadLink,
    EventKind::RealPath,
    EventKind::List,
    EventKind::Unlink,
    EventKind::Rename(OpenFlags(0)),
    EventKind::Link,
    EventKind::Symlink,
    EventKind::MakeDirectory,
    EventKind::RemoveDirectory,
    EventKind::ChangeMode,
    EventKind::Truncate,
    EventKind::SetTimes,
    EventKind::MakeNode,
    EventKind::ChangeOwner,
    EventKind::SetAttribute,
    EventKind::GetEnvironment,
    EventKind::Umask,
    EventKind::Clock,
    EventKind::Network,
    EventKind::UnixSocket,
    EventKind::Identity,
    EventKind::ChildDied,
    EventKind::Closed,
    EventKind::Random,
    EventKind::Forked,
    EventKind::Shortage,
    EventKind::Late,
];

fn kind(number: u16, flags: u16) -> Option<EventKind> {
    match KINDS.get(usize::from(number).checked_sub(1)?)? {
        EventKind::Open(_) => Some(EventKind::Open(OpenFlags(flags))),
        EventKind::Rename(_) => Some(EventKind::Rename(OpenFlags(flags))),
        kind => Some(*kind),
    }
}

/// Returns the number of a kind in the log.
fn number(kind: EventKind) -> u16 {
    let same = |other: &EventKind| std::mem::discriminant(other) == std::mem::discriminant(&kind);
    KINDS.iter().position(same).map_or(0, |at| at as u16 + 1)
}

/// Appends the bytes of one event (`preload/log.h`).
pub(crate) fn encode(event: &Event, to: &mut Vec<u8>) {
    let flags = match event.kind {
        EventKind::Open(flags) | EventKind::Rename(flags) => flags.0,
        _ => 0,
    };
    let used = EVENT_HEAD_BYTES + event.path.len() + event.path2.len();
    let size = used.next_multiple_of(8);
    let none = Identity { device: 0, inode: 0, size_bytes: 0, modified_ns: 0, changed_ns: 0 };
    let identity = event.identity.unwrap_or(none);
    to.extend((size as u32).to_ne_bytes());
    to.extend(number(event.kind).to_ne_bytes());
    to.extend(flags.to_ne_bytes());
    to.extend(event.pid.to_ne_bytes());
    to.extend(event.error.to_ne_bytes());
    to.extend(identity.device.to_ne_bytes());
    to.extend(identity.inode.to_ne_bytes());
    to.extend(identity.size_bytes.to_ne_bytes());
    to.extend(identity.modified_ns.to_ne_bytes());
    to.extend(identity.changed_ns.to_ne_bytes());
    to.extend(event.mode.to_ne_bytes());
    to.extend((event.path.len() as u32).to_ne_bytes());
    to.extend((event.path2.len() as u32).to_ne_bytes());
    to.extend(event.extra.to_ne_bytes());
    to.extend_from_slice(&event.path);
    to.extend_from_slice(&event.path2);
    to.resize(to.len() + size - used, 0);
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

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the number at this offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Returns the number at this offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let identity = Some(Identity { device: 1, inode: 2, size_bytes: 3, modified_ns: 4, changed_ns: 5 });
        let open = EventKind::Open(OpenFlags(OpenFlags::READ | OpenFlags::NEW));
        let of = |kind, path: &[u8], path2: &[u8]| Event {
            pid: 7,
            error: 2,
            kind,
            path: path.to_vec(),
            path2: path2.to_vec(),
            identity,
            mode: 0o100_644,
            extra: 9,
        };
        let events = [
            of(open, b"/a/b", b""),
            of(EventKind::Symlink, b"x", b"/y/zz"),
            of(EventKind::Forked, b"", b""),
            of(EventKind::Random, b"f", b""),
        ];
        let mut bytes = Vec::new();
        events.iter().for_each(|event| encode(event, &mut bytes));
        let read: Vec<Event> = decode(&bytes).map(|event| event.owned()).collect();
        assert_eq!(read, events);
    }
}
