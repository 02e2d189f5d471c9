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
        let is_named = self.names(path);
        if !is_named && !self.may_come_of(name) {
            return false;
        }
        // What is beside a named output, or in the working directory itself, the file system need not be asked for.
        let own = self.own_directories();
        if own.iter().any(|own| own == directory) || is_named {
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

/// What compilers make beside what is named, by the end of its name: modules, headers that were read, and as Ada has them.
const MADE_BY_COMPILERS: &[&[u8]] = &[b"ads", b"gcm", b"pcm", b"mod", b"smod", b"gch", b"pch"];
/// Options that have a compiler run, or load, what is none of its own.
const RUNS_OTHERS: &[&[u8]] = &[b"-B", b"-fplugin", b"-fpass-plugin", b"-load", b"-wrapper", b"-specs", b"--specs"];
/// What people write, and what runs: a compiler makes none.
const NEVER_MADE: &[&[u8]] = &[
    b"C", b"H", b"S", b"am", b"ac", b"c", b"c++", b"cc", b"cmake", b"cp", b"cpp", b"cxx", b"def", b"h", b"h++", b"hh",
    b"hpp", b"hxx", b"in", b"inc", b"inl", b"ipp", b"l", b"m", b"m4", b"mk", b"mm", b"pl", b"py", b"sh", b"tcc", b"y",
];

impl Request {
    /// Whether a file of this name may come of it, where it is not named as an output. A compiler's are called as what it
    /// compiles or makes, or as an option says; whoever wrote the record, it makes no `Makefile`, and no source.
    fn may_come_of(&self, name: &[u8]) -> bool {
        if !matches!(self.family, Family::Gcc | Family::Clang) {
            return true;
        }
        let end = name.iter().rposition(|&b| b == b'.').map_or(&b""[..], |at| &name[at + 1..]);
        if NEVER_MADE.contains(&end) {
            return false;
        }
        let (arguments, invocation) = (&self.action.argv[1..], &self.invocation);
        // Some are named in a file of arguments.
        let known = [Some(&invocation.source), invocation.output.as_ref(), invocation.depfile.as_ref()];
        let is_called_after = |argument: &Vec<u8>| {
            let file = argument.rsplit(|&b| b == b'/').next().unwrap_or_default();
            let stem = file.iter().rposition(|&b| b == b'.').map_or(file, |at| &file[..at.max(1)]);
            !stem.is_empty() && is_part(name, stem)
        };
        // `-Wl,-Map=x.map`, `-ftime-trace=x.json`, or two arguments.
        let is_said = |argument: &Vec<u8>| argument.starts_with(b"-") && argument.ends_with(name);
        // What somebody puts into a compiler may write what it likes, but nothing that a build would run.
        let runs_others =
            || arguments.iter().any(|argument| RUNS_OTHERS.iter().any(|start| argument.starts_with(start)));
        let is_makefile = || name.to_ascii_lowercase().ends_with(b"makefile");
        MADE_BY_COMPILERS.contains(&end)
            || runs_others() && !is_makefile()
            || name == b"a.out"
            || name == b"gcm.cache"
            || arguments.iter().any(|argument| is_called_after(argument) || is_said(argument))
            || known.into_iter().flatten().any(is_called_after)
    }

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

/// Whether a name is this, or this at its beginning or behind a hyphen, and a dot or a hyphen behind: of `x.c` or
/// `prog` come `x.su`, `prog-x.dwo`, `a-x.gcno`.
fn is_part(name: &[u8], stem: &[u8]) -> bool {
    let begins =
        |rest: &[u8]| rest.strip_prefix(stem).is_some_and(|rest| matches!(rest.first(), None | Some(b'.' | b'-')));
    let behind = (0..name.len()).filter(|&at| name[at] == b'-').any(|at| begins(&name[at + 1..]));
    begins(name) || behind
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_after_another() {
        for (name, stem) in [("x.su", "x"), ("x", "x"), ("prog-x.dwo", "x"), ("prog-x.dwo", "prog"), ("a-x.gcno", "x")]
        {
            assert!(is_part(name.as_bytes(), stem.as_bytes()), "{name} of {stem}");
        }
        for (name, stem) in [("Makefile", "a"), ("xy.su", "x"), ("pre-commit", "commit.c"), ("GNUmakefile", "q")] {
            assert!(!is_part(name.as_bytes(), stem.as_bytes()), "{name} of {stem}");
        }
    }
}
