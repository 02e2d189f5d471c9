//! Parses a command line into an [`Invocation`], or returns the reason (a `Bypass`) why larder does
//! not cache it.
//!
//! larder observes while the tool runs what the result depends on. So the tables of flags need not
//! be complete to be right. They say which commands larder handles, and which source and output to
//! name in messages. Three answers are part of the cache key:
//! 1. which environment variables are keyed before the tool runs,
//! 2. whether the tool may query the processor's features, which no observer can see,
//! 3. whether the tool reads its standard input.
//!
//! The crate also holds what larder knows about other programs. `programs` says what each does in
//! every run. `words` and `own_process` find words that show that a script reads clocks, process
//! ids or hash seeds.
//!
//! Unaware of: files (the caller reads response files), processes, the store, and how a tool is
//! observed.
#![forbid(unsafe_code)]

mod binutils;
mod depfile;
mod environment;
mod flag;
mod hidden;
mod language;
mod names;
mod naming;
mod own_process;
mod parse;
mod programs;
mod provable;
mod python;
mod repeats;
mod response;
mod rust;
mod table;
mod text_decides;
mod words;
mod zsh;

mod gcc {
    pub(crate) mod flags;
}
mod clang {
    pub(crate) mod flags;
}

#[cfg(test)]
mod tests;

pub use binutils::{archive, binutils_input};
pub use environment::{
    differs_between_jobs, environment, environment_of_libc, getenv_is_covered, is_left_out, is_of_job, is_search_path,
    is_search_path_of_compilers, matters_on_terminal_only, search_paths, variable_asks_for_statistics,
};
pub use hidden::{
    VARIABLES_WITH_ARGUMENTS, arguments_of_configuration, arguments_of_variable, named_configurations, too_hard,
};
pub use language::is_source;
pub use names::{
    adds_execute, family_of, is_masquerade_name, opens_output, replaces_output, rewrites_output, unlinks_output,
};
pub use naming::{Naming, naming};
pub use own_process::{OwnProcess, Signs, holds_own_process, own_process};
pub use parse::parse;
pub use programs::{
    LISTS_VARIABLES, Language, SERVED, Told, compares_no_dates, configures, habit, has_cmake_rules, host_fields,
    is_build_tool, is_compiler_part, is_config_status, is_in_no_order, is_known_program, is_log, is_ninjas,
    is_plain_system_script, is_rule_hashes, is_rustc, is_shell, lists_targets, may_load_plugins, runs_meson,
    runs_no_script, shows_what_it_searches, starts_others, unpacks,
};
pub use provable::depfile_plan;
pub use python::{draws_numbers, is_standard_library, reads_clock_at_import, source_of_bytecode};
pub use repeats::without_repeats;
pub use response::ResponseFiles;
pub use rust::{
    CrateKind, REMAP, Rust, RustPaths, are_same_members, crate_kind, rust, rust_paths, words_before_options,
};
pub use table::{
    alters_text, header_path, is_for_linker, load_plugins, loads_plugin, may_alter_text, only_preprocesses,
    runs_other_code, searched_directory, writes_dependencies,
};
pub use text_decides::{VARIABLES_BESIDE_TEXT, text_decides};
pub use words::{
    AWK_WORDS, CLOCK_WORDS, CMAKE_MEMORY_WORDS, DATE_WORDS, DIRECTORY_BEFORE, HASH_WORDS, LIST_OF_VARIABLES,
    MEMORY_WORDS, Named, OWN_MEMORY_WORDS, PERL_CLOCK_WORDS, PERL_HASH_WORDS, ROFF_WORDS, SHELL_TIME_WORDS, TIME_WORDS,
    compiled_names_other_processes, computes_search_paths, is_makefile, lists_shell_variables, names_cmake_clocks,
    names_inodes, names_other_processes, names_shell_clocks, names_shell_status, names_sizes, names_times_in_perl,
    shows_ignored_signals, times_commands,
};
pub use zsh::names_zsh_clocks;

/// The set of rules that applies to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// GCC, including a compiler called `cc` or `c++`.
    Gcc,
    /// Clang.
    Clang,
    /// An assembler, linker, archiver or another of the binutils, started directly.
    Binutils,
    /// A program whose name looks like a compiler's but is neither GCC nor Clang, for example a
    /// script around one.
    Generic,
    /// Any command started with `larder run`.
    Command,
    /// rustc, and clippy's driver.
    Rustc,
}

impl Family {
    /// All families. Counters are kept by position in this order, so new ones are added at the end.
    pub const ALL: [Family; 6] =
        [Family::Gcc, Family::Clang, Family::Binutils, Family::Generic, Family::Command, Family::Rustc];

    /// Returns the family's name as the key of an Action contains it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gcc => "gcc",
            Family::Clang => "clang",
            Family::Binutils => "binutils",
            Family::Rustc => "rustc",
            Family::Generic => "generic",
            Family::Command => "command",
        }
    }

    /// Returns true for GCC and Clang, which understand the same command lines.
    pub fn is_gcc_or_clang(self) -> bool {
        matches!(self, Family::Gcc | Family::Clang)
    }

    /// Returns true if the key contains all environment variables except a documented list, because
    /// a script can read its environment unobserved. For the other families, it contains only the
    /// variables on the family's list.
    pub fn keys_whole_environment(self) -> bool {
        matches!(self, Family::Generic | Family::Command)
    }
}

/// A command whose result can be cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The rules by which the command line was parsed.
    pub family: Family,
    /// How far the command goes.
    pub stage: Stage,
    /// The first source, or else the first other file, as written on the command line. Empty if
    /// there is none.
    pub source: Vec<u8>,
    /// The output if the command line names it, or if there is exactly one source whose default
    /// output is known.
    pub output: Option<Vec<u8>>,
    /// The depfile, if the command asks for one and its path is known.
    pub depfile: Option<Vec<u8>>,
    /// True if the tool may query the features of the processor, for example because of
    /// `-march=native`.
    pub asks_processor: bool,
    /// Tells whether standard input is an input.
    pub standard_input: StandardInput,
}

impl Invocation {
    /// Returns the invocation of a command that names no files and reads no standard input.
    pub(crate) fn of(family: Family) -> Invocation {
        Invocation {
            family,
            stage: Stage::End,
            source: Vec::new(),
            output: None,
            depfile: None,
            asks_processor: false,
            standard_input: StandardInput::Unread,
        }
    }
}

/// How far a command goes. This decides which programs a compiler driver starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Stops before an object file is made, as with `-E` or `-S`.
    Early,
    /// Makes object files (`-c`).
    Object,
    /// Goes to the end: a compiler links, and any other command does all that it does.
    End,
}

/// What a command does with its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardInput {
    /// It does not read it.
    Unread,
    /// It reads all of it, unless it fails earlier.
    Read,
    /// Not known. If standard input cannot be read without waiting, it is treated as not read.
    Perhaps,
    /// Not known. If standard input cannot be read without waiting, the command is bypassed.
    Unknown,
}
