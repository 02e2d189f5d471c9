//! What the name of a program says of its habits: what it asks the system for without its result depending on it.
//!
//! A program that is not listed is trusted with nothing: what it asks for may reach its result.
//!
//! Unaware of: where a program is, and what it really is.

use larder_model::{Habit, Times};

use crate::names::{replaces_output, stem, without_target};
use crate::{Family, family_of};

/// What a command says of itself, beyond its programs' names.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    /// A text of it holds one of [`TIME_WORDS`].
    pub times_are_named: bool,
    /// A text of it holds one of [`CLOCK_WORDS`].
    pub clocks_are_named: bool,
    /// A text of it holds one of [`HASH_WORDS`].
    pub hashes_are_named: bool,
    /// A text of it names what a process can read of its own memory.
    pub memory_is_named: bool,
    /// A text has a compiler compare the times of files (`#pragma GCC dependency`).
    pub dates_are_compared: bool,
    /// Whether a variable is set, and not to `random`.
    pub is_set: &'a dyn Fn(&[u8]) -> bool,
}

impl Told<'_> {
    /// Nothing at all.
    pub fn nothing() -> Told<'static> {
        Told {
            times_are_named: false,
            clocks_are_named: false,
            hashes_are_named: false,
            memory_is_named: false,
            dates_are_compared: false,
            is_set: &|_| false,
        }
    }
}

/// Of the program of this file name. `times_are_named` says that a text of the command holds one of [`TIME_WORDS`]: then
/// interpreters are not trusted with times.
pub fn habit(program: &[u8], told: Told) -> Habit {
    let Told { times_are_named, clocks_are_named, hashes_are_named, is_set, .. } = told;
    let is = |names: &[&str]| is_named(program, names);
    let strict = Habit {
        times: Times::Blind,
        clock_reads: 0,
        zone_reads: 0,
        random_reads: 0,
        sorts_names: false,
        tunes_memory: is(TUNES_MEMORY) && !told.memory_is_named,
        tries_terminal: false,
        names_at_random: false,
    };
    if is_compiler_part(program) {
        return Habit {
            clock_reads: u32::MAX,
            random_reads: u32::MAX,
            sorts_names: true,
            tunes_memory: true,
            times: if told.dates_are_compared { Times::Files } else { Times::Blind },
            ..strict
        };
    }
    let interpreted = |times| if times_are_named { Times::Status } else { times };
    if is(COPIERS) && !times_are_named {
        Habit { times: Times::Mode, ..strict }
    } else if is(BLIND) {
        strict
    } else if is(SHELLS) {
        // bash notes the time of its start, for $SECONDS, and seeds $RANDOM: three reads.
        let clock_reads = if times_are_named { 0 } else { 3 };
        Habit { times: interpreted(Times::Blind), clock_reads, sorts_names: true, tries_terminal: true, ..strict }
    } else if is(PYTHON) {
        // At its start it asks for the time, for what the zone is in winter and in summer, and for the seed of its hash
        // function (3.11).
        let clock_reads = if clocks_are_named { 0 } else { 1 };
        let random_reads = if is_set(b"PYTHONHASHSEED") || hashes_are_named { 0 } else { 1 };
        Habit { times: interpreted(Times::Inputs), clock_reads, zone_reads: 2, random_reads, ..strict }
    } else if is(PERL) && !clocks_are_named {
        // $^T is the time of its start; the seeds of its hash function are two reads (5.36).
        let random_reads = if is_set(b"PERL_HASH_SEED") || hashes_are_named { 0 } else { 2 };
        let clock_reads = if times_are_named { 0 } else { 1 };
        Habit { times: interpreted(Times::Inputs), clock_reads, random_reads, ..strict }
    } else if is(AWK) && !times_are_named {
        // It seeds rand() in every run.
        Habit { clock_reads: 2, random_reads: 1, ..strict }
    } else if is(NAMES_TEMPORARY_FILES) {
        Habit { names_at_random: true, ..strict }
    } else if is(SHOWS_STATUS) {
        // find and tar note the time of their start, for options that are among the words and for warnings.
        let clock_reads = if is(&["find", "tar"]) && !times_are_named { 1 } else { 0 };
        Habit { times: Times::Status, clock_reads, ..strict }
    } else {
        Habit { times: interpreted(Times::Files), ..strict }
    }
}

