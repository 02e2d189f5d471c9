//! Which files make an image, and whom its files belong to.

use std::path::{Path, PathBuf};

/// The local files of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// Metadata as an EROFS image, and the file that it names as its device with the bytes of files, if it has one.
    Erofs {
        /// The EROFS image.
        metadata: PathBuf,
        /// Its data device.
        data: Option<PathBuf>,
    },
    /// A squashfs file.
    Squashfs(PathBuf),
}

impl Image {
    /// The file by which it is known: its metadata, or all of it.
    pub fn first_file(&self) -> &Path {
        match self {
            Image::Erofs { metadata, .. } => metadata,
            Image::Squashfs(file) => file,
        }
    }
}

/// Owners as an image has them, and as they are to be seen, ranges of numbers at a time. What is in no range is seen as
/// the kernel's overflow user, and cannot be given away or written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Of users: (as stored, as seen, how many).
    pub users: Vec<(u32, u32, u32)>,
    /// Of groups, likewise.
    pub groups: Vec<(u32, u32, u32)>,
}

impl Owners {
    /// One user and one group as stored, seen as these.
    pub fn one(stored: (u32, u32), seen: (u32, u32)) -> Owners {
        Owners { users: vec![(stored.0, seen.0, 1)], groups: vec![(stored.1, seen.1, 1)] }
    }

    /// Whether nothing is seen otherwise than it is stored.
    pub fn is_plain(&self) -> bool {
        self.users.iter().chain(&self.groups).all(|(stored, seen, _)| stored == seen)
    }
}
