//! Platforms without an observer: tools are started untouched, as the build itself.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::Class;
use crate::pieces::copy_pieces;

/// How a program is scheduled: as its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manner;

impl Manner {
    /// Of a class, which changes nothing here.
    pub fn of(_class: Class, _cgroup: Option<&Path>) -> Manner {
        Manner
    }

    /// Whether a child has nothing to set.
    pub fn is_inherited(&self) -> bool {
        true
    }
}

/// Run the program at `path` and end as it ends. Returns only when it cannot be started.
pub fn run_and_end(path: &[u8], argv: &[Vec<u8>], _environment: &[Vec<u8>], _manner: &Manner) -> io::Error {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let arguments = argv.iter().skip(1).map(|argument| text(argument));
    match std::process::Command::new(text(path)).args(arguments).status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Copy `count` bytes from the start of `from`, wherever that was read to, to the empty file `to`. Returns how many there
/// were.
pub fn copy_bytes(from: &File, to: &File, count: u64) -> io::Result<u64> {
    copy_pieces(from, to, 0, count)
}

/// Remove the file, link or directory at `path` with all that is in it. It is no error if there is nothing.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
