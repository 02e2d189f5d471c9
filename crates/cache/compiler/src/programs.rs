//! Answers questions about programs by their file names.
//!
//! | file | what it answers |
//! |---|---|
//! | `table.rs` | which rules apply to a program |
//! | `habit.rs` | what a program asks of the system in every run |
//! | `arguments.rs`, `git.rs` | what its arguments say about that |
//! | this one | questions with a yes or a no, such as whether a program is a shell |
//!
//! A program that is not listed is not trusted: what it asks for may affect its result.
//!
//! Unaware of: where a program is, and what it really is.

mod arguments;
mod git;
mod habit;
mod table;

pub use self::arguments::runs_meson;
pub use self::habit::{Told, habit};
use larder_model::path::file_name;
use larder_model::{HOST_FIELDS, contains};

use self::table::{Archives, Rule};
use crate::names::{is_named, replaces_output, rewrites_output};
use crate::{Family, family_of};

/// A language whose scripts are read by its own interpreter only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Python.
    Python,
    /// Perl.
    Perl,
    /// awk.
    Awk,
    /// CMake.
    CMake,
}

impl Language {
    /// The number of languages.
    pub const COUNT: usize = 4;

    /// Returns the language that the program with this file name interprets.
    pub fn of(program: &[u8]) -> Option<Language> {
        match table::rule(program) {
            Rule::Python => Some(Language::Python),
            Rule::Perl => Some(Language::Perl),
            Rule::Awk => Some(Language::Awk),
            Rule::CMake => Some(Language::CMake),
            _ => None,
        }
    }
}

/// Returns true if a program with this file name mostly starts other programs, and lives as long as
/// they do.
pub fn starts_others(program: &[u8]) -> bool {
    matches!(table::rule(program), Rule::Shell | Rule::Build | Rule::CMake | Rule::Python | Rule::Perl)
}

/// Returns true if this program with these arguments configures a build: it builds small programs
/// and runs them to learn about the machine. Such programs are autoconf's `configure`, CMake and
/// Meson.
pub fn configures(program: &[u8], arguments: &[&[u8]]) -> bool {
    let script = || arguments.iter().find(|argument| !argument.starts_with(b"-"));
    let name = || script().map(|script| file_name(script));
    match table::rule(program) {
        Rule::CMake => true,
        Rule::Shell => name() == Some(b"configure"),
        Rule::Python => arguments::runs_meson(arguments),
        _ => false,
    }
}

/// Returns the fields of the answer of `uname` that a program of the system may show: letters of
/// [`HOST_FIELDS`]. A shell only needs the name of the host, for its prompt and the variable
/// `HOSTNAME`.
pub fn host_fields(program: &[u8], arguments: Option<&[&[u8]]>) -> Vec<u8> {
    if is_shell(program) {
        return b"n".to_vec();
    }
    let (b"uname", Some(words)) = (file_name(program), arguments) else { return HOST_FIELDS.to_vec() };
    let mut fields = Vec::new();
    for word in words {
        let letters: &[u8] = match *word {
            b"--kernel-name" => b"s",
            b"--nodename" => b"n",
            b"--kernel-release" => b"r",
            b"--kernel-version" => b"v",
            b"--machine" | b"--processor" | b"--hardware-platform" => b"m",
            b"--operating-system" => b"o",
            [b'-', letters @ ..]
                if !letters.is_empty() && letters.iter().all(|letter| b"snrvmpio".contains(letter)) =>
            {
                letters
            }
            _ => return HOST_FIELDS.to_vec(),
        };
        fields.extend(letters.iter().map(|letter| if b"pi".contains(letter) { b'm' } else { *letter }));
    }
    // The name of the operating system is fixed when the program is made.
    let asks_only_system = fields.is_empty();
    fields.retain(|letter| *letter != b'o');
    if asks_only_system { b"s".to_vec() } else { fields }
}

/// Programs that print all environment variables, whatever their names.
pub const LISTS_VARIABLES: &[&str] = &["env", "printenv"];

/// Variables by which build tools pass settings to their children, by program. The key of an
/// unknown tool leaves these variables out.
pub const SERVED: &[(&str, &[&str])] = &[
    ("make", &["MAKEFLAGS", "MFLAGS", "MAKELEVEL"]),
    ("gmake", &["MAKEFLAGS", "MFLAGS", "MAKELEVEL"]),
    ("ninja", &["NINJA_STATUS"]),
    ("cargo", &["CARGO_MAKEFLAGS"]),
];

/// Returns true for a log that build systems write for people. It contains times, process ids and
/// names of temporary files, and no program uses it.
pub fn is_log(path: &[u8]) -> bool {
    LOGS.iter().any(|log| log.as_bytes() == file_name(path))
}

/// Returns true for ninja's database of the dependencies that compilers reported. It contains the
/// mtimes of outputs.
pub fn is_ninjas(path: &[u8]) -> bool {
    path == b".ninja_deps" || path.ends_with(b"/.ninja_deps")
}

/// Returns true for autoconf's `config.status`, a script with the values of variables, wrapped at a
/// fixed column.
pub fn is_config_status(path: &[u8]) -> bool {
    path == b"config.status" || path.ends_with(b"/config.status")
}

/// Returns true for the file in which CMake keeps hashes of the commands in its makefiles.
pub fn is_rule_hashes(path: &[u8]) -> bool {
    path.ends_with(b"CMakeFiles/CMakeRuleHashes.txt")
}

/// Returns true for the makefile of CMake that lists which targets depend on which. The order of
/// these differs in each run, because CMake keeps them in the order of memory addresses.
pub fn lists_targets(path: &[u8]) -> bool {
    path.ends_with(b"CMakeFiles/Makefile2")
}

