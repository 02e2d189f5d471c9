//! The log of the run that this wrapper is part of. If a wrapper observes a whole command, and a
//! program of that command starts a wrapper, the nested wrapper finds that log by the library's
//! variables. It writes there what it does itself and what its tool does, in the form that the
//! preloaded library uses.
//!
//! Unaware of: what is reported.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use larder_sys::{Words, as_path};

use super::log;
use super::{LOG_VARIABLE, PRELOAD_VARIABLE, load_library};
use crate::encoding::{FIRST_EVENT, encode, whole_bytes};
use crate::event::{Event, EventKind, REPORTED_WHOLE};
use crate::trace::Trace;

/// The log of an outer run, and the library that its programs preload.
pub struct OuterLog {
    file: File,
    header: Words,
    preload: Vec<u8>,
    variable: Vec<u8>,
}

impl OuterLog {
    /// Returns true if the environment names a log. This holds even if the log cannot be opened
    /// from here, for example in another PID namespace.
    pub fn is_named(environment: &[(Vec<u8>, Vec<u8>)]) -> bool {
        environment.iter().any(|(name, _)| *name == LOG_VARIABLE[..LOG_VARIABLE.len() - 1])
    }

    /// Opens the log that the environment names. Removes its two variables from the environment, as
    /// the library does.
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

    /// Adds the two variables to an environment of `NAME=value` entries, so that its program is
    /// observed in the same way.
    pub fn observed(&self, environment: &mut Vec<Vec<u8>>) {
        load_library(environment, &self.preload, &self.variable);
    }

    /// Writes all events of a trace to the outer log.
    pub fn report(&self, trace: &Trace) {
        let whole = &trace.log[..whole_bytes(&trace.log)];
        let mut bytes = whole.to_vec();
        trace.events.iter().for_each(|event| encode(event, &mut bytes));
        if trace.incomplete {
            self.header.words()[log::LOST_WORD].fetch_or(log::LOST_BITS, AcqRel);
        }
        self.append(&bytes);
    }

    /// Like [`OuterLog::report`], but marks each program: this trace and the reports before it
    /// contain everything that the program did.
    pub fn report_whole(&self, trace: &Trace) {
        let whole = |event: Event<&[u8]>| {
            let mut event = event.owned();
            event.mode |= if event.kind == EventKind::Start { REPORTED_WHOLE } else { 0 };
            event
        };
        let events = trace.iter().map(whole).collect();
        self.report(&Trace { events, incomplete: trace.incomplete, ..Trace::default() });
    }

    /// Appends whole events at once. If they do not fit, marks the log as incomplete.
    fn append(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let words = self.header.words();
        let at = words[log::TAIL_WORD].fetch_add(bytes.len() as u64, AcqRel);
        let fits = at >= FIRST_EVENT && at + bytes.len() as u64 <= words[log::CAPACITY_WORD].load(Relaxed);
        // The size of the first event is written last. Until then, readers stop there.
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

#[cfg(test)]
mod tests {
    use super::*;

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
            outer.report(&Trace { events: vec![Event::new(1, EventKind::Umask, vec![])], ..Trace::default() });
        }
        let trace = log::read(&log).expect("is a log");
        assert_eq!((trace.iter().count(), trace.incomplete), (2, false));
        assert!(OuterLog::take(&mut vec![pair("LARDER_PRELOAD_LOG", b"/nonexistent")]).is_none());
    }
}
