//! From a command line as typed to an [`Invocation`] or a reason to leave it alone.
//!
//! What a result depends on is observed while the tool runs, so nothing here has to be complete to be right: the tables
//! of flags say which commands are ours, and what to call their source and output in messages. Two answers matter
//! for the key: which variables of the environment it holds early, and whether the tool may ask the processor, which
//! no observer sees.
//!
//! Unaware of: files (a response file is read by the caller), processes, the store, and how a tool is observed.
#![forbid(unsafe_code)]

mod depfile;
mod environment;
mod language;
mod names;
mod parse;
mod provable;
mod response;
mod table;

mod gcc {
    pub(crate) mod flags;
}
mod clang {
    pub(crate) mod flags;
}

#[cfg(test)]
mod tests;

pub use environment::{environment, getenv_is_covered, matters_on_terminal_only};
pub use names::{family_of, is_compiler_part, is_masquerade_name, replaces_output, unlinks_output};
pub use parse::parse;
pub use provable::{Shape, provable};
pub use response::ResponseFiles;

/// Which rules apply to a compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// GCC, or what calls itself `cc`.
    Gcc,
    /// Clang.
    Clang,
    /// Named like a compiler but neither: perhaps a script around one.
    Generic,
}

impl Family {
    /// As an Action's key holds it.
    pub fn name(self) -> &'static str {
        match self {
            Family::Gcc => "gcc",
            Family::Clang => "clang",
            Family::Generic => "generic",
        }
    }

    /// Which part of the environment its key holds.
    pub fn environment_rule(self) -> EnvironmentRule {
        match self {
            Family::Gcc | Family::Clang => EnvironmentRule::Listed,
            Family::Generic => EnvironmentRule::Whole,
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

/// A command that compiles one source file to one object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Whose rules it was read by.
    pub family: Family,
    /// The source file, as named on the command line.
    pub source: Vec<u8>,
    /// The object file: of `-o`, or what `-c` makes in the working directory by default.
    pub output: Option<Vec<u8>>,
    /// The file of dependencies, where one is asked for and its name is known.
    pub depfile: Option<Vec<u8>>,
    /// Whether the depfile lists system headers (`-MD`) or not (`-MMD`).
    pub depfile_has_system_headers: bool,
    /// Whether the tool may ask the processor what it can do.
    pub asks_processor: bool,
    /// Which variables are keyed.
    pub environment: EnvironmentRule,
}
