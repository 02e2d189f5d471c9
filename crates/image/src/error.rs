//! What can go wrong with an image, and what to do about it.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use larder_model::{DecodeError, Digest};
use larder_store::StoreError;

/// Trouble with an image. Nothing is saved, and nothing is left where it was to be restored.
#[derive(Debug)]
pub enum ImageError {
    /// A file operation failed.
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What was saved changed meanwhile.
    Changed(PathBuf),
    /// Something that an image cannot hold.
    Unsuitable {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// A path that no record may have.
    Name(PathBuf),
    /// There is something where the image was to go.
    InTheWay(PathBuf),
    /// What was there before could not be put back.
    LeftAside {
        /// Why it was to be put back.
        why: Box<ImageError>,
        /// Where it is.
        old: PathBuf,
    },
    /// Part of an image is not what it should be.
    Damaged {
        /// Which part.
        what: &'static str,
        /// How.
        why: DecodeError,
    },
    /// The bytes of a pack are not those of its digest.
    PackDamaged(Digest),
    /// A pack cannot be had.
    PackMissing(Digest),
    /// More than an image can hold.
    TooLarge(&'static str),
    /// The store has trouble of its own.
    Store(StoreError),
    /// Where packs come from there is trouble.
    Source(String),
    /// An archive is in trouble, or cannot hold something.
    Archive {
        /// Which.
        path: PathBuf,
        /// Why.
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
                write!(f, "{}: changed while it was saved: save when nothing writes there", path.display())
            }
            ImageError::Unsuitable { path, what } => {
                write!(
                    f,
                    "{}: is {what}, which an image cannot hold: remove it, or save what lies beside it",
                    path.display()
                )
            }
            ImageError::Name(path) => {
                write!(f, "{}: a record with this path is refused: write it without `..` behind a name", path.display())
            }
            ImageError::InTheWay(path) => {
                write!(f, "{}: there is something already: remove it, or say --replace", path.display())
            }
            ImageError::LeftAside { why, old } => {
                write!(f, "{why}; what was there before is in {}: move it back", old.display())
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

/// Each says itself what it came from.
impl Error for ImageError {}

impl From<StoreError> for ImageError {
    fn from(error: StoreError) -> Self {
        ImageError::Store(error)
    }
}

impl ImageError {
    /// For `map_err`: what was being done to which path.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> ImageError {
        move |error| ImageError::Io { doing, path: path.to_owned(), source: error.into() }
    }

    /// There is no memory for something.
    pub(crate) fn no_memory(what: &str) -> ImageError {
        ImageError::Source(format!("there is not enough memory for {what}"))
    }

    /// Why an archive cannot be read or written.
    pub(crate) fn archive(path: &Path, why: String) -> ImageError {
        ImageError::Archive { path: path.to_owned(), why }
    }

    /// The same of a file by the name that it will have.
    pub(crate) fn named(self, made: &Path, to: &Path) -> ImageError {
        let renamed = |path: PathBuf| if path == made { to.to_owned() } else { path };
        match self {
            ImageError::Io { doing, path, source } => ImageError::Io { doing, path: renamed(path), source },
            ImageError::Archive { path, why } => ImageError::Archive { path: renamed(path), why },
            other => other,
        }
    }

    /// For `map_err`: which part is damaged.
    pub(crate) fn damaged(what: &'static str) -> impl FnOnce(DecodeError) -> ImageError {
        move |why| ImageError::Damaged { what, why }
    }
}
