//! The interface by which a broker gets images. Its caller implements it.
//!
//! Unaware of: how an image is found, made or fetched.

use std::any::Any;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::lazy::{Prepare, Trace};
use crate::{Backend, Fill, Image};

/// Called with the trace of an image's first reads, once it is complete.
pub type Traced = Arc<dyn Fn(&Trace) + Send + Sync>;

/// Finds images by name, for a user.
///
/// Only this process's user may be able to write the files that are returned, and the directories
/// above them. A client must not be able to write them, because the kernel parses them with all its
/// privileges. Their contents may come from a process without rights that decodes what remotes sent.
///
/// The images should hold no device files, and no attributes but `user.*`. A job that is root in its
/// own user namespace may remove `nodev` and `nosuid` from the mount.
pub trait Supply: Send + Sync {
    /// Returns the image of that name, if `user` may have it. The error is a text for users.
    fn image(&self, user: u32, name: &str) -> Result<Supplied, String>;

    /// Finds an image that an earlier broker mounted from the file `first`. Another image may have
    /// the name by now, which the caller checks.
    fn again(&self, user: u32, name: &str, _first: &Path) -> Result<Supplied, String> {
        self.image(user, name)
    }
}

/// The local files of an image, and how to mount it.
pub struct Supplied {
    /// Identifies the files. An image with the same identifier is mounted only once.
    pub id: String,
    /// The image's files.
    pub image: Image,
    /// The subdirectory of the image that is mounted, or `None` for the whole image.
    pub below: Option<&'static str>,
    /// The backend to mount it by, which is never `Unpack`.
    pub via: Backend,
    /// The user and group that own the files in the image. The mount shows the client's instead.
    pub stored: (u32, u32),
    /// Keeps the files from being evicted as long as it exists.
    pub lease: Arc<dyn Any + Send + Sync>,
    /// For `Backend::Lazy`: where the data comes from.
    pub lazily: Option<Lazily>,
    /// If the metadata is still being made: waits for it, and returns an error if that failed.
    pub ready: Option<Ready>,
}

/// Waits until something is made. The error is a text for users.
pub type Ready = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// How an image's data is filled.
pub struct Lazily {
    /// The directory for the state of the filling, such as its journal.
    pub directory: PathBuf,
    /// The size of the complete data file, in bytes.
    pub size_bytes: u64,
    /// Fetches the data.
    pub fill: Arc<dyn Fill>,
    /// Prepares the metadata for lazy reads.
    pub prepare: Prepare,
    /// The ranges that earlier jobs read, in the order of their first reads.
    pub order: Vec<Range<u64>>,
    /// If a trace of the first minute is wanted: called with it. Then each first read is a request
    /// for that long, even if all data is local.
    pub traced: Option<Traced>,
}
