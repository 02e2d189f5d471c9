//! Removes the files that a stopped tool created. Files that existed before it ran are left alone:
//! the fetched result overwrites them if they are outputs.
//!
//! Unaware of: why the tool was stopped.

use larder_observe::{EventKind, OpenFlags, Trace};
use larder_sys::Stat;

/// Removes the new files in a trace.
pub(crate) fn undo(trace: &Trace) {
    for event in trace.iter().filter(|event| event.error == 0) {
        let made = match event.kind {
            EventKind::Open(flags) if flags.has(OpenFlags::NEW) || flags.has(OpenFlags::TEMPORARY) => event.path,
            EventKind::Rename(flags) if flags.has(OpenFlags::NEW) => event.path2,
            _ => continue,
        };
        let is_it = |stat: &Stat| {
            let same = event.identity.is_none_or(|id| id.file_id() == stat.file_id());
            stat.kind == larder_sys::FileType::File && (same || matches!(event.kind, EventKind::Rename(_)))
        };
        if larder_sys::lstat(made).is_ok_and(|stat| is_it(&stat)) {
            // If a file cannot be removed, it stays as after any killed tool.
            let _ = std::fs::remove_file(larder_sys::as_path(made));
        }
    }
}
