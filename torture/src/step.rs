//! One step of a case: a change, a command with its surroundings, and what is expected of it.

use crate::change::{Change, nothing};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is run.
#[derive(Clone)]
pub enum Line {
    /// A tool that a cache stands in front of: `larder WORDS`.
    Tool(Vec<String>),
    /// Any command: `larder run -- WORDS`. Not asked of caches that have no such word.
    Any(Vec<String>),
    /// A shell script that uses `$CC`, `$CXX`, `$WRAP` (the cache before a tool), `$RUN` (the cache before any command)
    /// and `$MASQ` (a directory of masquerading links).
    Script(String),
}

impl Line {
    /// Whether it calls the cache by a variable.
    pub fn uses_variables(&self) -> bool {
        match self {
            Line::Script(_) => true,
            Line::Any(words) => words.iter().any(|word| word.contains("$WRAP")),
            Line::Tool(_) => false,
        }
    }

    /// A compile that asks for a depfile with system headers: what larder's depfile observer needs.
    pub fn asks_for_depfile(&self) -> bool {
        matches!(self, Line::Tool(words) if words.iter().any(|word| word == "-MD"))
    }
}

/// A command and all around it that a step can vary.
#[derive(Clone)]
pub struct How {
    /// The command.
    pub line: Line,
    /// Where it runs, below the root.
    pub cwd: PathBuf,
    /// Variables set, or taken away.
    pub env: Vec<(String, Option<OsString>)>,
    /// What it can read; without it `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// A terminal of so many rows and columns for all three streams.
    pub tty: Option<(u16, u16)>,
    /// Shell text before it: `umask 077`, `ulimit -f 1`, `exec 1>&-`.
    pub prelude: Option<String>,
}

/// What a good cache does at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// Whatever is right.
    Any,
    /// It hits.
    Hit,
    /// It must not: what ran before cannot tell what comes now.
    Fresh,
}

/// Whom a signal is sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// Every process of the command, as a terminal does.
    Group,
    /// The one process that the caller started.
    Leader,
}

/// Harm done to a cache before the run through it.
#[derive(Clone)]
pub enum Spoil {
    /// Every file of the store gets other bytes.
    Bytes(fn(&mut Vec<u8>)),
    /// A shell script in the store's directory; `$STORE` is that directory, `$CACHE` the cache's program.
    Shell(&'static str),
    /// The cache's server, where there is one, is killed.
    KillServer,
}

/// What a cache's directory is before the cache is first called.
#[derive(Clone)]
pub enum Prepare {
    /// Made by a shell script; `$STORE` is where it is to be.
    Shell(&'static str),
    /// A file system of its own, with these options of `mount`, full if so wished.
    Mounted(&'static [&'static str], bool),
}

/// What differs between plain and cached runs of a step is found; this is what is asked for.
#[derive(Clone)]
pub struct Step {
    /// What is printed.
    pub label: String,
    /// Done to the files before both runs.
    pub change: Change,
    /// What is run.
    pub how: How,
    /// What a good cache does.
    pub expect: Expect,
    /// The next step begins with what this one left.
    pub keep: bool,
    /// Only for its effect on the cache: there is no plain run.
    pub unchecked: bool,
    /// Harm done to the cache.
    pub spoil: Option<Spoil>,
    /// A signal sent when the command made the file `busy`.
    pub kill: Option<(Signal, Whom)>,
    /// Standard output is not compared.
    pub any_stdout: bool,
    /// Standard error is not compared.
    pub any_stderr: bool,
}

impl Step {
    /// A step that changes nothing and expects nothing.
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

/// A command line as words: blanks separate, single quotes hold together.
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
