//! Says which paths the outputs of a command may have: those below its working directory, those
//! below the directories of the outputs that it names, and those of `larder run --output`. Links
//! are resolved first. `.git` is none of them, unless the command names the path.
//!
//! The check is made when a run is recorded and again before its record is used. So no record, even
//! a forged one, writes where its command would not.
//!
//! Unaware of: what the outputs are, how they are put in place.
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use larder_compiler::{Family, runs_other_code};
use larder_model::path::{ending, file_name, is_in, split};
use larder_store::Bounds;
use larder_sys::as_path;

use crate::Request;
use crate::rust;

impl Bounds for Request {
    fn may_write(&self, path: &[u8]) -> bool {
        let Some((directory, name)) = split_absolute(path) else { return false };
        if matches!(name, b"" | b"." | b"..") {
            return false;
        }
        let is_named = self.names(path);
        if !is_named && (is_of_a_repository(path) || !self.may_come_of(name)) {
            return false;
        }
        // These two cases need no system calls.
        let own = self.own_directories();
        if own.iter().any(|own| own == directory) || is_named {
            return true;
        }
        if self.scope.may_write(path, &self.action.cwd) {
            // A directory that the result is about to make is still missing.
            let is_real = || real_directory(directory).is_some_and(|real| real == as_path(directory));
            return leads_nowhere_else(directory) || is_real();
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

/// File name extensions of what compilers write beside the named outputs: module files, precompiled
/// headers, and Ada specs (`-fdump-ada-spec`).
const MADE_BY_COMPILERS: &[&[u8]] = &[b"ads", b"gcm", b"pcm", b"mod", b"smod", b"gch", b"pch"];
/// Extensions of files that people write or that a build executes. A compiler writes none of them.
const NEVER_MADE: &[&[u8]] = &[
    b"C", b"H", b"S", b"am", b"ac", b"c", b"c++", b"cc", b"cmake", b"cp", b"cpp", b"cxx", b"def", b"h", b"h++", b"hh",
    b"hpp", b"hxx", b"in", b"inc", b"inl", b"ipp", b"l", b"m", b"m4", b"mk", b"mm", b"pl", b"py", b"sh", b"tcc", b"y",
];

impl Request {
    /// Returns true if the command may write a file of this name that it does not name as an
    /// output.
    ///
    /// For a compiler, the file must be named after an input or an output, or be named in an
    /// option. For example, `x.su` may come from compiling `x.c`, but `Makefile` and `x.h` may not,
    /// whatever a record says.
    fn may_come_of(&self, name: &[u8]) -> bool {
        if self.family == Family::Rustc {
            let stem = rust::named(&self.action.argv).stem();
            return [&b""[..], b"lib"]
                .iter()
                .any(|before| name.strip_prefix(*before).is_some_and(|rest| rest.starts_with(&stem)));
        }
        if !self.family.is_gcc_or_clang() {
            return true;
        }
        let end = ending(name).strip_prefix(b".").unwrap_or_default();
        if NEVER_MADE.contains(&end) {
            return false;
        }
        let (arguments, invocation) = (&self.action.argv[1..], &self.invocation);
        // Needed because these may be named in a response file only, and `arguments` has it
        // unexpanded.
        let known = [Some(&invocation.source), invocation.output.as_ref(), invocation.depfile.as_ref()];
        let is_called_after = |argument: &Vec<u8>| {
            let file = file_name(argument);
            let stem = file.iter().rposition(|&b| b == b'.').map_or(file, |at| &file[..at.max(1)]);
            !stem.is_empty() && is_part(name, stem)
        };
        // The file is named in an option: `-Wl,-Map=x.map`, `-ftime-trace=x.json`.
        let is_said = |argument: &Vec<u8>| argument.starts_with(b"-") && argument.ends_with(name);
        // A plugin or a replaced part of the compiler may write any file but one that the build
        // would run.
        let runs_others = || arguments.iter().any(|argument| runs_other_code(argument));
        let is_makefile = || name.to_ascii_lowercase().ends_with(b"makefile");
        MADE_BY_COMPILERS.contains(&end)
            || runs_others() && !is_makefile()
            || name == b"a.out"
            || name == b"gcm.cache"
            || arguments.iter().any(|argument| is_called_after(argument) || is_said(argument))
            || known.into_iter().flatten().any(is_called_after)
    }

    /// Returns the working directory and the directories of the named outputs.
    fn own_directories(&self) -> Vec<Vec<u8>> {
        let named = self.named_outputs().filter_map(|path| Some(split_absolute(&path)?.0.to_vec()));
        // rustc writes into the working directory only if it is told to, and cargo's is that of the
        // sources.
        let own = Some(self.action.cwd.clone()).filter(|_| self.family != Family::Rustc);
        own.into_iter().chain(named).collect()
    }

    fn named_outputs(&self) -> impl Iterator<Item = Vec<u8>> {
        let named = [self.invocation.output.as_deref(), self.invocation.depfile.as_deref()];
        let more = if self.family == Family::Rustc { rust::named(&self.action.argv).outputs } else { Vec::new() };
        named.into_iter().flatten().chain(more).map(|path| self.absolute(path))
    }

    /// Returns true if the command line names exactly this path as an output.
    fn names(&self, path: &[u8]) -> bool {
        self.named_outputs().any(|named| named == path) || self.named_paths().any(|named| named == path)
    }

    /// Returns the absolute paths in the arguments of a command whose options larder does not know.
    /// For example, `--out=/b/gen` and `-o/b/x.c` give `/b/gen` and `/b/x.c`.
    fn named_paths(&self) -> impl Iterator<Item = &[u8]> {
        let unknown = matches!(self.family, Family::Command | Family::Binutils);
        let arguments = if unknown { &self.action.argv[1..] } else { &[] };
        let path = |argument: &[u8]| argument.iter().position(|&b| b == b'/');
        let paths = arguments.iter().filter_map(move |argument| Some(&argument[path(argument)?..]));
        paths.map(|path| path.strip_suffix(b"/").unwrap_or(path)).filter(|path| path.len() > 1)
    }
}

/// Returns true if `name` has `stem` at its start or after a hyphen, followed by nothing, a dot or
/// a hyphen. For example, `x.su`, `prog-x.dwo` and `a-x.gcno` match the stem `x`.
fn is_part(name: &[u8], stem: &[u8]) -> bool {
    let begins =
        |rest: &[u8]| rest.strip_prefix(stem).is_some_and(|rest| matches!(rest.first(), None | Some(b'.' | b'-')));
    let behind = (0..name.len()).filter(|&at| name[at] == b'-').any(|at| begins(&name[at + 1..]));
    begins(name) || behind
}

/// Returns true for `.git` and what is in it, because its hooks and its configuration start programs.
/// The index is none of that: also a git that only reads brings it up to date.
fn is_of_a_repository(path: &[u8]) -> bool {
    let mut parts = path.split(|&b| b == b'/');
    parts.any(|part| part.eq_ignore_ascii_case(b".git")) && parts.next_back() != Some(b"index")
}

/// Returns the directory and the last component of an absolute path.
fn split_absolute(path: &[u8]) -> Option<(&[u8], &[u8])> {
    split(path).filter(|_| path[0] == b'/')
}

/// Returns true if a directory exists and its path has no link and no `..` in it.
fn leads_nowhere_else(directory: &[u8]) -> bool {
    let goes_up = directory.split(|&b| b == b'/').any(|part| part == b"..");
    !goes_up && larder_sys::Dir::open(directory, true).is_ok()
}

/// Returns a directory with links and `..` resolved. Missing directories at its end stay as they
/// are, because the result may be about to make them. Returns `None` if a directory before a `..`
/// is missing, because the target is then unknown.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_repository() {
        for path in ["/w/.git", "/w/.git/hooks/p", "/w/.GIT/config", "/w/sub/.git/config", "/w/.git/modules/m/config"] {
            assert!(is_of_a_repository(path.as_bytes()), "{path}");
        }
        for path in ["/w/.git/index", "/w/.git/worktrees/x/index", "/w/.gitignore", "/w/x.git/config", "/w/git", "/"] {
            assert!(!is_of_a_repository(path.as_bytes()), "{path}");
        }
    }

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
