//! Mounts as handles: made, placed, taken away when dropped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use larder_sys::MountNumber;
use rustix::fs::{Mode, OFlags, openat};

use crate::MountError;

/// A mount that is nowhere yet: dropped, it is gone. It can be used by descriptor, passed to others, or given a place.
#[derive(Debug)]
pub struct Mount {
    root: OwnedFd,
    /// The mount namespace that it is in, if it had to be copied before Linux 6.15: see `copy`.
    room: Mutex<Option<OwnedFd>>,
}

const EINVAL: i32 = 22;

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
        Mount { root, room: Mutex::new(None) }
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
        self.copy(self.root.as_fd()).map(Mount::passed).map_err(error)
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
        self.copy(directory.as_fd()).map(Mount::passed).map_err(error)
    }

    /// A copy of this mount, which is nowhere yet, with a directory of it as the copy's root.
    ///
    /// Before Linux 6.15 the kernel copies a mount only if that has a place among the mounts of the thread that asks, and
    /// says EINVAL else. Then this mount gets a place in a namespace that nothing else uses, and stays there: it can
    /// still be used by descriptor, and it is still gone once this handle is, or this process.
    pub(crate) fn copy(&self, directory: BorrowedFd) -> io::Result<OwnedFd> {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let room = match &*room {
            Some(room) => room,
            None => match larder_sys::clone_mount(directory) {
                Err(error) if error.raw_os_error() == Some(EINVAL) => room.insert(larder_sys::house_mount(&self.root)?),
                done => return done,
            },
        };
        larder_sys::in_mount_namespace(room.as_fd(), || larder_sys::clone_mount(directory))
    }

    /// Its root, if it is nowhere yet; a copy of it, if it has a place already.
    fn into_placeable(self) -> io::Result<OwnedFd> {
        let is_housed = self.room.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_housed { self.copy(self.root.as_fd()) } else { Ok(self.root) }
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
        let root = self.into_placeable().map_err(MountError::path(target, "cannot be mounted on"))?;
        larder_sys::place_mount(&root, place).map_err(MountError::path(target, "cannot be mounted on"))?;
        Ok(Placed { root: Some(root), target: target.to_owned(), namespace: None })
    }

    /// The same among the mounts of others, of which `namespace` is a descriptor: the directory must be one of theirs.
    ///
    /// # Errors
    ///
    /// Where we may not do that, or the directory is not among those mounts.
    pub fn place_inside(self, namespace: OwnedFd, place: BorrowedFd, target: &Path) -> Result<Placed, MountError> {
        let root = self.into_placeable().map_err(MountError::path(target, "cannot be mounted on"))?;
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

    /// How the kernel calls it.
    ///
    /// # Errors
    ///
    /// Before Linux 5.8.
    pub fn number(&self) -> Result<MountNumber, MountError> {
        let what = "its mount has no number (Linux 5.8 is needed)";
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
