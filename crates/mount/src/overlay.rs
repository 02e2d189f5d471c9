//! What makes an image writable, and where what is written goes.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
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

    /// What the kernel shows as the source of the overlay, as others show a device. The name of the directory is in it,
    /// because no other mount has that.
    fn source(&self) -> String {
        source(&self.directory)
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

/// The source of an overlay that writes to this directory.
pub(crate) fn source(directory: &Path) -> String {
    source_of(directory.file_name().unwrap_or_default())
}

/// The source of an overlay that writes to a directory of this name.
pub(crate) fn source_of(name: &OsStr) -> String {
    format!("larder-{}", name.display())
}

/// Remove what `Scratch` made, and all that was written there: jobs decide how deep and how large that is.
pub(crate) fn remove_scratch(directory: &Path) -> io::Result<()> {
    ["work", "upper"].map(|name| larder_sys::remove_tree(&directory.join(name))).into_iter().collect()
}

/// A writable mount of what `lower` shows: what is changed goes to `scratch`. In a user namespace of one's own as well,
/// if the lower mount's owners are known there.
///
/// # Errors
///
/// Where the kernel refuses: the file system of `scratch` must have extended attributes and not be an overlay itself.
pub fn overlay(lower: &Mount, scratch: &Scratch) -> Result<Mount, MountError> {
    let refused = || MountError::refused(format!("an overlay that writes to {}", scratch.directory.display()));
    let alike = like(lower.descriptor(), &scratch.upper());
    alike.map_err(MountError::path(scratch.upper(), "cannot be made like the image's root"))?;
    let made = |options: &[(&'static str, MountValue<'static>)]| match by_descriptor(lower, scratch, options) {
        Err(refused) if wants_paths(&refused.error) => by_path(lower, scratch, options),
        done => done,
    };
    // Without rights over the machine its marks must be a user's own attributes. Others are taken there as well, and
    // then a directory cannot be removed.
    if !larder_sys::is_of_first_users() {
        return made(&FOR_USERS).map_err(refused());
    }
    match made(&OPTIONS) {
        Err(error) if is_denied(&error.error) => made(&FOR_USERS).map_err(refused()),
        done => done.map_err(refused()),
    }
}

const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Whether this is what a kernel answers that takes layers by path only. From 6.5 to 6.12 overlays know no option that is
/// a descriptor (EINVAL), and 6.13 and 6.14 may not take a layer that is mounted nowhere (EINVAL). Before 6.5 overlays
/// have options as text only (EOPNOTSUPP).
fn wants_paths(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
}

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

type Made = Result<Mount, larder_sys::MountRefused>;

fn at(step: &str) -> impl FnOnce(io::Error) -> larder_sys::MountRefused {
    let step = step.to_owned();
    move |error| larder_sys::MountRefused { step, error, said: String::new() }
}

/// Layers by descriptor: Linux 6.13, and 6.15 if the lower one is mounted nowhere.
fn by_descriptor(lower: &Mount, scratch: &Scratch, more: &[(&'static str, MountValue<'static>)]) -> Made {
    let lower = open_directory(lower.descriptor()).map_err(at("lowerdir"))?;
    let upper = fs::File::open(scratch.upper()).map_err(at("upperdir"))?;
    let work = fs::File::open(scratch.work()).map_err(at("workdir"))?;
    let source = scratch.source();
    let mut options = vec![
        ("source", MountValue::Text(source.as_bytes())),
        ("lowerdir+", MountValue::Descriptor(lower.as_fd())),
        ("upperdir", MountValue::Descriptor(upper.as_fd())),
        ("workdir", MountValue::Descriptor(work.as_fd())),
    ];
    options.extend(more.iter().copied());
    new_mount("overlay", &options, HARMLESS).map(Mount::passed)
}

/// Layers by path, for kernels before that. All of them must be among the mounts of the thread that makes the overlay:
///
/// 1. The lower mount is copied, so that `lower` itself stays where it is.
/// 2. A thread gets a copy of our mounts in a namespace of its own, which nobody else sees.
/// 3. It puts the copy of the lower mount there, on the directory of `scratch`, of which it has opened what it needs.
/// 4. It makes the overlay, which has its own hold on its layers, and ends; with it the namespace is gone.
///
/// The paths are those of descriptors, so that no byte of a name is taken for the end of a layer or of an option.
fn by_path(lower: &Mount, scratch: &Scratch, more: &[(&'static str, MountValue<'static>)]) -> Made {
    let copy = lower.copy(lower.descriptor()).map_err(at("lowerdir"))?;
    let made = larder_sys::in_private_mounts(|| {
        let layers = || {
            let (upper, work) = (larder_sys::open_place(&scratch.upper())?, larder_sys::open_place(&scratch.work())?);
            larder_sys::place_mount(&copy, larder_sys::open_place(&scratch.directory)?)?;
            Ok((upper, work))
        };
        let (upper, work) = match layers() {
            Ok(layers) => layers,
            Err(error) => return Ok(Err(at("a place for lowerdir")(error))),
        };
        let path = |of: BorrowedFd| format!("/proc/self/fd/{}", of.as_raw_fd());
        let (source, lower, upper, work) =
            (scratch.source(), path(copy.as_fd()), path(upper.as_fd()), path(work.as_fd()));
        let mut options = vec![
            ("source", MountValue::Text(source.as_bytes())),
            ("lowerdir", MountValue::Text(lower.as_bytes())),
            ("upperdir", MountValue::Text(upper.as_bytes())),
            ("workdir", MountValue::Text(work.as_bytes())),
        ];
        options.extend(more.iter().copied());
        Ok(new_mount("overlay", &options, HARMLESS).map(Mount::passed))
    });
    made.map_err(at("mounts of its own"))?
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
