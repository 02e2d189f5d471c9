//! What [`load`](crate::load()) may read, and the source of a value.
//!
//! Unaware of: the settings.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// What [`load`](crate::load()) may read.
pub struct Surroundings<'a> {
    /// The environment, as names and values.
    pub env: &'a [(OsString, OsString)],
    /// Reads a file: all of it, or slightly more than
    /// [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) bytes. It should not block
    /// on a pipe or device.
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
    /// Returns the home directory from the password database. Called at most once, and only if
    /// `HOME` is not an absolute path and the home directory is needed.
    pub home: &'a dyn Fn() -> Option<PathBuf>,
    /// The directory of the wrapper's file. If the wrapper was started by a symbolic link, the
    /// directory of the link's target.
    pub wrapper_dir: Option<&'a Path>,
    /// The working directory. The project's file is expected here, not in a parent. Relative paths
    /// in the environment start here.
    pub cwd: Option<&'a Path>,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The default.
    Default,
    /// A default that depends on the home directory in the password database.
    PasswordDatabase,
    /// This variable, or a default that depends on it (`HOME`, `XDG_CACHE_HOME`).
    Environment(&'static str),
    /// This file.
    File {
        /// The path.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
}