/// Words by which a script can get at the times of files, at the time of its start, and at random numbers that are
/// seeded in every run. Where a text that a command reads, or one of its arguments,
/// holds one, its interpreters count as programs that write down all that `stat` says.
#[rustfmt::skip]
pub const TIME_WORDS: &[&str] = &[
    "-nt", "-ot", "-ef", "-newer", "-mtime", "-mmin", "-N ",
    "mtime", "st_ctime", "st_atime", "os.stat", "stat(", "stat $", "stat \"", "stat _", "\x04stat", "lstat", "fstat", "scandir", "newer", "utime",
    "copystat", "copy2", "make_archive", "zipfile", "tarfile", "filecmp", "File::stat",
    "cp -u", "cp -au", "cp -vu", "cp -uv", "mv -u", "--update", "install -C", "--compare",
    ".owner(", ".group(", "$^T", "BASETIME", "-M $", "-M_", "-M$", "-M \"", "-M\"", "rand(", "rand;", "systime", "strftime", "RANDOM", "SECONDS", "EPOCH",
];

/// Words by which a script can get at clocks that many programs read for other reasons.
#[rustfmt::skip]
pub const CLOCK_WORDS: &[&str] = &[
    "monotonic", "perf_counter", "process_time", "getrusage", "clock_gettime", "resource.", "times()", "thread_time",
];

/// Words by which a script gets at an order or a number that hangs on the seed of a hash function, or on where something
/// lies in memory.
#[rustfmt::skip]
pub const HASH_WORDS: &[&str] = &[
    "hash(", " id(", "(id(", ",id(", "=id(", " set(", "(set(", "=set(", "frozenset(", "object()", "ctypes", "keys %", "keys(%", "each %", "each(%",
    "values %", "values(%",
];

/// Words by which a text gets at a process's own memory.
pub const MEMORY_WORDS: &[&str] = &["/proc/", "proc/self"];

/// By which a source has gcc and clang compare the times of two files.
pub const DATE_WORDS: &[&str] = &["GCC dependency", "clang dependency"];

/// Programs that write down all variables, known to us or not.
pub const LISTS_VARIABLES: &[&str] = &["env", "printenv"];

/// What build tools hand on to each other in variables that are left out of an unknown tool's key, by program.
pub const SERVED: &[(&str, &[&str])] = &[
    ("make", &["MAKEFLAGS", "MFLAGS", "MAKELEVEL"]),
    ("gmake", &["MAKEFLAGS", "MFLAGS", "MAKELEVEL"]),
    ("ninja", &["NINJA_STATUS"]),
    ("cargo", &["CARGO_MAKEFLAGS"]),
];

/// Words by which a script can get at the number of a process. Where a text holds one, and a result then holds such a
/// number, the result is another each time.
pub const PROCESS_WORDS: &[&str] = &[
    "$$",
    "$!",
    "getpid",
    "getppid",
    "getpgrp",
    "getpgid",
    "getsid",
    "gettid",
    "native_id",
    "BASHPID",
    "PPID",
    "process.pid",
];

/// Whether the program of this file name is a known part of a compiler. Those read the clock in every run without their
/// result depending on it, but for the dates that they make of it (gcc times its passes, and seeds names that it
/// promises nothing about), and ask libc for the variables that they use.
pub fn is_compiler_part(program: &[u8]) -> bool {
    let is = |names: &[&str]| is_named(program, names);
    let family = family_of(program);
    let binutils = family == Some(Family::Binutils) && !is(ARCHIVERS);
    replaces_output(program) || is(GCC_PARTS) || binutils || matches!(family, Some(Family::Gcc | Family::Clang))
}

