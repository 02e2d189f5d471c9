//! Where the outputs of a command may be: below its working directory, or below the directories of the outputs that it
//! names, links resolved. Asked when a run is recorded and again before its record is handed out, so that no record,
//! whoever wrote it, reaches further than its command.
//!
//! Unaware of: what the outputs are, and how they are put in place.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_compiler::Family;
use larder_store::Bounds;

use crate::Request;
use crate::paths::is_in;

impl Bounds for Request {
    fn may_write(&self, path: &[u8]) -> bool {
        let Some((directory, name)) = split(path) else { return false };
        if matches!(name, b"" | b"." | b"..") {
            return false;
        }
        // What is beside a named output, or in the working directory itself, the file system need not be asked for.
        let own = self.own_directories();
        if own.iter().any(|own| own == directory) || self.names(path) {
            return true;
        }
        if self.scope.may_write(path, &self.action.cwd) {
            return leads_nowhere_else(directory);
        }
        let above = own.into_iter().chain(self.named_paths().map(<[u8]>::to_vec)).filter(|own| own != b"/");
        let above: Vec<Vec<u8>> = above.collect();
        if above.iter().any(|own| is_in(directory, own)) && leads_nowhere_else(directory) {
            return true;
        }
        let Some(real) = real_directory(directory) else { return false };
        above.iter().filter_map(|own| real_directory(own)).any(|own| real.starts_with(own))
    }

    fn may_write_through(&self, link: &[u8]) -> bool {
        let leads_to = || std::fs::canonicalize(as_path(link));
        self.names(link) || leads_to().is_ok_and(|real| self.may_write(real.as_os_str().as_bytes()))
    }
}

impl Request {
    /// The working directory, and those of the outputs that are named.
    fn own_directories(&self) -> Vec<Vec<u8>> {
        let named = self.named_outputs().filter_map(|path| Some(split(&path)?.0.to_vec()));
        [self.action.cwd.clone()].into_iter().chain(named).collect()
    }

    fn named_outputs(&self) -> impl Iterator<Item = Vec<u8>> {
        let named = [self.invocation.output.as_deref(), self.invocation.depfile.as_deref()];
        named.into_iter().flatten().map(|path| self.absolute(path))
    }

    /// Whether the command line says that this very path is to be written to.
    fn names(&self, path: &[u8]) -> bool {
        self.named_outputs().any(|named| named == path) || self.named_paths().any(|named| named == path)
    }

    /// The absolute paths in the arguments of a command that larder does not know: `--out=/b/gen`, `-o/b/x.c`.
    fn named_paths(&self) -> impl Iterator<Item = &[u8]> {
        let unknown = matches!(self.family, Family::Command | Family::Binutils);
        let arguments = if unknown { &self.action.argv[1..] } else { &[] };
        let path = |argument: &[u8]| argument.iter().position(|&b| b == b'/');
        let paths = arguments.iter().filter_map(move |argument| Some(&argument[path(argument)?..]));
        paths.map(|path| path.strip_suffix(b"/").unwrap_or(path)).filter(|path| path.len() > 1)
    }
}

/// An absolute path's directory, and its last name.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&b| b == b'/').filter(|_| path[0] == b'/')?;
    Some((&path[..slash.max(1)], &path[slash + 1..]))
}

/// Whether a directory is there and is where its path says: no link and no `..` in it.
fn leads_nowhere_else(directory: &[u8]) -> bool {
    let goes_up = directory.split(|&b| b == b'/').any(|part| part == b"..");
    !goes_up && larder_sys::Dir::open(directory, true).is_ok()
}

/// A directory with links and `..` resolved. What is missing at its end, which the result may be about to make, is
/// taken as it stands; where something is missing before a `..`, nobody knows where that will lead.
fn real_directory(directory: &[u8]) -> Option<PathBuf> {
    let mut there = as_path(directory);
    let mut missing = Vec::new();
    while let Err(error) = there.symlink_metadata() {
        if error.kind() != io::ErrorKind::NotFound {
            return None;
        }
        missing.push(there.file_name()?);
        there = there.parent()?;
    }
    let mut real = there.canonicalize().ok()?;
    real.extend(missing.into_iter().rev());
    Some(real)
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
