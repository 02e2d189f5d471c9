//! From a command line as typed to an [`Invocation`] or a reason to leave it alone.
//!
//! What a result depends on is observed while the tool runs, so nothing here has to be complete to be right: the tables
//! of flags say which commands are ours, and what to call their source and output in messages. Three answers matter
//! for the key: which variables of the environment it holds early, whether the tool may ask the processor, which
//! no observer sees, and whether it reads its standard input.
//!
//! Unaware of: files (a response file is read by the caller), processes, the store, and how a tool is observed.
#![forbid(unsafe_code)]

mod binutils;
mod depfile;
mod environment;
mod language;
mod names;
mod naming;
mod own_process;
mod parse;
mod programs;
mod provable;
mod repeats;
mod response;
mod table;
mod words;

mod gcc {
    pub(crate) mod flags;
}
mod clang {
    pub(crate) mod flags;
}

#[cfg(test)]
mod tests;

pub use binutils::{archive, binutils_input};
pub use environment::{environment, environment_of_libc, getenv_is_covered, is_left_out, matters_on_terminal_only};
pub use language::is_source;
pub use names::{
    adds_execute, family_of, is_masquerade_name, opens_output, replaces_output, rewrites_output, unlinks_output,
};
pub use naming::{Naming, naming};
pub use own_process::{OwnProcess, Signs, holds_own_process, own_process};
pub use parse::parse;
pub use programs::{
    LISTS_VARIABLES, Language, Named, SERVED, Told, configures, habit, is_build_tool, is_compiler_part,
    is_config_status, is_in_no_order, is_log, is_ninjas, is_shell, runs_meson, runs_no_script, starts_others, unpacks,
};
pub use provable::{Shape, provable};
pub use repeats::without_repeats;
pub use response::ResponseFiles;
pub use words::{
    AWK_WORDS, CLOCK_WORDS, DATE_WORDS, DIRECTORY_BEFORE, HASH_WORDS, LIST_OF_VARIABLES, MEMORY_WORDS,
    PERL_CLOCK_WORDS, PERL_HASH_WORDS, ROFF_WORDS, SHELL_TIME_WORDS, TIME_WORDS, compiled_names_other_processes,
    is_makefile, lists_shell_variables, names_cmake_clocks, names_inodes, names_other_processes, names_shell_clocks,
    names_shell_status, times_commands,
};

/// Which rules apply to a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// GCC, or what calls itself `cc`.
    Gcc,
    /// Clang.
    Clang,
    /// Assembler, linker, archiver and their kin, called directly.
    Binutils,
    /// Named like a compiler but neither: perhaps a script around one.
    Generic,
    /// Any command, by `larder run`.
    Command,
}

impl Family {
    /// As an Action's key holds it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gcc => "gcc",
            Family::Clang => "clang",
            Family::Binutils => "binutils",
            Family::Generic => "generic",
            Family::Command => "command",
        }
    }

    /// Which part of the environment its key holds.
    pub fn environment_rule(self) -> EnvironmentRule {
        match self {
            Family::Gcc | Family::Clang | Family::Binutils => EnvironmentRule::Listed,
            Family::Generic | Family::Command => EnvironmentRule::Whole,
        }
    }
}

/// Which variables of the environment are keyed before anything was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvironmentRule {
    /// The family's list.
    Listed,
    /// All but a documented list: a script reads its environment unseen.
    Whole,
}

/// A command whose result can be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Whose rules it was read by.
    pub family: Family,
    /// How far it goes.
    pub stage: Stage,
    /// The first source, or else the first file, as named on the command line; empty where none is named.
    pub source: Vec<u8>,
    /// The output, where the command line names one or one source makes one of a known name.
    pub output: Option<Vec<u8>>,
    /// The file of dependencies, where one is asked for and its name is known.
    pub depfile: Option<Vec<u8>>,
    /// Whether the depfile lists system headers (`-MD`) or not (`-MMD`).
    pub depfile_has_system_headers: bool,
    /// Whether the tool may ask the processor what it can do.
    pub asks_processor: bool,
    /// Whether what stands on standard input is an input.
    pub standard_input: StandardInput,
    /// Which variables are keyed.
    pub environment: EnvironmentRule,
}

/// How far a command goes, and so which programs it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not to an object file.
    Early,
    /// To object files.
    Object,
    /// To the end: a compiler links, another command does what it does.
    End,
}

/// What a command does with its standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardInput {
    /// It leaves it alone.
    Unread,
    /// It reads all of it, unless it fails before.
    Read,
    /// Nobody knows, and it is left alone where nothing stands there that could be looked at.
    Perhaps,
    /// Nobody knows.
    Unknown,
}
