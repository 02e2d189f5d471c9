//! Process ids and inode numbers, which differ in each run, and whether a result holds one.
//!
//! Unaware of: which texts read them, what is done with the answer.

use std::collections::{BTreeSet, HashSet};
use std::fs;

use larder_compiler::{compiled_names_other_processes, is_compiler_part};
use larder_model::contains;
use larder_model::path::file_name;
use larder_observe::{Image, Program, RunModel, inspect_program};
use larder_relocate::hides_its_text;

/// Directories of the system's packages. An interpreter's own library mentions everything, so it
/// must not count.
const SYSTEM: [&[u8]; 8] =
    [b"/usr/bin/", b"/usr/lib", b"/usr/share/", b"/usr/include/", b"/lib/", b"/lib64/", b"/bin/", b"/etc/"];

/// The numbers, as decimal text.
#[derive(Debug, Default)]
pub struct VolatileIds {
    /// Process ids.
    pub(crate) processes: HashSet<Vec<u8>>,
    /// True if a process id may be anywhere in the result, and in binary data in any form.
    pub(crate) anywhere: bool,
    /// The text before the process id in file names that are known to contain one, for example
    /// `conf` for `conf$$.file`.
    pub(crate) before: BTreeSet<&'static str>,
    /// Inode numbers that a program was shown.
    pub(crate) inodes: HashSet<Vec<u8>>,
}

impl VolatileIds {
    /// Returns true if there is any number to search for.
    pub fn are_any(&self) -> bool {
        !self.processes.is_empty() || !self.inodes.is_empty()
    }

    /// Returns true if a text holds one of the numbers, or may hold one.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.anywhere && (text.contains(&0) || holds_a_number(text, &self.processes))
            || holds_a_number(text, &self.inodes)
            || self.before.iter().any(|before| self.stands_behind(text, before.as_bytes()))
            || self.are_any() && hides_its_text(text)
    }

    fn stands_behind(&self, text: &[u8], before: &[u8]) -> bool {
        memchr::memmem::find_iter(text, before).any(|at| {
            let rest = &text[at + before.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            holds_a_number(&rest[..digits], &self.processes)
        })
    }
}

/// Returns true if a text holds one of these numbers, not as part of a longer number. Leading zeros
/// are ignored.
fn holds_a_number(text: &[u8], numbers: &HashSet<Vec<u8>>) -> bool {
    // An inode number has at most 20 digits.
    let mut runs = text.split(|byte| !byte.is_ascii_digit()).filter(|run| (1..=20).contains(&run.len()));
    let is_one = |run: &[u8]| {
        let zeros = run.iter().take_while(|digit| **digit == b'0').count();
        numbers.contains(&run[zeros.min(run.len() - 1)..])
    };
    !numbers.is_empty() && runs.any(is_one)
}

/// Returns true if a program ran that can ask for process ids and is neither the system's nor a
/// known part of a compiler. It also returns true for a program that cannot be read any more. Code
/// that was compiled but did not run does not count.
pub(crate) fn ran_what_names_processes(run: &RunModel) -> bool {
    let mut known = HashSet::new();
    run.images.iter().any(|image| {
        outside_the_system(image.path)
            && !is_compiler_part(file_name(image.path))
            && known.insert((image.path, image.identity.map(|identity| (identity.inode, identity.modified_ns))))
            && names_processes(image)
    })
}

/// Returns true if a program may ask for process ids. A dynamic program and a library contain the
/// names of the functions that they call, and can be searched for those.
fn names_processes(image: &Image) -> bool {
    let is_dynamic = !image.is_program || matches!(inspect_program(image.path).0, Program::Dynamic { .. });
    let is_the_same = is_still_there(image);
    let names = |bytes: Vec<u8>| compiled_names_other_processes(&bytes) || contains(&bytes, "syscall");
    !is_dynamic || !is_the_same || fs::read(larder_sys::as_path(image.path)).map_or(true, names)
}

/// Returns true if a file does not belong to the system's packages.
pub fn outside_the_system(path: &[u8]) -> bool {
    !SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Returns true if the file of a program has not changed since the program ran.
pub(crate) fn is_still_there(image: &Image) -> bool {
    image.identity.is_some_and(|identity| {
        larder_sys::stat(image.path).is_ok_and(|now| {
            let before = (identity.inode, identity.size_bytes, identity.modified_ns);
            (now.inode, now.size_bytes, now.modified_ns) == before
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(anywhere: bool, before: &[&'static str]) -> VolatileIds {
        VolatileIds {
            processes: HashSet::from([b"4711".to_vec()]),
            anywhere,
            before: before.iter().copied().collect(),
            inodes: HashSet::new(),
        }
    }

    #[test]
    fn a_number_anywhere() {
        let check = |text: &[u8], expect| assert_eq!(numbers(true, &[]).is_in(text), expect, "{text:?}");
        check(b"x 4711", true);
        check(b"x04711y", true);
        check(b"47110", false);
        check(b"\0", true);
        check(b"", false);
    }

    #[test]
    fn a_number_in_names_that_are_known() {
        let check = |text: &[u8], expect| assert_eq!(numbers(false, &["conf", "-"]).is_in(text), expect, "{text:?}");
        check(b"x 4711 conf47110 confer", false);
        check(b"\0\x01 4711", false);
        check(b"\0conf4711.file", true);
        check(b"/tmp/libtool-04711/x", true);
        // Compressed data may hold it.
        check(b"\x1f\x8b\x08\0", true);
    }

    #[test]
    fn no_number() {
        let none = VolatileIds::default();
        assert!(!none.is_in(b"4711 \0 \x1f\x8b") && !none.is_in(b"\x1f\x8b\x08\0"));
    }

    #[test]
    fn inodes_are_searched_alone() {
        let inodes = VolatileIds { inodes: HashSet::from([b"1234567".to_vec()]), ..VolatileIds::default() };
        assert!(inodes.is_in(b"at 1234567") && !inodes.is_in(b"\0 4711") && inodes.is_in(b"\x1f\x8b\x08\0"));
    }
}
