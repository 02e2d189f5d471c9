//! Where a broker's images come from.

use std::any::Any;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::lazy::Trace;
use crate::{Fill, Image, Rung};

/// Is told what was touched of an image, once it is known.
pub type Traced = Arc<dyn Fn(&Trace) + Send + Sync>;

/// Finds images by name, for a user. Only what this process made itself from bytes that it verified: files that a
/// client could have written would be parsed by the kernel with all its rights. They have no device files and no
/// attributes but `user.`: a job that is the superuser of its own namespace may lift `nodev` and `nosuid` there.
pub trait Supply: Send + Sync {
    /// The image of that name, as far as `user` may have it; or why not, for people.
    fn image(&self, user: u32, name: &str) -> Result<Supplied, String>;

    /// The same of one that a broker before this one mounted from the file `first`, though another may have its name by
    /// now.
    fn again(&self, user: u32, name: &str, _first: &Path) -> Result<Supplied, String> {
        self.image(user, name)
    }
}

/// An image's local files, and what is to be known of them.
pub struct Supplied {
    /// The same for the same files: an image is mounted once for all that ask.
    pub id: String,
    /// Its files.
    pub image: Image,
    /// The directory of it that is mounted, where that is not all of it.
    pub below: Option<&'static str>,
    /// By which rung: never `Unpack`.
    pub via: Rung,
    /// User and group that its files belong to, which are to be the client's.
    pub stored: (u32, u32),
    /// As long as this is there, nobody removes the files.
    pub lease: Arc<dyn Any + Send + Sync>,
    /// For `Lazy`: where its data comes from.
    pub lazily: Option<Lazily>,
    /// Where its metadata is still being made: waits for that, and says why it cannot be had.
    pub ready: Option<Ready>,
}

/// Waits until something is made.
pub type Ready = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

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
    /// Who wants to know what is touched in the first minute; it is asked for that long, even where all is there.
    pub traced: Option<Traced>,
}
