//! Process ids and inode numbers, which differ in each run, and whether a result holds one.
//!
//! Unaware of: which texts read them, what is done with the answer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;

use larder_compiler::{compiled_names_other_processes, is_compiler_part, is_known_program};
use larder_model::path::file_name;
use larder_model::{contains, is_in_word};
use larder_observe::{Image, Program, RunModel, dynamic_names, inspect_program};
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
    /// Process ids that a program may have printed. They are searched in texts only.
    pub(crate) printed: HashSet<Vec<u8>>,
}

impl VolatileIds {
    /// Returns true if there is any number to search for.
    pub fn are_any(&self) -> bool {
        !self.processes.is_empty() || !self.inodes.is_empty() || !self.printed.is_empty()
    }

    /// Returns true if a text holds one of the numbers, or may hold one.
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.anywhere && (text.contains(&0) || holds_a_number(text, &self.processes))
            || holds_a_number(text, &self.inodes)
            || !text.contains(&0) && holds_a_number(text, &self.printed)
            || self.before.iter().any(|before| self.stands_behind(text, before.as_bytes()))
            || (!self.processes.is_empty() || !self.inodes.is_empty()) && hides_its_text(text)
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

/// Functions that return the id of a process, or that call the kernel by number.
const PROCESS_FUNCTIONS: &[&[u8]] = &[
    b"_Fork",
    b"clone",
    b"fork",
    b"forkpty",
    b"getpgid",
    b"getpgrp",
    b"getpid",
    b"getppid",
    b"getsid",
    b"gettid",
    b"posix_spawn",
    b"posix_spawnp",
    b"syscall",
    b"vfork",
    b"wait",
    b"wait3",
    b"wait4",
    b"waitid",
    b"waitpid",
];

/// A process id with fewer digits is likely to be in a text by chance. In a container, where ids are
/// small, they are also the same in each run.
const PRINTED_MIN: u32 = 1000;

/// Returns the ids of processes that a program which is neither the system's nor known may have
/// printed: its own, its parents', and those of processes that it started.
pub(crate) fn may_be_printed(run: &RunModel) -> HashSet<Vec<u8>> {
    let mut asks: HashMap<&[u8], bool> = HashMap::new();
    for image in run.images.iter().filter(|image| image.is_program && outside_the_system(image.path)) {
        let is_unknown = || !is_known_program(file_name(image.path));
        asks.entry(image.path).or_insert_with(|| is_unknown() && (!is_still_there(image) || imports_ids(image.path)));
    }
    let asks = |program: &[u8]| asks.get(program) == Some(&true);
    let own = run.phases.iter().filter(|phase| asks(phase.running.program)).map(|phase| phase.pid);
    let started = run.starts.iter().filter(|start| asks(start.starter)).map(|start| start.pid);
    let mut found: HashSet<u32> = own.chain(started).collect();
    if !found.is_empty() {
        found.extend([larder_sys::process_id(), larder_sys::parent_process_id()]);
    }
    found.into_iter().filter(|id| *id >= PRINTED_MIN).map(|id| id.to_string().into_bytes()).collect()
}

/// Returns true if a program calls a function that returns the id of a process, or if that is not
/// known because the program is static.
fn imports_ids(program: &[u8]) -> bool {
    dynamic_names(program)
        .is_none_or(|names| names.split(|byte| *byte == 0).any(|name| PROCESS_FUNCTIONS.contains(&name)))
}

/// Returns true if a text holds an address of memory, such as `0x7f3a5c0012a0`. The kernel chooses
/// where it places programs, libraries and stacks, so an address differs in each run.
pub fn holds_an_address(text: &[u8]) -> bool {
    // Where the kernel places these on x86-64 and on aarch64.
    const STARTS: [&[u8]; 6] = [b"55", b"56", b"7e", b"7f", b"aaaa", b"ffff"];
    const DIGITS: usize = 12;
    let is_one = |at: usize| {
        let rest = &text[at + 2..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let ends = rest.get(digits).is_none_or(|byte| !is_in_word(*byte));
        digits == DIGITS && ends && STARTS.iter().any(|start| rest[..start.len()].eq_ignore_ascii_case(start))
    };
    !text.contains(&0) && memchr::memmem::find_iter(text, b"0x").any(is_one)
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
            printed: HashSet::new(),
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
    fn addresses() {
        for text in ["SCALAR(0x559cff9d00f8)", "at 0x7FEE1E1444A0>", "0xaaaac0011234\n", "0x7ffd0ec7615c"] {
            assert!(holds_an_address(text.as_bytes()), "{text}");
        }
        for text in
            ["0x55", "0x0000559cff9d00f8", "0x7fee1e1444a0f", "0x123456789abc", "0x7f_ee1e1444a0", "\0 0x7ffd0ec7615c"]
        {
            assert!(!holds_an_address(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn printed_ids_are_searched_in_texts() {
        let printed = VolatileIds { printed: HashSet::from([b"4711".to_vec()]), ..VolatileIds::default() };
        assert!(printed.is_in(b"id 4711\n") && !printed.is_in(b"\0 4711") && !printed.is_in(b"\x1f\x8b\x08"));
    }

    #[test]
    fn inodes_are_searched_alone() {
        let inodes = VolatileIds { inodes: HashSet::from([b"1234567".to_vec()]), ..VolatileIds::default() };
        assert!(inodes.is_in(b"at 1234567") && !inodes.is_in(b"\0 4711") && inodes.is_in(b"\x1f\x8b\x08\0"));
    }
}
