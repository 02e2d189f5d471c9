//! Errors of images. The messages say what to do, if the user can do something.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use larder_model::{DecodeError, Digest};
use larder_store::StoreError;

/// An error of an image. If saving fails, nothing is saved. If restoring fails, the target is
/// unchanged, except for [`ImageError::LeftAside`].
#[derive(Debug)]
pub enum ImageError {
    /// A file operation failed.
    Io {
        /// The operation, as it follows "cannot" in the message.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the operation.
        source: io::Error,
    },
    /// The path changed while it was saved.
    Changed(PathBuf),
    /// A path of a kind that an image cannot hold.
    Unsuitable {
        /// The path.
        path: PathBuf,
        /// Its kind, for example "a block device".
        what: &'static str,
    },
    /// A path that is not allowed in a record.
    Name(PathBuf),
    /// Something exists where the image was to be restored.
    InTheWay(PathBuf),
    /// Existing files were moved aside and could not be moved back.
    LeftAside {
        /// The error because of which it had to be moved back.
        why: Box<ImageError>,
        /// Where it is now.
        old: PathBuf,
    },
    /// A part of an image is damaged.
    Damaged {
        /// The part.
        what: &'static str,
        /// What is wrong with it.
        why: DecodeError,
    },
    /// The bytes of a pack do not have its digest.
    PackDamaged(Digest),
    /// A pack is missing.
    PackMissing(Digest),
    /// More than an image can hold. The text is the limit.
    TooLarge(&'static str),
    /// An error of the store.
    Store(StoreError),
    /// An error of the source of packs, of compression, or missing memory.
    Source(String),
    /// An archive cannot be read or written, or cannot hold something.
    Archive {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Compression is not built for this machine.
    NotHere,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Io { doing, path, source } => write!(f, "{}: cannot {doing}: {source}", path.display()),
            ImageError::Changed(path) => {
                write!(f, "{}: it changed while it was saved; save again when nothing writes there", path.display())
            }
            ImageError::Unsuitable { path, what } => {
                write!(
                    f,
                    "{}: it is {what}, which an image cannot hold; remove it, or save its siblings only",
                    path.display()
                )
            }
            ImageError::Name(path) => {
                write!(f, "{}: an image cannot have this path; write it without `..` after a name", path.display())
            }
            ImageError::InTheWay(path) => {
                write!(f, "{}: something exists there already; remove it, or use --replace", path.display())
            }
            ImageError::LeftAside { why, old } => {
                write!(f, "{why}; what existed before is now at {}; move it back", old.display())
            }
            ImageError::Damaged { what, why } => write!(f, "the image's {what}: {why}"),
            ImageError::PackDamaged(digest) => write!(f, "pack {digest}: its bytes have another digest"),
            ImageError::PackMissing(digest) => write!(f, "pack {digest} is missing"),
            ImageError::TooLarge(what) => write!(f, "an image holds at most {what}"),
            ImageError::Store(error) => error.fmt(f),
            ImageError::Source(why) => f.write_str(why),
            ImageError::Archive { path, why } => write!(f, "{}: {why}", path.display()),
            ImageError::NotHere => {
                f.write_str("images are not built for this machine: Linux on x86-64 or aarch64 is needed")
            }
        }
    }
}

/// No `source`, because the message contains that of the inner error.
impl Error for ImageError {}

impl From<StoreError> for ImageError {
    fn from(error: StoreError) -> Self {
        ImageError::Store(error)
    }
}

impl ImageError {
    /// For `map_err`: says which operation on which path failed.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> ImageError {
        move |error| ImageError::Io { doing, path: path.to_owned(), source: error.into() }
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
            ImageError::Io { doing, path, source } => ImageError::Io { doing, path: renamed(path), source },
            ImageError::Archive { path, why } => ImageError::Archive { path: renamed(path), why },
            other => other,
        }
    }

    /// For `map_err`: says which part is damaged.
    pub(crate) fn damaged(what: &'static str) -> impl FnOnce(DecodeError) -> ImageError {
        move |why| ImageError::Damaged { what, why }
    }
}
