//! Mounts as handles: made, placed, taken away when dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};

use crate::MountError;

/// A mount that is nowhere yet: dropped, it is gone. It can be used by descriptor, passed to others, or given a place.
#[derive(Debug)]
pub struct Mount {
    root: OwnedFd,
}

/// A mount that has its place: dropped, it is taken away from there, unless it was kept.
#[derive(Debug)]
pub struct Placed {
    root: Option<OwnedFd>,
    target: PathBuf,
    /// Whose mounts it is among, where they are not ours.
    namespace: Option<OwnedFd>,
}

impl Mount {
    /// One that somebody else made and passed.
    pub fn passed(root: OwnedFd) -> Mount {
        Mount { root }
    }

    /// Its root directory.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Another mount of the same file system: the memory for what was read is shared.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses, as it does without rights.
    pub fn another(&self) -> Result<Mount, MountError> {
        let error = |error| MountError::Path { path: PathBuf::from("/"), what: "a mount cannot be cloned", error };
        Ok(Mount { root: larder_sys::clone_mount(&self.root).map_err(error)? })
    }

    /// What is shown by a directory of it, as a mount of its own.
    ///
    /// # Errors
    ///
    /// Where there is no such directory, or the kernel refuses.
    pub fn below(&self, name: &str) -> Result<Mount, MountError> {
        let error = |error| MountError::Path { path: PathBuf::from(name), what: "is no directory of an image", error };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&self.root, name, flags, Mode::empty()).map_err(|errno| error(errno.into()))?;
        Ok(Mount { root: larder_sys::clone_mount(&directory).map_err(error)? })
    }

    /// Give it a place on the directory `target`, of which the last component must not be a link.
    ///
    /// # Errors
    ///
    /// Where there is no such directory, or we may not mount there.
    pub fn place(self, target: &Path) -> Result<Placed, MountError> {
        let place = larder_sys::open_place(target).map_err(MountError::path(target, "is no directory to mount on"))?;
        self.place_on(place.as_fd(), target)
    }

    /// Give it a place on an open directory, called `target` in messages.
    ///
    /// # Errors
    ///
    /// Where we may not mount there.
    pub fn place_on(self, place: BorrowedFd, target: &Path) -> Result<Placed, MountError> {
        larder_sys::place_mount(&self.root, place).map_err(MountError::path(target, "cannot be mounted on"))?;
        Ok(Placed { root: Some(self.root), target: target.to_owned(), namespace: None })
    }

    /// The same among the mounts of others, of which `namespace` is a descriptor: the directory must be one of theirs.
    ///
    /// # Errors
    ///
    /// Where we may not do that, or the directory is not among those mounts.
    pub fn place_inside(self, namespace: OwnedFd, place: BorrowedFd, target: &Path) -> Result<Placed, MountError> {
        let root = self.root;
        let placed = larder_sys::in_mount_namespace(namespace.as_fd(), || larder_sys::place_mount(&root, place));
        placed.map_err(MountError::path(target, "cannot be mounted on"))?;
        Ok(Placed { root: Some(root), target: target.to_owned(), namespace: Some(namespace) })
    }
}

impl Placed {
    /// Where it is.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Its root directory.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.root.as_ref().expect("only taken by what consumes it").as_fd()
    }

    /// What the kernel calls it, by which no other mount can be taken for it.
    ///
    /// # Errors
    ///
    /// Before Linux 6.8.
    pub fn number(&self) -> Result<u64, MountError> {
        let what = "its mount has no number of its own (Linux 6.8 is needed)";
        larder_sys::mount_number(self.descriptor()).map_err(MountError::path(&self.target, what))
    }

    /// Leave it mounted when this handle is gone.
    pub fn keep(mut self) {
        self.root = None;
    }

    /// Take it away now.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses: it may have been taken away, or moved, by others.
    pub fn take_away(mut self) -> Result<(), MountError> {
        let root = self.root.take().expect("only taken by what consumes it");
        self.unmount(&root).map_err(MountError::path(&self.target, "cannot be unmounted"))
    }

    fn unmount(&self, root: &OwnedFd) -> io::Result<()> {
        match &self.namespace {
            Some(namespace) => larder_sys::in_mount_namespace(namespace.as_fd(), || larder_sys::unmount(root)),
            None => larder_sys::unmount(root),
        }
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // What others unmounted already is away, which is all that is wanted.
        self.root.take().iter().for_each(|root| drop(self.unmount(root)));
    }
}
