//! Where a broker's images come from.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Fill, Image, Rung};

/// Finds images by name, for a user. Only what this process made itself from bytes that it verified: files that a
/// client could have written would be parsed by the kernel with all its rights. They have no device files and no
/// attributes but `user.`: a job that is the superuser of its own namespace may lift `nodev` and `nosuid` there.
pub trait Supply: Send + Sync {
    /// The image of that name, as far as `user` may have it; or why not, for people.
    fn image(&self, user: u32, name: &str) -> Result<Supplied, String>;
}

/// An image's local files, and what is to be known of them.
pub struct Supplied {
    /// The same for the same files: an image is mounted once for all that ask.
    pub id: String,
    /// Its files.
    pub image: Image,
    /// By which rung: never `Unpack` or `Fuse`.
    pub via: Rung,
    /// User and group that its files belong to, which are to be the client's.
    pub stored: (u32, u32),
    /// For `Lazy`: where its data comes from.
    pub lazily: Option<Lazily>,
}

/// How an image's data is filled.
pub struct Lazily {
    /// Where what belongs to that is kept.
    pub directory: PathBuf,
    /// Of the whole data file.
    pub size_bytes: u64,
    /// Who brings it.
    pub fill: Arc<dyn Fill>,
    /// What earlier jobs touched, in their order.
    pub order: Vec<Range<u64>>,
}
