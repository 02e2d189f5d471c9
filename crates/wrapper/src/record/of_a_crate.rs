//! Narrows what a run of rustc relied on: in the directories in which it searches crates, only
//! some names matter.
//!
//! Unaware of: what else a run relied on.

use std::collections::BTreeSet;

use larder_compiler::{Family, rust, rust_paths};
use larder_lookup::is_in_target_directory;
use larder_model::path::{file_name, parent};
use larder_model::{Looked, contains};
use larder_observe::Folded;
use larder_sys::ChildEnd;

use super::canonical_paths::CanonicalPaths;
use super::entry::Run;
use crate::run::observed_run::ObservedRun;

impl Run<'_> {
    /// Returns the directory of rustc's sessions of incremental compilation: its path on the command
    /// line, and its real path, which rustc uses.
    pub(super) fn sessions(&self) -> Vec<Vec<u8>> {
        if self.request.family != Family::Rustc {
            return Vec::new();
        }
        let named = rust(&self.request.action.argv[1..]).incremental.map(|path| self.request.absolute(path));
        let real = named.as_ref().filter(|path| contains(path, "/.."));
        let real = real.and_then(|path| CanonicalPaths::default().of(&[path, &b"/."[..]].concat()));
        named.into_iter().chain(real).collect()
    }

    /// Returns the directories of `-L dependency=`.
    fn searched_for_crates(&self) -> Vec<Vec<u8>> {
        let named = rust(&self.request.action.argv[1..]);
        named.dependency_directories.iter().map(|directory| self.request.absolute(directory)).collect()
    }

    /// Narrows what the loader looks at. cargo puts directories of the target directory into
    /// `LD_LIBRARY_PATH`, for rustc, build scripts and the compilers that these start. Crates appear
    /// there all the time. Only the libraries that the loader found elsewhere matter: none of their
    /// names may appear there.
    pub(super) fn name_what_the_loader_looks_for(&self, looks: &mut Vec<(Vec<u8>, Looked)>) {
        let searched = self.searched_for_crates();
        let is_cargos = |path: &Vec<u8>| {
            let is_of_crates = searched.contains(path)
                || self.request.family == Family::Rustc && !self.request.roots.is_outside(path)
                || is_in_target_directory(path);
            is_of_crates && file_name(path) != b"glibc-hwcaps"
        };
        let (listed, others): (Vec<_>, Vec<_>) =
            std::mem::take(looks).into_iter().partition(|(path, looked)| looked.listed && is_cargos(path));
        *looks = others;
        let libraries: BTreeSet<&[u8]> =
            self.model.images.iter().filter(|image| !image.is_program).map(|image| file_name(image.path)).collect();
        for (directory, _) in listed {
            let paths = libraries.iter().map(|name| [&directory, &b"/"[..], name].concat());
            // A library that is there was loaded from there, so its content is an observation.
            let missing = paths.filter(|path| larder_sys::lstat(path).is_err());
            looks.extend(missing.map(|path| (path, Looked::absent())));
            looks.push((directory, Looked { kind: true, ..Looked::default() }));
        }
    }

    /// Replaces the lists of names in the directories of `-L dependency=` by what matters of them.
    ///
    /// rustc searches these directories for the crates that other crates depend on. It takes each
    /// file whose name begins with the crate's name and the text that cargo puts behind it, opens it
    /// and compares the hash in it. So if all crates have such names, only a file of the same name in
    /// another directory matters, and the content of those that were opened.
    ///
    /// The list stays an observation if a crate has another name, because more files may then be
    /// candidates, or if the directory is also searched for other things.
    fn narrow_search_for_crates(&self, looked: &mut Vec<(Vec<u8>, Looked)>) {
        let searched = self.searched_for_crates();
        let is_one = |path: &[u8]| searched.iter().any(|directory| directory == path);
        let named = rust_paths(&self.request.action.argv[1..]);
        let others: Vec<Vec<u8>> = named.directories.iter().map(|path| self.request.absolute(path)).collect();
        let is_read = |(path, looked): &&(Vec<u8>, Looked)| looked.content && is_crate_in(path, &is_one);
        let crates: BTreeSet<Vec<u8>> =
            looked.iter().filter(is_read).map(|(path, _)| file_name(path).to_vec()).collect();
        if !crates.iter().all(|name| is_named_by_cargo(name)) {
            return;
        }
        let listed = looked.iter_mut().filter(|(path, looked)| looked.listed && is_one(path) && !others.contains(path));
        let mut narrowed = Vec::new();
        for (directory, looked) in listed {
            looked.listed = false;
            narrowed.push(directory.clone());
        }
        let paths =
            narrowed.iter().flat_map(|directory| crates.iter().map(move |name| [directory, &b"/"[..], name].concat()));
        let is_known: BTreeSet<&[u8]> = looked.iter().map(|(path, _)| path.as_slice()).collect();
        // A file that is there was opened, so its content is an observation.
        let missing = paths.filter(|path| !is_known.contains(path.as_slice()) && larder_sys::lstat(path).is_err());
        let missing: Vec<Vec<u8>> = missing.collect();
        looked.extend(missing.into_iter().map(|path| (path, Looked::absent())));
    }

    /// Leaves out what does not matter of a compile of a crate.
    pub(super) fn of_a_crate(&self, observed_run: &ObservedRun, folded: &mut Folded) {
        if observed_run.observed.finished.end == ChildEnd::Exited(0) {
            self.narrow_search_for_crates(&mut folded.seen.looked);
        }
    }
}

/// Returns true for the file of a crate, directly in a directory for which `is_one` holds.
fn is_crate_in(path: &[u8], is_one: &dyn Fn(&[u8]) -> bool) -> bool {
    [&b".rlib"[..], b".rmeta", b".so"].iter().any(|ending| path.ends_with(ending)) && parent(path).is_some_and(is_one)
}

/// Returns true if the name of a crate's file ends as those that cargo makes: with `-` and 16
/// hexadecimal digits, as `libserde-0123456789abcdef.rlib`.
fn is_named_by_cargo(name: &[u8]) -> bool {
    const DIGITS: usize = 16;
    let stem = name.iter().rposition(|&byte| byte == b'.').map_or(name, |at| &name[..at]);
    let Some(at) = stem.len().checked_sub(DIGITS + 1) else { return false };
    stem[at] == b'-' && stem[at + 1..].iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::is_named_by_cargo;

    #[test]
    fn names_of_crates() {
        assert!(is_named_by_cargo(b"libserde-0123456789abcdef.rlib"));
        for name in [&b"libserde.rlib"[..], b"libserde-0123.rlib", b"libserde-0123456789abcdeg.rmeta", b"x.so"] {
            assert!(!is_named_by_cargo(name), "{}", String::from_utf8_lossy(name));
        }
    }
}