/// By its own name, or without target and version: `lto1` and `m4` end in a digit that is none.
fn is_named(program: &[u8], names: &[&str]) -> bool {
    let base = without_target(stem(program));
    let file = program.rsplit(|&b| b == b'/').next().unwrap_or(program);
    names.iter().any(|name| name.as_bytes() == base || name.as_bytes() == file)
}

const GCC_PARTS: &[&str] =
    &["cc1", "cc1obj", "cc1objplus", "cc1plus", "collect2", "cpp", "f951", "g++-mapper-server", "lto-wrapper", "lto1"];

/// Those write the times and owners of the files that they put together, unless told not to.
const ARCHIVERS: &[&str] = &["ar", "gcc-ar", "gcc-ranlib", "llvm-ar", "llvm-ranlib", "ranlib"];

/// Their results come of contents and names alone.
#[rustfmt::skip]
const BLIND: &[&str] = &[
    "basename", "bison", "cat", "chmod", "cmp", "comm", "cut", "dirname", "echo", "egrep", "env", "expand", "expr",
    "false", "fgrep", "flex", "fmt", "fold", "gperf", "grep", "head", "hostname", "join", "lex", "m4",
    "md5sum", "mkdir", "nasm", "nl", "od", "paste", "pathchk", "pkg-config", "pkgconf", "printenv", "printf", "protoc",
    "pwd", "re2c", "readlink", "realpath", "rm", "rmdir", "seq", "sha1sum", "sha256sum", "sleep", "sort", "split",
    "tac", "tail", "tee", "tr", "true", "tsort", "tty", "uname", "unexpand", "uniq", "wc", "which", "xxd", "yacc", "yasm",
];
/// Those with a handler for a full stack (libsigsegv), and those that size themselves by what there is.
const TUNES_MEMORY: &[&str] = &[
    "bison", "cargo", "cmp", "diff", "egrep", "fgrep", "flex", "gawk", "grep", "java", "m4", "node", "rustc", "sed",
    "sort",
];
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];
const AWK: &[&str] = &["awk", "gawk", "mawk", "nawk", "original-awk"];
const PERL: &[&str] = &["perl"];
const PYTHON: &[&str] = &["pypy", "python"];
/// They compare times only when told to, by words that are among [`TIME_WORDS`].
const COPIERS: &[&str] = &["cp", "ginstall", "install", "ln", "mv", "sed"];
/// Random numbers end in names of temporary files.
const NAMES_TEMPORARY_FILES: &[&str] = &["mktemp", "tempfile"];
const SHOWS_STATUS: &[&str] =
    &["cpio", "du", "find", "gmake", "ls", "make", "ninja", "rsync", "samu", "stat", "tar", "test", "zip", "["];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits() {
        let check = |name: &str, named, expect| {
            let told = Told { times_are_named: named, ..Told::nothing() };
            assert_eq!(habit(name.as_bytes(), told).times, expect, "{name} {named}");
        };
        check("cc1plus", false, Times::Blind);
        check("lto1", false, Times::Blind);
        check("m4", false, Times::Blind);
        check("x86_64-linux-gnu-ld.bfd", true, Times::Blind);
        check("grep", true, Times::Blind);
        check("sed", false, Times::Mode);
        check("dash", false, Times::Blind);
        check("dash", true, Times::Status);
        check("python3.11", false, Times::Inputs);
        check("python3.11", true, Times::Status);
        check("make", false, Times::Status);
        check("ar", false, Times::Files);
        check("mygenerator", false, Times::Files);
        let told = Told { is_set: &|name| name == b"PYTHONHASHSEED", ..Told::nothing() };
        assert_eq!(habit(b"cc1", told).clock_reads, u32::MAX);
        assert_eq!(habit(b"mygenerator", told).clock_reads, 0);
        assert_eq!(habit(b"python3", told).random_reads, 0);
    }
}
