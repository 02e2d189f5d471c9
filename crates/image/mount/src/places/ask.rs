//! A request to mount an image.

use std::os::fd::BorrowedFd;
use std::path::Path;

use super::lease::Lease;
use crate::{Backend, Image, Life, Mount, Owners};

/// A request to mount an image.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The name of the image, which is listed and which a later broker finds it by.
    pub name: &'a str,
    /// The user that the mount belongs to.
    pub user: u32,
    /// The files of the image.
    pub image: &'a Image,
    /// The empty directory to mount on.
    pub target: &'a Path,
    /// The mount of the image, if it is mounted already: shared by all jobs of a machine, or filled
    /// while it is read (`Lazy::mount`). Then `image` is only recorded.
    pub layer: Option<&'a Mount>,
    /// The backend to mount by. It is never `Unpack`, and `Lazy` and `LazyFuse` need a `layer`.
    pub via: Backend,
    /// True if the mount is writable. What is written is deleted with the mount.
    pub writable: bool,
    /// The owners to show, if they are not those of the image.
    pub owners: Option<&'a Owners>,
    /// How long the mount stays.
    pub lease: Lease,
    /// How long a program runs that is started for the mount. With `Life::AsThread`, a program
    /// makes the mount writable if the kernel cannot.
    pub life: Life,
    /// True to mount even if the directory is not empty.
    pub over: bool,
    /// The mount namespace to mount in, if it is not ours.
    pub inside: Option<Inside<'a>>,
}

/// A directory in another mount namespace. `Ask::target` is then only used as its name.
#[derive(Clone, Copy, Debug)]
pub struct Inside<'a> {
    /// A descriptor of the mount namespace.
    pub namespace: BorrowedFd<'a>,
    /// The namespace's name as the kernel shows it: `mnt:[4026531841]`.
    pub name: &'a str,
    /// The target directory, which a process in that namespace has opened.
    pub place: BorrowedFd<'a>,
}
