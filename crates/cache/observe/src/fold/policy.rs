//! The rules of a fold that depend on the kind of command and on what is known of programs.
//!
//! Unaware of: events.

use larder_model::{Habit, Identity, Prior};

/// Returns what a program with these arguments may show of the answer of `uname`.
pub(super) type HostFieldsOf<'a> = dyn Fn(&[u8], &[u8]) -> Vec<u8> + 'a;

/// Returns what a program does in every run, from its file name, its arguments as in the `path2` of
/// an `EventKind::Start`, and its origin.
pub type HabitOf<'a> = dyn Fn(&[u8], &[u8], Origin) -> Habit + 'a;

/// The rules that depend on the kind of command. A program is given by its file name, without the
/// directory.
pub struct Policy<'a> {
    /// Returns true for programs that handle an existing output in a known way. That they look at
    /// it first is then no observation.
    pub replaces_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that unlink an existing output before they open it.
    pub unlinks_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that close an output before it is complete, and that may rename an
    /// existing output to a temporary name and write into it. For example, mold.
    pub rewrites_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that open an existing output, without reading it, before they
    /// unlink it.
    pub opens_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that add execute permission to what they made, such as linkers.
    pub adds_execute: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for variables that need no observation, because they are in the cache key or do
    /// not matter.
    pub variable_is_covered: &'a dyn Fn(&[u8]) -> bool,
    /// Returns the value of a variable in the environment that the command was started with.
    pub variable: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Returns true for known parts of compilers. They read variables only through libc's `getenv`.
    pub is_compiler_part: &'a dyn Fn(&[u8]) -> bool,
    /// Returns what a program does in every run, whatever its result.
    pub habit: &'a HabitOf<'a>,
    /// Returns true for a program, with its arguments, that examines the machine for a build by
    /// making programs and running them. For example, `configure`.
    pub configures: &'a dyn Fn(&[u8], &[u8]) -> bool,
    /// Returns what the program with these arguments may show of the answer of `uname`: letters as in
    /// `Seen::host`.
    pub host_fields: &'a HostFieldsOf<'a>,
    /// Returns true for paths in the standard library of a Python, which is given by its path.
    pub is_standard_library: &'a dyn Fn(&[u8], &[u8]) -> bool,
    /// Returns true for files with compiled code of the standard library of a Python that reads the
    /// clock once when it is imported, and keeps the time to itself.
    pub reads_clock_at_import: &'a dyn Fn(&[u8], &[u8]) -> bool,
    /// The path of the wrapper's own program. A nested wrapper reports what the results that it
    /// delivers rely on. Another program with the same file name does not.
    pub wrapper: &'a [u8],
    /// Returns what was in a file before the command ran, if that was noted.
    pub before: &'a dyn Fn(&Identity) -> Option<Prior>,
    /// Returns the target that a link at a path had before the command ran, if that was noted.
    pub target_before: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Returns true for files that people read when something went wrong. Times in them do not
    /// matter.
    pub is_log: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for paths that the command may write.
    pub may_write: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for paths at which a program keeps what only makes its next run faster, such as
    /// the sessions of rustc. What the run makes there is no output. If the run finds something
    /// there, it is refused.
    pub is_private: &'a dyn Fn(&[u8]) -> bool,
    /// Returns a path with links and `..` in its directory resolved, as the directory is at the end
    /// of the run.
    pub real: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// The first process of the command, which the observer's caller started.
    pub first_pid: Option<u32>,
    /// If true, random numbers and addresses are no refusal for a program that is not known to ask
    /// for them. The caller then compares the result with that of another run before it is served.
    pub chance_is_compared: bool,
}

/// The origin of a program of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command made the program, and a program for which [`Policy::configures`] holds started
    /// it. For example, `configure` runs the `conftest` that it has built.
    MadeToAsk,
    /// Any other origin.
    Other,
}
