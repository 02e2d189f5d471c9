//! What can go wrong with a store, and which fallback that is.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use larder_model::{DecodeError, Digest, Fallback};

/// Trouble with the store. None of it fails a build.
#[derive(Debug)]
pub enum StoreError {
    /// A file operation failed.
    Io {
        /// Of what.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// While writing.
        writing: bool,
    },
    /// A file is not what it should be.
    Damaged {
        /// Which.
        path: PathBuf,
        /// How.
        source: DecodeError,
    },
    /// A blob's bytes are not those of its name.
    BlobDamaged(Digest),
    /// A blob is named by a record and is not there.
    BlobMissing(Digest),
    /// The directory is not safe to use.
    Unsafe {
        /// Which.
        path: PathBuf,
        /// In what way.
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

/// Each says itself what it came from.
impl Error for StoreError {}

impl StoreError {
    pub(crate) fn reading(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.to_owned(), source, writing: false }
    }

    pub(crate) fn writing(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Io { path: path.to_owned(), source, writing: true }
    }

    /// Writing to `path`, which need not be in the store, failed.
    pub fn writing_to(path: &Path, source: io::Error) -> StoreError {
        StoreError::Io { path: path.to_owned(), source, writing: true }
    }

    /// Nothing may be written here, however often it is tried: a file system that is only read, or no permission.
    pub fn refuses_writing(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let refuses = |source: &io::Error| matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem);
        matches!(self, StoreError::Io { source, writing: true, .. } if refuses(source))
    }

    /// How it is counted.
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

/// What to do about an unsafe directory.
fn mend(why: &str, path: &Path) -> String {
    match why {
        "others than its owner can write to it" => {
            format!("run `chmod go-w {}`, or set LARDER_DIR to a directory of your own", path.display())
        }
        _ => "set LARDER_DIR to a directory of your own, or remove this".to_owned(),
    }
}