/// Returns true for a makefile of CMake that holds such commands.
pub fn has_cmake_rules(path: &[u8]) -> bool {
    path.ends_with(b".dir/build.make")
}

/// Returns true for files in which Meson keeps its state. They are in the order of hash tables,
/// which differs in each run and means nothing to Meson.
pub fn is_in_no_order(path: &[u8]) -> bool {
    contains(path, "/meson-private/") || path.ends_with(b"/meson-info/intro-tests.json")
}

#[rustfmt::skip]
const LOGS: &[&str] = &[
    "config.log", "configure.log", "CMakeOutput.log", "CMakeError.log", "CMakeConfigureLog.yaml", "meson-log.txt",
    ".ninja_log",
];

/// Returns true if the program with this file name is a shell. In a process that a shell forks,
/// `$$` is still the id of the shell.
pub fn is_shell(program: &[u8]) -> bool {
    table::rule(program) == Rule::Shell
}

/// Returns true if the program with this file name decides by mtimes what to do, and has shells run
/// the commands that it reads.
pub fn is_build_tool(program: &[u8]) -> bool {
    table::rule(program) == Rule::Build
}

/// Returns true if the program with this file name runs no script, so no text can make it print its
/// process id.
pub fn runs_no_script(program: &[u8]) -> bool {
    let is_known = matches!(
        table::rule(program),
        Rule::Archiver
            | Rule::Blind
            | Rule::Copier
            | Rule::Date
            | Rule::Find
            | Rule::Ls
            | Rule::Status
            | Rule::Tar
            | Rule::TemporaryNames
            | Rule::Test
            | Rule::Touch
    );
    is_known || is_compiler_part(program)
}

/// Returns true if the program with this file name extracts files from archives. Their content can
/// usually not be read before.
pub fn unpacks(program: &[u8]) -> bool {
    table::find(program).is_some_and(|row| row.archives == Archives::Unpacks)
}

/// Returns true if the program with this file name is a known part of a compiler.
///
/// Such programs ask libc for the variables that they use. They read the clock in every run, but
/// except for `__DATE__` and similar macros their result does not depend on it. For example, gcc
/// times its passes, and seeds symbol names that it does not promise to keep.
pub fn is_compiler_part(program: &[u8]) -> bool {
    let rule = table::rule(program);
    let family = family_of(program);
    let binutils = family == Some(Family::Binutils) && rule != Rule::Archiver;
    replaces_output(program)
        || rewrites_output(program)
        || matches!(rule, Rule::CompilerPart | Rule::Rustc)
        || binutils
        || family.is_some_and(Family::is_gcc_or_clang)
}

/// Returns true for the parts of a compiler that never compare mtimes: rustc, assemblers, linkers and
/// the other tools for object files. gcc and clang do if a pragma says so.
pub fn compares_no_dates(program: &[u8]) -> bool {
    is_rustc(program) || family_of(program) == Some(Family::Binutils) && table::rule(program) != Rule::Archiver
}

/// Returns true if the program with this file name uses a search path such as `PATH` only if a text
/// of the command names it, if the program asks libc for it, or to find a program by `PATH`.
///
/// Returns false for interpreters other than shells, because their libraries are not searched for
/// names of variables.
pub fn shows_what_it_searches(program: &[u8]) -> bool {
    let lists = is_named(program, LISTS_VARIABLES);
    let is_other = matches!(
        table::rule(program),
        Rule::Unknown | Rule::CMake | Rule::Perl | Rule::Python | Rule::Rustc | Rule::Troff
    );
    is_compiler_part(program) && table::rule(program) != Rule::Rustc || !is_other && !lists
}

/// Returns true if larder knows the program with this file name.
pub fn is_known_program(program: &[u8]) -> bool {
    table::find(program).is_some() || is_compiler_part(program)
}

/// Returns true if this is a shell script of the system that uses `PATH` only to find programs.
pub fn is_plain_system_script(path: &[u8]) -> bool {
    const PLAIN: [&str; 7] = ["egrep", "fgrep", "gunzip", "ldd", "which", "which.debianutils", "zcat"];
    is_named(path, &PLAIN)
}

/// Returns true for compilers, which load the plugins that a command names (`-fplugin=`). Linkers
/// and archivers load the plugin for link-time optimisation, which is a part of the compiler.
pub fn may_load_plugins(program: &[u8]) -> bool {
    table::rule(program) == Rule::CompilerPart || family_of(program).is_some_and(Family::is_gcc_or_clang)
}

/// Returns true if the program with this file name is rustc. It runs procedural macros in its own
/// process, so its name alone says little about what it may do.
pub fn is_rustc(program: &[u8]) -> bool {
    table::rule(program) == Rule::Rustc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_uname_shows() {
        let check = |line: &str, expect: &str| {
            let words: Vec<&[u8]> = line.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes).collect();
            let found = host_fields(b"/usr/bin/uname", Some(&words));
            assert_eq!(String::from_utf8_lossy(&found), expect, "{line}");
        };
        check("", "s");
        check("-sm", "sm");
        check("-r -v", "rv");
        check("-o", "");
        check("-p", "m");
        check("--nodename", "n");
        for other in ["-a", "--all", "--node", "-x", "-", "x"] {
            check(other, "snrvmd");
        }
        assert_eq!(host_fields(b"/usr/bin/uname", None), b"snrvmd");
        assert_eq!(host_fields(b"/usr/bin/hostname", Some(&[])), b"snrvmd");
        assert_eq!(host_fields(b"/bin/bash", Some(&[])), b"n");
    }
}
