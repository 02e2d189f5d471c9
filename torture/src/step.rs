//! One step of a case: a change, a command with its environment, and what is expected of it.
//!
//! Unaware of: how it is run.

use crate::change::{Change, nothing};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::PathBuf;

/// The command of a step.
#[derive(Clone)]
pub enum Line {
    /// A tool that is run through the cache: `larder WORDS`.
    Tool(Vec<String>),
    /// Any command: `larder run -- WORDS`. It is not run with caches that do not support this.
    Any(Vec<String>),
    /// A shell script that uses these variables: `$CC` and `$CXX`, the compilers with the cache in
    /// front; `$WRAP`, the cache as a prefix of a tool; `$RUN`, the cache as a prefix of any
    /// command; `$MASQ`, a directory of masquerading links.
    Script(String),
}

impl Line {
    /// Returns true if it calls the cache through a variable.
    pub fn uses_variables(&self) -> bool {
        match self {
            Line::Script(_) => true,
            Line::Any(words) => words.iter().any(|word| word.contains("$WRAP")),
            Line::Tool(_) => false,
        }
    }

    /// Returns true for a compile that writes a depfile with system headers, which larder's depfile
    /// observer needs.
    pub fn asks_for_depfile(&self) -> bool {
        matches!(self, Line::Tool(words) if words.iter().any(|word| word == "-MD"))
    }
}

/// A command, and the environment that a step can vary.
#[derive(Clone)]
pub struct How {
    /// The command.
    pub line: Line,
    /// The working directory, below the root.
    pub cwd: PathBuf,
    /// Variables to set, or to remove (`None`).
    pub env: Vec<(String, Option<OsString>)>,
    /// The text of standard input, or `None` for `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// The rows and columns of a terminal for all three streams.
    pub tty: Option<(u16, u16)>,
    /// Shell text that is run before: `umask 077`, `ulimit -f 1`, `exec 1>&-`.
    pub prelude: Option<String>,
}

/// The expectation for a step's run through the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Hit and miss are both right.
    Any,
    /// It should hit.
    Hit,
    /// It must not hit, because the earlier runs do not determine the result.
    Fresh,
}

/// The processes that a signal is sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// The whole process group of the command, as a terminal does.
    Group,
    /// Only the process that the caller started.
    Leader,
}

/// Damage to a cache before the run through it.
#[derive(Clone)]
pub enum Spoil {
    /// Changes the bytes of every file in the store.
    Bytes(fn(&mut Vec<u8>)),
    /// Runs a shell script in the directory that holds the store. `$STORE` is the store, and
    /// `$CACHE` the cache's program.
    Shell(&'static str),
    /// Kills the cache's server, if there is one.
    KillServer,
}

/// The state of a cache's directory before the cache is first called.
#[derive(Clone)]
pub enum Prepare {
    /// A shell script makes it at the path `$STORE`.
    Shell(&'static str),
    /// A file system of its own, mounted with these options of `mount`. If the flag is true, it is
    /// filled up.
    Mounted(&'static [&'static str], bool),
}

/// A step of a case.
#[derive(Clone)]
pub struct Step {
    /// The name of the step in reports.
    pub label: String,
    /// The change of the files before both runs.
    pub change: Change,
    /// The command.
    pub how: How,
    /// The expectation for the run through the cache.
    pub expect: Expect,
    /// True if the next step begins with what this one left.
    pub keep: bool,
    /// True if there is no plain run, because only the effect on the cache matters.
    pub unchecked: bool,
    /// Damage to the cache before the run through it.
    pub spoil: Option<Spoil>,
    /// A signal that is sent when the command has made the file `busy`.
    pub kill: Option<(Signal, Whom)>,
    /// True if standard output is not compared.
    pub any_stdout: bool,
    /// True if standard error is not compared.
    pub any_stderr: bool,
}

impl Step {
    /// Makes a step without a change and without expectations.
    pub fn new(label: &str, how: &How) -> Self {
        Self {
            label: label.to_owned(),
            change: nothing(),
            how: how.clone(),
            expect: Expect::Any,
            keep: false,
            unchecked: false,
            spoil: None,
            kill: None,
            any_stdout: false,
            any_stderr: false,
        }
    }
}

impl How {
    /// A command that does nothing, in the root.
    pub fn new() -> Self {
        let line = Line::Script(":".to_owned());
        Self { line, cwd: PathBuf::new(), env: Vec::new(), stdin: None, tty: None, prelude: None }
    }
}

impl Default for How {
    fn default() -> Self {
        Self::new()
    }
}

/// Splits a command line into words at spaces. Single quotes keep a word together. For example,
/// `a 'b c'` has two words.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' | '\n' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words("a  'b c'd ''"), ["a", "b cd", ""]);
    }
}
