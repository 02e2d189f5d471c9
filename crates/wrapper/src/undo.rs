//! What a tool that was stopped left, taken away: files that it made and that were not there before. What was there and
//! is an output is written again by whoever won.
//!
//! Unaware of: why it was stopped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_observe::{Kind, OpenFlags, Trace};
use larder_sys::Look;

/// Take them away.
pub(crate) fn undo(trace: &Trace) {
    for event in trace.iter().filter(|event| event.error == 0) {
        let made = match event.kind {
            Kind::Open(flags) if flags.has(OpenFlags::NEW) || flags.has(OpenFlags::TEMPORARY) => event.path,
            Kind::Rename(flags) if flags.has(OpenFlags::NEW) => event.path2,
            _ => continue,
        };
        let is_it = |look: &Look| {
            let same = event.identity.is_none_or(|id| (id.device, id.inode) == (look.device, look.inode));
            look.kind == larder_sys::Kind::File && (same || matches!(event.kind, Kind::Rename(_)))
        };
        if larder_sys::look(made).is_ok_and(|look| is_it(&look)) {
            // What cannot be removed is what a tool leaves that is killed.
            let _ = std::fs::remove_file(Path::new(OsStr::from_bytes(made)));
        }
    }
}
