//! The local files that make up an image, and the mapping of the owners of its files.

use std::path::{Path, PathBuf};

/// The local files of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// An EROFS image with the metadata. If files have data outside of the metadata, a second file
    /// is the EROFS device that holds it.
    Erofs {
        /// The path of the EROFS image.
        metadata: PathBuf,
        /// The path of the data device, or `None` if there is no such device.
        data: Option<PathBuf>,
    },
    /// A squashfs file.
    Squashfs(PathBuf),
}

impl Image {
    /// Returns the file that identifies the image: the metadata of EROFS, or the whole squashfs
    /// file.
    pub fn first_file(&self) -> &Path {
        match self {
            Image::Erofs { metadata, .. } => metadata,
            Image::Squashfs(file) => file,
        }
    }
}

/// A map from the owners that an image stores to the owners that a mount shows. An owner in no
/// range is shown as the kernel's overflow user (65534 by default). Its files cannot be given to
/// another user or written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Ranges of user IDs: (first ID stored, first ID shown, number of IDs).
    pub users: Vec<(u32, u32, u32)>,
    /// Ranges of group IDs: (first ID stored, first ID shown, number of IDs).
    pub groups: Vec<(u32, u32, u32)>,
}

impl Owners {
    /// Maps one stored user and group to one shown user and group. For example, `(0, 0)` and
    /// `(1000, 1000)` show root's files as those of user 1000.
    pub fn one(stored: (u32, u32), seen: (u32, u32)) -> Owners {
        Owners { users: vec![(stored.0, seen.0, 1)], groups: vec![(stored.1, seen.1, 1)] }
    }

    /// Returns true if every owner is shown as it is stored.
    pub fn is_plain(&self) -> bool {
        self.users.iter().chain(&self.groups).all(|(stored, seen, _)| stored == seen)
    }
}
