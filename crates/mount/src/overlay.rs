//! What makes an image writable, and where what is written goes.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use larder_sys::{MountValue, new_mount, open_directory};
use rustix::fs::{Gid, Timespec, Timestamps, Uid};

use crate::layer::HARMLESS;
use crate::{Mount, MountError};

/// Names and values of extended attributes of a root directory, at most; more is more than a file system keeps.
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// Two directories of one mount: what was written, and what the kernel is about to write. Removed when dropped, unless
/// kept.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    kept: bool,
}

impl Scratch {
    /// Make them in `directory`, which is made.
    ///
    /// # Errors
    ///
    /// Where they cannot be made, or are there already.
    pub fn make(directory: &Path) -> Result<Scratch, MountError> {
        let made = || {
            fs::DirBuilder::new().recursive(true).create(directory)?;
            let scratch = Scratch { directory: directory.to_owned(), kept: false };
            [scratch.upper(), scratch.work()].iter().try_for_each(fs::create_dir)?;
            Ok(scratch)
        };
        made().map_err(MountError::path(directory, "what is written cannot be kept there"))
    }

    fn upper(&self) -> PathBuf {
        self.directory.join("upper")
    }

    fn work(&self) -> PathBuf {
        self.directory.join("work")
    }

    /// Leave them when this is dropped.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            let _ = remove_scratch(&self.directory);
        }
    }
}

/// Remove what `Scratch` made, and all that was written there.
pub(crate) fn remove_scratch(directory: &Path) -> io::Result<()> {
    // The kernel makes it without any rights, which keeps its owner out as well.
    let _ = fs::set_permissions(directory.join("work/work"), Permissions::from_mode(0o700));
    ["work", "upper"].iter().try_for_each(|name| match fs::remove_dir_all(directory.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    })
}

/// A writable mount of what `lower` shows: what is changed goes to `scratch`. In a user namespace of one's own as well,
/// if the lower mount's owners are known there.
///
/// # Errors
///
/// Where the kernel refuses: the file system of `scratch` must have extended attributes and not be an overlay itself.
pub fn overlay(lower: BorrowedFd, scratch: &Scratch) -> Result<Mount, MountError> {
    let refused = || MountError::refused(format!("an overlay that writes to {}", scratch.directory.display()));
    like(lower, &scratch.upper()).map_err(MountError::path(scratch.upper(), "cannot be made like the image's root"))?;
    let for_users = || {
        let made = match by_descriptor(lower, scratch, &FOR_USERS) {
            Err(error) if error.error.raw_os_error() == Some(EINVAL) => by_path(lower, scratch, &FOR_USERS),
            made => made,
        };
        made.map_err(refused())
    };
    // Without rights over the machine its marks must be a user's own attributes. Others are taken there as well, and
    // then a directory cannot be removed.
    if !larder_sys::is_of_first_users() {
        return for_users();
    }
    match by_descriptor(lower, scratch, &OPTIONS) {
        Err(error) if is_denied(&error.error) => for_users(),
        Err(error) if error.error.raw_os_error() == Some(EINVAL) => {
            by_path(lower, scratch, &OPTIONS).map_err(refused())
        }
        done => done.map_err(refused()),
    }
}

const EINVAL: i32 = 22;

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Nothing that a lower layer says of itself leads elsewhere, and nothing is waited for to reach the disk: what is
/// written is gone with the mount.
const OPTIONS: [(&str, MountValue); 3] = [
    ("redirect_dir", MountValue::Text(b"nofollow")),
    ("metacopy", MountValue::Text(b"off")),
    ("volatile", MountValue::Flag),
];
/// The same with a user's own attributes as marks, with which there are no redirections: Linux 5.11.
const FOR_USERS: [(&str, MountValue); 2] = [("volatile", MountValue::Flag), ("userxattr", MountValue::Flag)];

