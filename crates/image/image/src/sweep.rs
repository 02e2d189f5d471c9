//! Finishing or undoing what a killed command had begun: see the steps in `place.rs`.
//!
//! Unaware of: what a path contains.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::place::{EMPTIED, INSIDE, NOTE, NOTE_BYTES_MAX, OLD, TOP, is_in, is_ours, move_to_nothing, names_in};

/// The age from which an abandoned work directory without a note is removed. A younger one may
/// belong to a process that has not locked it yet.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// The result of a sweep for one killed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The files that the command had moved aside were moved back.
    PutBack(PathBuf),
    /// The files that the command was moving into place are in place now.
    Finished(PathBuf),
    /// The files that the command had moved aside were kept, because something else is in their
    /// place.
    Kept {
        /// The original path.
        target: PathBuf,
        /// The current path.
        old: PathBuf,
    },
}

/// Finishes in `dir` what killed commands began: moves back what they had moved aside, and deletes
/// their work directories. Directories of other users and of running commands are not touched, and
/// links are not followed.
pub fn sweep(dir: &Path) -> Vec<Left> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(parent) = rustix::fs::openat(CWD, dir, flags, Mode::empty()) else { return Vec::new() };
    let names = names_in(&parent).unwrap_or_default().into_iter().filter(|name| is_ours(OsStr::from_bytes(name)));
    names.filter_map(|name| Abandoned::open(&parent, dir, &name)?.finish()).collect()
}

/// A work directory of a killed command, locked.
struct Abandoned<'a> {
    /// The directory that contains it.
    parent: &'a OwnedFd,
    dir: &'a Path,
    name: &'a [u8],
    work: File,
}

impl<'a> Abandoned<'a> {
    /// Returns `None` if it belongs to another user or is in use.
    fn open(parent: &'a OwnedFd, dir: &'a Path, name: &'a [u8]) -> Option<Abandoned<'a>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let work = File::from(rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?);
        let is_own = work.metadata().ok()?.uid() == larder_sys::effective_user();
        let is_locked = is_own && larder_sys::try_write_lock(&work).is_ok_and(|locked| locked);
        is_locked.then_some(Abandoned { parent, dir, name, work })
    }

    fn finish(&self) -> Option<Left> {
        match self.note() {
            Ok(None) => {
                let modified = self.work.metadata().and_then(|meta| meta.modified());
                let old = |modified: SystemTime| modified.elapsed().is_ok_and(|age| age > SWEEP_AGE);
                if modified.is_ok_and(old) {
                    self.remove();
                }
                None
            }
            Ok(Some(note)) if note == INSIDE => Some(self.move_all()),
            Ok(Some(note)) if may_be_put_back(&note) => self.put_back(&note),
            _ => Some(self.kept(self.dir)),
        }
    }

    fn note(&self) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&self.work, NOTE, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => File::from(opened?),
        };
        let mut note = Vec::new();
        opened.take(NOTE_BYTES_MAX).read_to_end(&mut note)?;
        Ok(Some(note))
    }

    /// Moves `old` back if nothing or an empty directory is in its place.
    fn put_back(&self, note: &[u8]) -> Option<Left> {
        let target = self.dir.join(OsStr::from_bytes(note));
        if !is_in(&self.work, OLD.as_bytes()) {
            // The command was killed before it moved anything, or after it had moved it back.
            self.remove();
            return None;
        }
        let _ = rustix::fs::unlinkat(self.parent, note, AtFlags::REMOVEDIR);
        if move_to_nothing(&self.work, OLD.as_bytes(), self.parent, note).is_err() {
            return Some(self.kept(&target));
        }
        self.remove();
        Some(Left::PutBack(target))
    }

    /// If all names of the target are in `old`, moves the names in `top` up. Otherwise moves those
    /// in `old` back.
    fn move_all(&self) -> Left {
        let is_emptied = is_in(&self.work, EMPTIED.as_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = if is_emptied { TOP } else { OLD };
        let moved = match rustix::fs::openat(&self.work, from, flags, Mode::empty()) {
            // The command was killed before it had created `old`.
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(from) => names_in(&from)
                .and_then(|names| names.iter().try_for_each(|name| move_to_nothing(&from, name, self.parent, name))),
        };
        if moved.is_err() {
            return self.kept(self.dir);
        }
        self.remove();
        if is_emptied { Left::Finished(self.dir.to_owned()) } else { Left::PutBack(self.dir.to_owned()) }
    }

    fn kept(&self, target: &Path) -> Left {
        Left::Kept { target: target.to_owned(), old: self.dir.join(OsStr::from_bytes(self.name)).join(OLD) }
    }

    /// Deletes the content, and then the directory by its name if it is empty.
    fn remove(&self) {
        // The note goes first. If this process is killed as well, the rest must not look like the
        // user's files.
        let _ = rustix::fs::unlinkat(&self.work, NOTE, AtFlags::empty());
        for name in names_in(&self.work).unwrap_or_default() {
            let _ = larder_sys::remove_tree_at(&self.work, OsStr::from_bytes(&name));
        }
        let _ = rustix::fs::unlinkat(self.parent, self.name, AtFlags::REMOVEDIR);
    }
}

/// Returns true if `note` is the name of a file beside the work directory, and not `.git`.
///
/// A commit can have a directory that looks like a work directory, but nothing with the name
/// `.git`. From such a directory, a repository would be made whose configuration starts programs.
fn may_be_put_back(note: &[u8]) -> bool {
    !note.is_empty() && note != b".." && !note.contains(&b'/') && !note.eq_ignore_ascii_case(b".git")
}
