//! Mounts as handles: a detached mount, and a mount that is attached to a directory.
//!
//! Unaware of: what is mounted.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use larder_sys::MountNumber;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::MountError;

/// A detached mount: it is attached to no directory, and the kernel removes it when this handle is
/// dropped. It can be used by its descriptor, passed to another process, or attached to a
/// directory.
#[derive(Debug)]
pub struct Mount {
    root: OwnedFd,
    /// The mount namespace that this mount was attached in so that it could be copied, which is
    /// only needed before Linux 6.15: see `copy`.
    room: Mutex<Option<OwnedFd>>,
}

/// A mount that is attached to a directory. It is unmounted when this handle is dropped, unless it
/// was kept.
#[derive(Debug)]
pub struct Placed {
    root: Option<OwnedFd>,
    target: PathBuf,
    /// The mount namespace that the mount is in, if it is not ours.
    namespace: Option<OwnedFd>,
}

impl Mount {
    /// Takes over a mount whose descriptor another process made and passed to us.
    pub fn passed(root: OwnedFd) -> Mount {
        Mount { root, room: Mutex::new(None) }
    }

    /// Returns the root directory of the mount.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns another mount of the same file system. Both share the page cache. Fails if the
    /// kernel refuses. It refuses if this process does not have the right to mount.
    pub fn another(&self) -> Result<Mount, MountError> {
        let error = |error| MountError::Path { path: PathBuf::from("/"), what: "a mount cannot be cloned", error };
        self.copy(self.root.as_fd()).map(Mount::passed).map_err(error)
    }

    /// Returns a mount that shows the subdirectory `name` of this mount. Fails if there is no such
    /// directory, or the kernel refuses.
    pub fn below(&self, name: &str) -> Result<Mount, MountError> {
        let error =
            |error| MountError::Path { path: PathBuf::from(name), what: "is not a directory of the image", error };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(&self.root, name, flags, Mode::empty()).map_err(|errno| error(errno.into()))?;
        self.copy(directory.as_fd()).map(Mount::passed).map_err(error)
    }

    /// Returns a detached copy of this mount, whose root is `directory` of this mount.
    ///
    /// Before Linux 6.15 the kernel copies a mount only if it is attached in the mount namespace of
    /// the calling thread; otherwise `open_tree` fails with EINVAL. In that case this mount is
    /// attached in a namespace that nothing else uses, and stays there. It can still be used by its
    /// descriptor, and it still ends when this handle is dropped or this process ends.
    pub(crate) fn copy(&self, directory: BorrowedFd) -> io::Result<OwnedFd> {
        let mut room = self.room.lock();
        let room = match &*room {
            Some(room) => room,
            None => match larder_sys::clone_mount(directory) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    room.insert(larder_sys::house_mount(&self.root)?)
                }
                done => return done,
            },
        };
        larder_sys::in_mount_namespace(room.as_fd(), || larder_sys::clone_mount(directory))
    }

    /// Returns a descriptor that can be attached to a directory: this mount if it is still
    /// detached, otherwise a copy of it.
    fn into_placeable(self) -> io::Result<OwnedFd> {
        let is_housed = self.room.lock().is_some();
        if is_housed { self.copy(self.root.as_fd()) } else { Ok(self.root) }
    }

    /// Attaches the mount to the directory `target`. The last component of the path must not be a
    /// symbolic link. Fails if there is no such directory, or this process may not mount there.
    pub fn place(self, target: &Path) -> Result<Placed, MountError> {
        let place =
            larder_sys::open_place(target).map_err(MountError::path(target, "is not a directory to mount on"))?;
        self.place_on(place.as_fd(), target)
    }

    /// Attaches the mount to an open directory. `target` is its path, which is used in messages.
    /// Fails if this process may not mount there.
    pub fn place_on(self, place: BorrowedFd, target: &Path) -> Result<Placed, MountError> {
        let root = self.into_placeable().map_err(MountError::path(target, "cannot be mounted on"))?;
        larder_sys::place_mount(&root, place).map_err(MountError::path(target, "cannot be mounted on"))?;
        Ok(Placed { root: Some(root), target: target.to_owned(), namespace: None })
    }

    /// Attaches the mount to the open directory `place` in another mount namespace, of which
    /// `namespace` is a descriptor. `target` is the path of the directory, which is used in
    /// messages. Fails if this process may not mount there, or if the directory is not in that
    /// namespace.
    pub fn place_inside(self, namespace: OwnedFd, place: BorrowedFd, target: &Path) -> Result<Placed, MountError> {
        let root = self.into_placeable().map_err(MountError::path(target, "cannot be mounted on"))?;
        let placed = larder_sys::in_mount_namespace(namespace.as_fd(), || larder_sys::place_mount(&root, place));
        placed.map_err(MountError::path(target, "cannot be mounted on"))?;
        Ok(Placed { root: Some(root), target: target.to_owned(), namespace: Some(namespace) })
    }
}

impl Placed {
    /// The path that the mount was attached to.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Returns the root directory of the mount.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.root.as_ref().expect("only methods that consume the handle take the root").as_fd()
    }

    /// Returns the number by which the kernel identifies the mount. Fails before Linux 5.8.
    pub fn number(&self) -> Result<MountNumber, MountError> {
        let what = "its mount has no number (Linux 5.8 is needed)";
        larder_sys::mount_number(self.descriptor()).map_err(MountError::path(&self.target, what))
    }

    /// Leaves the mount in place when this handle is dropped.
    pub fn keep(mut self) {
        self.root = None;
    }

    /// Unmounts now. Fails if the kernel refuses. For example, another process may have unmounted
    /// or moved the mount.
    pub fn take_away(mut self) -> Result<(), MountError> {
        let root = self.root.take().expect("only methods that consume the handle take the root");
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
        // An error is ignored: if another process has unmounted it already, the aim is reached.
        self.root.take().iter().for_each(|root| drop(self.unmount(root)));
    }
}
