//! The errors of a store, and the fallback that each is counted as.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use larder_model::{DecodeError, Digest, Fallback};

/// An error of the store. None of them makes a build fail.
#[derive(Debug)]
pub enum StoreError {
    /// A file operation failed.
    Io {
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
        /// True if the operation was part of writing something.
        writing: bool,
    },
    /// A file of the store cannot be decoded.
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong with its bytes.
        source: DecodeError,
    },
    /// The bytes of a blob do not have the digest that names it.
    BlobDamaged(Digest),
    /// A record needs this blob, and it does not exist.
    BlobMissing(Digest),
    /// The directory is not safe to use.
    Unsafe {
        /// The path of the directory.
        path: PathBuf,
        /// In which way it is unsafe.
        why: &'static str,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Io { path, source, .. } => write!(f, "{}: {source}", path.display()),
            StoreError::Damaged { path, source } => write!(f, "{}: {source}", path.display()),
            StoreError::BlobDamaged(digest) => write!(f, "blob {digest}: its bytes have another digest"),
            StoreError::BlobMissing(digest) => write!(f, "blob {digest} is missing"),
            StoreError::Unsafe { path, why } => write!(f, "{}: {why}: {}", path.display(), mend(why, path)),
        }
    }
}

/// There is no `source`, because each message includes the error that caused it.
impl Error for StoreError {}

impl StoreError {
    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.to_owned(), source, writing: false }
    }

    /// Makes an error for a failed read of a blob.
    pub(crate) fn reading_blob(path: &Path, digest: Digest) -> impl FnOnce(io::Error) -> StoreError {
        move |source| match source.kind() {
            io::ErrorKind::NotFound => StoreError::BlobMissing(digest),
            _ => StoreError::reading(path)(source),
        }
    }

    pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.to_owned(), source, writing: true }
    }

    /// Makes an error for a failed write to `path`, which need not be in the store.
    pub fn writing_to(path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { path: path.to_owned(), source, writing: true }
    }

    /// Returns true if retrying cannot help: the file system is read-only, or permission is denied.
    pub fn refuses_writing(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let refuses = |source: &io::Error| matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem);
        matches!(self, StoreError::Io { source, writing: true, .. } if refuses(source))
    }

    /// Returns the fallback that this error is counted as.
    pub fn fallback(&self) -> Fallback {
        match self {
            StoreError::Io { source, writing: true, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Fallback::StoreFull,
                _ => Fallback::StoreUnwritable,
            },
            StoreError::Io { .. } => Fallback::StoreUnusable,
            StoreError::Damaged { .. } | StoreError::BlobDamaged(_) => Fallback::Damaged,
            StoreError::BlobMissing(_) => Fallback::BlobMissing,
            StoreError::Unsafe { .. } => Fallback::StoreUnsafe,
        }
    }
}

/// Returns what the user can do about an unsafe directory.
fn mend(why: &str, path: &Path) -> String {
    match why {
        "others than its owner can write to it" => {
            format!("run `chmod go-w {}`, or set LARDER_DIR to a directory of your own", path.display())
        }
        _ => "set LARDER_DIR to a directory of your own, or remove this path".to_owned(),
    }
}
