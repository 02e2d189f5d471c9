//! Errors of images. The messages say what to do, if the user can do something. They contain that
//! of the inner error, so there is no `source`.

use std::io;
use std::path::{Path, PathBuf};

use larder_model::{DecodeError, Digest};
use larder_store::StoreError;

/// An error of an image. If saving fails, nothing is saved. If restoring fails, the target is
/// unchanged, except for [`ImageError::LeftAside`].
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file operation failed.
    #[error("{}: cannot {doing}: {error}", path.display())]
    Io {
        /// The operation, as it follows "cannot" in the message.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operation.
        error: io::Error,
    },
    /// The path changed while it was saved.
    #[error("{}: it changed while it was saved; save again when nothing writes there", .0.display())]
    Changed(PathBuf),
    /// A path of a kind that an image cannot hold.
    #[error("{}: it is {what}, which an image cannot hold; remove it, or save its siblings only", path.display())]
    Unsuitable {
        /// The path.
        path: PathBuf,
        /// Its kind, for example "a block device".
        what: &'static str,
    },
    /// A path that is not allowed in a record.
    #[error("{}: an image cannot have this path; write it without `..` after a name", .0.display())]
    Name(PathBuf),
    /// Something exists where the image was to be restored.
    #[error("{}: something exists there already; remove it, or use --replace", .0.display())]
    InTheWay(PathBuf),
    /// Existing files were moved aside and could not be moved back.
    #[error("{why}; what existed before is now at {}; move it back", old.display())]
    LeftAside {
        /// The error because of which it had to be moved back.
        why: Box<ImageError>,
        /// Where it is now.
        old: PathBuf,
    },
    /// A part of an image is damaged.
    #[error("the image's {what}: {why}")]
    Damaged {
        /// The part.
        what: &'static str,
        /// What is wrong with it.
        why: DecodeError,
    },
    /// The bytes of a pack do not have its digest.
    #[error("pack {0}: its bytes have another digest")]
    PackDamaged(Digest),
    /// A pack is missing.
    #[error("pack {0} is missing")]
    PackMissing(Digest),
    /// More than an image can hold. The text is the limit.
    #[error("an image holds at most {0}")]
    TooLarge(&'static str),
    /// An error of the store.
    #[error("{0}")]
    Store(StoreError),
    /// An error of the source of packs, of compression, or missing memory.
    #[error("{0}")]
    Source(String),
    /// An archive cannot be read or written, or cannot hold something.
    #[error("{}: {why}", path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl From<StoreError> for ImageError {
    fn from(error: StoreError) -> Self {
        ImageError::Store(error)
    }
}

impl ImageError {
    /// For `map_err`: says which operation on which path failed.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> ImageError {
        move |error| ImageError::Io { doing, path: path.to_owned(), error: error.into() }
    }

    /// Returns an error that there is not enough memory for something.
    pub(crate) fn no_memory(what: &str) -> ImageError {
        ImageError::Source(format!("there is not enough memory for {what}"))
    }

    /// Returns an error of an archive.
    pub(crate) fn archive(path: &Path, why: String) -> ImageError {
        ImageError::Archive { path: path.to_owned(), why }
    }

    /// Replaces the path `made` by `to`: a temporary name by the name that the file will have.
    pub(crate) fn named(self, made: &Path, to: &Path) -> ImageError {
        let renamed = |path: PathBuf| if path == made { to.to_owned() } else { path };
        match self {
            ImageError::Io { doing, path, error } => ImageError::Io { doing, path: renamed(path), error },
            ImageError::Archive { path, why } => ImageError::Archive { path: renamed(path), why },
            other => other,
        }
    }

    /// For `map_err`: says which part is damaged.
    pub(crate) fn damaged(what: &'static str) -> impl FnOnce(DecodeError) -> ImageError {
        move |why| ImageError::Damaged { what, why }
    }
}
