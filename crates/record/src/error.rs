//! What can be wrong with a record.

use std::io;
use std::path::PathBuf;

/// Why a record cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refused.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// What it is about.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It has no header.
    #[error("{path}: no record: there is no record.json in it (`larder record list` names those there are)",
        path = .path.display())]
    NoRecord {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file of it is not what it should be.
    #[error("{path}, line {line}: {error}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// A larder of another version made it.
    #[error("{path}: its format is {found}, and this larder reads up to {known}: use a newer larder",
        path = .path.display(), known = crate::form::FORMAT)]
    Newer {
        /// The record.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The command cannot be started.
    #[error("{command}: {error}")]
    NotStarted {
        /// Its first word.
        command: String,
        /// Why.
        error: io::Error,
    },
    /// What comes before a run failed.
    #[error("`{command}` ended with {code}: the run that it prepares was not begun")]
    Prepare {
        /// As it was given.
        command: String,
        /// Its exit code.
        code: i32,
    },
    /// A record is larger than one that is read.
    #[error("{path}: larger than {limit_bytes} bytes unpacked: it is not read", path = .path.display())]
    TooLarge {
        /// The record.
        path: PathBuf,
        /// What is read at most.
        limit_bytes: u64,
    },
}

impl RecordError {
    /// Of a path.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RecordError {
        let path = path.into();
        move |error| RecordError::Io { path, error }
    }
}
