//! The log of a run that we are part of: the wrapper in front of a whole command observes it, and we are one of the
//! programs in it. What we do, and what the tool does that we start, is written there as the preloaded library would
//! write it.
//!
//! Unaware of: what is reported.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use larder_model::Identity;
use larder_sys::Words;

use super::log::{self, EVENT_HEAD_BYTES};
use super::{LOG_VARIABLE, PRELOAD_VARIABLE, load_library};
use crate::trace::{Event, Kind, REPORTED_WHOLE, Trace};

/// In a `Kind::List`: the order of the names was of no matter to who listed them.
pub const IN_ANY_ORDER: u32 = 1;
/// The same, but not of what kind each is.
pub const IN_ANY_ORDER_OF_KINDS: u32 = 2;

/// Somebody else's log, and how its library is loaded.
pub struct OuterLog {
    file: File,
    header: Words,
    preload: Vec<u8>,
    variable: Vec<u8>,
}

impl OuterLog {
    /// Whether an environment names one, also one that cannot be opened from here: in a process namespace of our own.
    pub fn is_named(environment: &[(Vec<u8>, Vec<u8>)]) -> bool {
        environment.iter().any(|(name, _)| *name == LOG_VARIABLE[..LOG_VARIABLE.len() - 1])
    }

    /// The log that an environment leads to. Its two variables are taken out, as the library takes them out.
    pub fn take(environment: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Option<OuterLog> {
        let name = |variable: &[u8]| variable[..variable.len() - 1].to_vec();
        let at = environment.iter().position(|(n, _)| *n == name(LOG_VARIABLE))?;
        let (_, path) = environment.remove(at);
        let at = environment.iter().position(|(n, _)| *n == name(PRELOAD_VARIABLE))?;
        let value = environment[at].1.clone();
        let end = value.iter().position(|byte| matches!(byte, b':' | b' ')).unwrap_or(value.len());
        if end == value.len() {
            environment.remove(at);
        } else {
            environment[at].1 = value[end + 1..].to_vec();
        }
        let file = OpenOptions::new().read(true).write(true).open(as_path(&path)).ok()?;
        log::check_header(&file).ok()?;
        let header = Words::map(&file, file.metadata().ok()?.len(), log::HEADER_WORDS, true).ok()?;
        Some(OuterLog { file, header, preload: value[..end].to_vec(), variable: path })
    }

    /// The environment, as `NAME=value`, of a program that is observed in the same way.
    pub fn observed(&self, environment: &mut Vec<Vec<u8>>) {
        load_library(environment, &self.preload, &self.variable);
    }

    /// Write all that a trace says.
    pub fn report(&self, trace: &Trace) {
        let whole = &trace.log[..log::whole_bytes(&trace.log)];
        let mut bytes = whole.to_vec();
        trace.events.iter().for_each(|event| encode(event, &mut bytes));
        if trace.incomplete {
            self.header.words()[log::LOST_WORD].fetch_or(log::LOST_BITS, AcqRel);
        }
        self.append(&bytes);
    }

    /// The same, of programs of which this trace and what was reported before say everything.
    pub fn report_whole(&self, trace: &Trace) {
        let whole = |event: Event<&[u8]>| {
            let mut event = event.owned();
            event.mode |= if event.kind == Kind::Start { REPORTED_WHOLE } else { 0 };
            event
        };
        let events = trace.iter().map(whole).collect();
        self.report(&Trace { events, incomplete: trace.incomplete, ..Trace::default() });
    }

    /// Whole events, at once. Where they do not fit the log says that something was lost.
    fn append(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let words = self.header.words();
        let at = words[log::TAIL_WORD].fetch_add(bytes.len() as u64, AcqRel);
        let fits = at >= log::FIRST_EVENT && at + bytes.len() as u64 <= words[log::CAPACITY_WORD].load(Relaxed);
        // The first event's size is written last: until then nobody reads on.
        let size_bytes = 4.min(bytes.len());
        let written = || {
            self.file.write_all_at(&bytes[size_bytes..], at + size_bytes as u64)?;
            self.file.write_all_at(&bytes[..size_bytes], at)
        };
        if !fits || written().is_err() {
            words[log::LOST_WORD].fetch_or(log::LOST_BITS, AcqRel);
        }
    }
}

fn as_path(path: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// The bytes of one event (`preload/log.h`).
pub(crate) fn encode(event: &Event, to: &mut Vec<u8>) {
    let flags = match event.kind {
        Kind::Open(flags) | Kind::Rename(flags) => flags.0,
        _ => 0,
    };
    let used = EVENT_HEAD_BYTES + event.path.len() + event.path2.len();
    let size = used.next_multiple_of(8);
    let none = Identity { device: 0, inode: 0, size_bytes: 0, modified_ns: 0, changed_ns: 0 };
    let identity = event.identity.unwrap_or(none);
    to.extend((size as u32).to_ne_bytes());
    to.extend(log::number(event.kind).to_ne_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::OpenFlags;

    #[test]
    fn what_is_written_is_read() {
        let identity = Some(Identity { device: 1, inode: 2, size_bytes: 3, modified_ns: 4, changed_ns: 5 });
        let open = Kind::Open(OpenFlags(OpenFlags::READ | OpenFlags::NEW));
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
            of(Kind::Symlink, b"x", b"/y/zz"),
            of(Kind::Forked, b"", b""),
            of(Kind::Random, b"f", b""),
        ];
        let mut bytes = Vec::new();
        events.iter().for_each(|event| encode(event, &mut bytes));
        let trace = Trace { log: bytes, ..Trace::default() };
        let read: Vec<Event> = trace.iter().map(|event| event.owned()).collect();
        assert_eq!(read, events);
    }

    #[test]
    fn variables_are_taken_out_and_put_in_again() {
        let log = larder_sys::memory_file("log", false).expect("can be made");
        log.set_len(1 << 20).expect("grows");
        log.write_all_at(&log::header(1 << 20, (0, 0), 0), 0).expect("writes");
        let path = larder_sys::volatile_path(&log);
        let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        for (own, rest) in [(&b"/lib"[..], None), (b"/lib:/other.so", Some(&b"/other.so"[..]))] {
            let mut environment = vec![pair("A", b"1"), pair("LD_PRELOAD", own), pair("LARDER_PRELOAD_LOG", &path)];
            let outer = OuterLog::take(&mut environment).expect("is there");
            let mut expect = vec![pair("A", b"1")];
            expect.extend(rest.map(|rest| pair("LD_PRELOAD", rest)));
            assert_eq!(environment, expect);
            let mut block = environment.iter().map(|(name, value)| [name, &b"="[..], value].concat()).collect();
            outer.observed(&mut block);
            assert!(block.contains(&[b"LD_PRELOAD=", own].concat()));
            outer.report(&Trace {
                events: vec![Event {
                    pid: 1,
                    error: 0,
                    kind: Kind::Umask,
                    path: vec![],
                    path2: vec![],
                    identity: None,
                    mode: 0,
                    extra: 0,
                }],
                ..Trace::default()
            });
        }
        let trace = log::read(&log).expect("is a log");
        assert_eq!((trace.iter().count(), trace.incomplete), (2, false));
        assert!(OuterLog::take(&mut vec![pair("LARDER_PRELOAD_LOG", b"/nonexistent")]).is_none());
    }
}
