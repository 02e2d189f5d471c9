//! Stats paths, each once, and writes the events of a trace for them.
//!
//! Unaware of: why a path is looked at.

use std::collections::HashMap;
use std::io;

use super::reason::{Reason, text};
use crate::event::{Event, EventKind, OpenFlags};
use larder_model::path::absolute;

/// A command that needs more paths is refused.
const LOOKS_MAX: usize = 100_000;
/// The pid of events that no process of the run made. No process has it.
pub(super) const NO_PROCESS: u32 = u32::MAX - 1;

/// The result of a stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathKind {
    /// A regular file, with its device and inode.
    File(u64, u64),
    /// A directory, with its device and inode.
    Directory(u64, u64),
    /// The path does not exist.
    Absent,
}

/// All paths that were looked at so far.
pub(super) struct Looks {
    cwd: Vec<u8>,
    found: HashMap<Vec<u8>, PathKind>,
    events: Vec<Event>,
}

impl Looks {
    pub(super) fn new(cwd: &[u8]) -> Looks {
        Looks { cwd: cwd.to_vec(), found: HashMap::new(), events: Vec::new() }
    }

    /// Stats `path` and follows links. A file that exists counts as read, so its content is an
    /// input.
    pub(super) fn look(&mut self, path: &[u8]) -> Result<PathKind, Reason> {
        let path = absolute(&self.cwd, path);
        if let Some(found) = self.found.get(&path) {
            return Ok(*found);
        }
        if self.found.len() >= LOOKS_MAX {
            return Err(format!("{}: too many paths to look at", text(&path)));
        }
        let found = self.look_anew(&path)?;
        self.found.insert(path, found);
        Ok(found)
    }

    fn look_anew(&mut self, path: &[u8]) -> Result<PathKind, Reason> {
        let stat = match larder_sys::stat(path) {
            Ok(stat) => stat,
            Err(error) => return self.absent(path, &error),
        };
        let key = stat.file_id();
        let found = match stat.kind {
            larder_sys::FileType::File => PathKind::File(key.0, key.1),
            larder_sys::FileType::Directory => PathKind::Directory(key.0, key.1),
            _ => return Err(format!("{}: neither a file nor a directory", text(path))),
        };
        // gcc writes the real path of a system header if that is shorter, so the links in `path`
        // are inputs as well.
        self.events.push(Event::new(NO_PROCESS, EventKind::RealPath, path.to_vec()));
        if matches!(found, PathKind::File(..)) {
            let open = EventKind::Open(OpenFlags(OpenFlags::READ));
            self.events.push(Event::new(NO_PROCESS, open, path.to_vec()).with(&stat));
        }
        Ok(found)
    }

    fn absent(&mut self, path: &[u8], error: &io::Error) -> Result<PathKind, Reason> {
        match error.raw_os_error() {
            Some(errno @ (libc::ENOENT | libc::ENOTDIR)) => {
                self.events.push(Event { error: errno, ..Event::new(NO_PROCESS, EventKind::Stat, path.to_vec()) });
                Ok(PathKind::Absent)
            }
            _ => Err(format!("{}: {error}", text(path))),
        }
    }

    /// Lists a directory, so that its names are an input. If `path` is not a directory, that fact
    /// is an input instead.
    pub(super) fn list(&mut self, path: &[u8]) -> Result<(), Reason> {
        if matches!(self.look(path)?, PathKind::Directory(..)) {
            self.events.push(Event::new(NO_PROCESS, EventKind::List, absolute(&self.cwd, path)));
        }
        Ok(())
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
}
