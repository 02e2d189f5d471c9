//! Other platforms, which have no observer. Tools are started untouched, with the build's own
//! scheduling.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::Class;
use crate::pieces::copy_pieces;

/// The scheduling of a program. On these platforms it is always the parent's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedPolicy;

impl SchedPolicy {
    /// Returns the scheduling for a class, which changes nothing here.
    pub fn of(_class: Class, _cgroup: Option<&Path>) -> SchedPolicy {
        SchedPolicy
    }

    /// Returns true if a child has nothing to set.
    pub fn is_inherited(&self) -> bool {
        true
    }
}

/// Runs the program at `path`, and exits with its exit code. Returns only if the program cannot be
/// started.
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], _environment: &[Vec<u8>], _manner: &SchedPolicy) -> io::Error {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let arguments = argv.iter().skip(1).map(|argument| text(argument));
    match std::process::Command::new(text(path)).args(arguments).status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Copies `count` bytes from the start of `from` to the empty file `to`, whatever the read position
/// of `from` is. Returns how many bytes there were.
pub fn copy_bytes(from: &File, to: &File, count: u64) -> io::Result<u64> {
    copy_pieces(from, to, 0, count)
}