/// Layers by descriptor: Linux 6.13.
fn by_descriptor(
    lower: BorrowedFd,
    scratch: &Scratch,
    more: &[(&'static str, MountValue<'static>)],
) -> Result<Mount, larder_sys::MountRefused> {
    let at = |step: &str| {
        let step = step.to_owned();
        move |error| larder_sys::MountRefused { step, error, said: String::new() }
    };
    let lower = open_directory(lower).map_err(at("lowerdir"))?;
    let upper = fs::File::open(scratch.upper()).map_err(at("upperdir"))?;
    let work = fs::File::open(scratch.work()).map_err(at("workdir"))?;
    let mut options = vec![
        ("source", MountValue::Text(b"larder")),
        ("lowerdir+", MountValue::Descriptor(lower.as_fd())),
        ("upperdir", MountValue::Descriptor(upper.as_fd())),
        ("workdir", MountValue::Descriptor(work.as_fd())),
    ];
    options.extend(more.iter().copied());
    new_mount("overlay", &options, HARMLESS).map(Mount::passed)
}

/// Layers by path, for kernels before that: the lower one needs a place for a moment.
fn by_path(
    lower: BorrowedFd,
    scratch: &Scratch,
    more: &[(&'static str, MountValue<'static>)],
) -> Result<Mount, larder_sys::MountRefused> {
    let at = |step: &str| {
        let step = step.to_owned();
        move |error| larder_sys::MountRefused { step, error, said: String::new() }
    };
    let place = scratch.directory.join("lower");
    fs::create_dir(&place).map_err(at("lowerdir"))?;
    let placed = || {
        let target = larder_sys::open_place(&place)?;
        // Another mount, so that this one is still nowhere.
        let another = larder_sys::clone_mount(lower)?;
        larder_sys::place_mount(&another, &target).map(|()| another)
    };
    let another = placed().inspect_err(|_| drop(fs::remove_dir(&place))).map_err(at("lowerdir"))?;
    let (upper, work) = (scratch.upper(), scratch.work());
    let mut options = vec![
        ("source", MountValue::Text(b"larder")),
        ("lowerdir", MountValue::Text(place.as_os_str().as_bytes())),
        ("upperdir", MountValue::Text(upper.as_os_str().as_bytes())),
        ("workdir", MountValue::Text(work.as_os_str().as_bytes())),
    ];
    options.extend(more.iter().copied());
    let made = new_mount("overlay", &options, HARMLESS);
    // The overlay has its own hold on it.
    let _ = larder_sys::unmount(&another);
    let _ = fs::remove_dir(&place);
    made.map(Mount::passed)
}

/// The root of an overlay is as its upper directory is: make that as the image's root is.
fn like(image: BorrowedFd, upper: &Path) -> io::Result<()> {
    let root = open_directory(image)?;
    let upper = fs::File::open(upper)?;
    let look = rustix::fs::fstat(&root)?;
    copy_attributes(root.as_fd(), upper.as_fd());
    let (user, group) = (Uid::from_raw(look.st_uid), Gid::from_raw(look.st_gid));
    match rustix::fs::fchown(&upper, Some(user), Some(group)) {
        // Somebody without rights writes as they are: what they own is theirs.
        Ok(()) | Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    upper.set_permissions(Permissions::from_mode(look.st_mode & 0o7777))?;
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let last_modification = time(look.st_mtime as _, look.st_mtime_nsec as _);
    let times = Timestamps { last_access: time(look.st_atime as _, look.st_atime_nsec as _), last_modification };
    Ok(rustix::fs::futimens(&upper, &times)?)
}

/// Of attributes only those that anybody may set: the others are rights.
fn copy_attributes(from: BorrowedFd, to: BorrowedFd) {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let count = rustix::fs::flistxattr(from, names.as_mut_slice()).unwrap_or(0);
    for name in names[..count].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
        let done = rustix::fs::fgetxattr(from, name, value.as_mut_slice());
        let set = done.map(|count| rustix::fs::fsetxattr(to, name, &value[..count], rustix::fs::XattrFlags::empty()));
        // Not all file systems keep them; the image's own files are not concerned.
        let _ = set;
    }
}
