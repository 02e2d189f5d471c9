//! Errors of making and reading records.

use std::io;
use std::path::PathBuf;

/// The reason why a record cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A system call failed.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// There is no header.
    #[error("{path}: no record: there is no record.json in it (`larder record list` lists all records)",
        path = .path.display())]
    NoRecord {
        /// The path that was searched.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("{path}, line {line}: {error}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The parse error.
        error: serde_json::Error,
    },
    /// A newer version of larder made it.
    #[error("{path}: its format is {found}, but this larder reads only formats up to {known}: use a newer larder",
        path = .path.display(), known = crate::schema::FORMAT)]
    Newer {
        /// The record.
        path: PathBuf,
        /// The format of the record.
        found: u32,
    },
    /// The command cannot be started.
    #[error("{command}: {error}")]
    NotStarted {
        /// The first word of the command.
        command: String,
        /// The error.
        error: io::Error,
    },
    /// The command of `--prepare` failed.
    #[error("`{command}` ended with {code}, so the run that it prepares was not started")]
    Prepare {
        /// The command, as it was given.
        command: String,
        /// The exit code.
        code: i32,
    },
    /// A packed record is too large.
    #[error("{path}: larger than {limit_bytes} bytes unpacked: it is not read", path = .path.display())]
    TooLarge {
        /// The record.
        path: PathBuf,
        /// The largest size that is read, in bytes.
        limit_bytes: u64,
    },
}

impl RecordError {
    /// Returns a function that makes an error about this path.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RecordError {
        let path = path.into();
        move |error| RecordError::Io { path, error }
    }
}
