//! The directories that the walk opens, and paths whose directory cannot be opened.
//!
//! Unaware of: what a path in an open directory is.

use std::io;

use larder_model::{Looked, Unrecorded};
use larder_sys::{Dir, Trust};

use super::{Done, Opened, SplitPath, Walk, refuse, why_not_again};
use crate::current::stat_in;

/// Linux's errno for "too many levels of symbolic links". Opening a path fails with it if symbolic
/// links are refused and the path contains one.
const ELOOP: i32 = 40;

impl Walk<'_> {
    /// Verifies a path whose directory cannot be opened. An absence is recorded for the deepest
    /// directory that exists.
    pub(super) fn below_missing(
        &mut self,
        at: SplitPath<'_>,
        looked: &Looked,
        error: &io::Error,
        depth: usize,
    ) -> Done {
        let SplitPath { path, directory, .. } = at;
        // A failed `access` for execution counts as an access to an existing file. If a directory
        // above may not be searched, that was the reason of the failure.
        let is_barred = error.kind() == io::ErrorKind::PermissionDenied;
        if looked.content || looked.kind && !looked.absent && !is_barred {
            return refuse(looked.failed.map_or(Unrecorded::InputChanged, |(_, errno)| why_not_again(errno)), path);
        }
        let mut missing = directory;
        let existing = loop {
            let above = above(missing);
            if above.len() >= missing.len() {
                return refuse(Unrecorded::InputChanged, path);
            }
            if self.open(above).is_ok() {
                break above;
            }
            missing = above;
        };
        if error.kind() == io::ErrorKind::NotFound {
            let absent = Looked { absent: true, link: true, ..Looked::default() };
            let SplitPath { directory, name, .. } = SplitPath::of(missing);
            if name.is_empty() || directory.len() != existing.len() {
                // `..` or `.` in a directory that exists are never absent, so something has changed
                // meanwhile.
                return refuse(Unrecorded::InputChanged, path);
            }
            if self.is_missing(missing, directory, name) {
                let rest = &path[missing.len()..];
                let plain = rest[1..].split(|&b| b == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
                let name = if plain { [name, rest].concat() } else { name.to_vec() };
                self.absent(directory, &name);
                return Ok(());
            }
            return self.path(missing, &absent, depth + 1);
        }
        let existing = existing.to_vec();
        if is_barred && looked.kind {
            // The directory must not have changed since the run began.
            let changed_ns = self.opened(&existing).itself().map_or(i64::MAX, |stat| stat.changed_ns);
            if changed_ns >= self.witness.started_ns {
                return refuse(Unrecorded::InputChanged, path);
            }
        }
        // Not a directory, no permission, or too many links. This is recorded as the error of a
        // `stat` of the whole path.
        let name =
            path[existing.len()..].iter().position(|&b| b != b'/').map(|at| path[existing.len() + at..].to_vec());
        let errno = error.raw_os_error().unwrap_or(0) as u32;
        self.failed(SplitPath { path, directory: &existing, name: &name.unwrap_or_default() }, 0, errno)
    }

    /// Returns true if `name` is not in `directory`. `path` is both together.
    fn is_missing(&mut self, path: &[u8], directory: &[u8], name: &[u8]) -> bool {
        if self.absent.contains(path) {
            return true;
        }
        let found = stat_in(self.opened(directory), name, false);
        let is_missing = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_missing {
            self.absent.insert(path.to_vec());
        }
        is_missing
    }

    pub(super) fn open(&mut self, path: &[u8]) -> io::Result<()> {
        if self.open.contains_key(path) {
            return Ok(());
        }
        if let Some(errno) = self.missing.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let opened = self.open_new(path);
        if let Some(errno) = opened.as_ref().err().and_then(io::Error::raw_os_error) {
            self.missing.insert(path.to_vec(), errno);
        }
        opened
    }

    fn open_new(&mut self, path: &[u8]) -> io::Result<()> {
        let SplitPath { directory: above, name, .. } = SplitPath::of(path);
        let parent = self.open.get(above).filter(|above| above.plain && !name.is_empty());
        // Opening relative to the parent directory is cheaper, and it also shows that the name is
        // absent.
        let opened = match parent {
            Some(above) => above.dir.open_in(name),
            None => Dir::open(path, true),
        };
        let (dir, real) = match opened {
            Ok(dir) => (dir, None),
            Err(error) if parent.is_some() && error.kind() == io::ErrorKind::NotFound => {
                self.absent.insert(path.to_vec());
                return Err(error);
            }
            Err(error) if error.raw_os_error() == Some(ELOOP) => {
                let dir = Dir::open(path, false)?;
                let real = dir.real_path()?;
                (dir, Some(real))
            }
            Err(error) => return Err(error),
        };
        let stat = dir.itself()?;
        let old = stat.changed_ns < self.witness.started_ns;
        let trusted = old && self.witness.stat_cache.trusts_directories(&stat, || dir.trust().unwrap_or(Trust::NONE));
        let real = real.map(|real| self.witness.roots.encoded_path(&real));
        let plain = real.is_none();
        let entry = self.entry(path);
        entry.real = real;
        entry.unchanged = trusted.then_some(stat);
        entry.identity = stat.file_id();
        self.open.insert(path.to_vec(), Opened { dir, plain, unchanged: trusted });
        Ok(())
    }

    /// Returns a directory that was opened by `open`.
    pub(super) fn opened(&self, path: &[u8]) -> &Dir {
        match self.open.get(path) {
            Some(opened) => &opened.dir,
            None => unreachable!("{} is opened before it is used", String::from_utf8_lossy(path)),
        }
    }
}

/// Returns the path without its last component, which may also be `.` or `..`.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let slash = path[..end].iter().rposition(|&b| b == b'/').unwrap_or(0);
    let end = path[..slash].iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end.max(1)]
}
