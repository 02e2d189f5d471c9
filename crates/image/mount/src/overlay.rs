//! Makes an image writable by an overlay, and keeps what is written in scratch directories.
//!
//! Unaware of: which image is below, and where the mount is attached.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use larder_sys::{MountValue, new_mount, open_directory};
use rustix::fs::{Gid, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::layer::HARMLESS;
use crate::{Mount, MountError, fuse};

/// The limit for the names, and for one value, of extended attributes that are copied, in bytes. It
/// is also the kernel's limit for both.
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;

/// The upper and work directories of one overlay. They are removed when this is dropped, unless
/// they are kept.
#[derive(Debug)]
pub struct Scratch {
    directory: PathBuf,
    kept: bool,
}

impl Scratch {
    /// Makes the two directories in `directory`, which is created if it does not exist. Fails if
    /// they cannot be made, or exist already.
    pub fn make(directory: &Path) -> Result<Scratch, MountError> {
        let made = || {
            fs::DirBuilder::new().recursive(true).create(directory)?;
            let scratch = Scratch { directory: directory.to_owned(), kept: false };
            [scratch.upper(), scratch.work()].iter().try_for_each(fs::create_dir)?;
            Ok(scratch)
        };
        made().map_err(MountError::path(directory, "cannot be made for what is written"))
    }

    fn upper(&self) -> PathBuf {
        self.directory.join("upper")
    }

    fn work(&self) -> PathBuf {
        self.directory.join("work")
    }

    /// Returns the text that the kernel shows as the source of the overlay, where other mounts show
    /// a device. It holds the name of the scratch directory, so no other mount has the same source.
    fn source(&self) -> String {
        source(&self.directory)
    }

    /// Leaves the directories in place when this is dropped.
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

/// The source of an overlay whose scratch space is this directory.
pub(crate) fn source(directory: &Path) -> String {
    source_of(directory.file_name().unwrap_or_default())
}

/// The source of an overlay whose scratch directory has this name.
pub(crate) fn source_of(name: &OsStr) -> String {
    format!("larder-{}", name.display())
}

/// Removes what `Scratch::make` made, with everything that a job wrote there. The job decides how
/// deep and how large that is.
pub(crate) fn remove_scratch(directory: &Path) -> io::Result<()> {
    // `overlay_by_program` leaves two directories if it is killed.
    let [below, merged] = fuse::OVERLAY_PLACES;
    ["work", "upper", merged, below].map(|name| larder_sys::remove_tree(&directory.join(name))).into_iter().collect()
}

/// Returns a writable mount that shows `lower` and writes changes to `scratch`. It also works in a
/// user namespace, if the owners of the lower mount are mapped there. Fails if the kernel refuses.
/// The file system of `scratch` must support extended attributes, and must not be an overlay
/// itself.
pub fn overlay(lower: &Mount, scratch: &Scratch) -> Result<Mount, MountError> {
    let refused = || MountError::refused(format!("an overlay that writes to {}", scratch.directory.display()));
    let alike = like(lower.descriptor(), &scratch.upper());
    alike.map_err(MountError::path(scratch.upper(), "cannot get the attributes of the image's root"))?;
    let made = |options: &[(&'static str, MountValue<'static>)]| match by_descriptor(lower, scratch, options) {
        Err(refused) if wants_paths(&refused.error) => by_path(lower, scratch, options),
        done => done,
    };
    // Outside of the first user namespace, overlayfs must keep its marks in `user.*` attributes
    // (`userxattr`). The kernel mounts without that option as well, but then a directory in the
    // overlay cannot be removed.
    if !larder_sys::is_of_first_users() {
        return made(&FOR_USERS).map_err(refused());
    }
    match made(&OPTIONS) {
        Err(error) if is_denied(&error.error) => made(&FOR_USERS).map_err(refused()),
        done => done.map_err(refused()),
    }
}

/// Makes the overlay by the program `fuse-overlayfs`, after the kernel refused it with the error
/// `refused`. Before Linux 5.11 the kernel refuses every overlay in a user namespace (EPERM). The
/// program ends with this thread. Fails if the program is not possible here either. After another
/// refusal of the kernel, `refused` is returned, because the program would not help.
pub(crate) fn overlay_by_program(lower: &Mount, scratch: &Scratch, refused: MountError) -> Result<Mount, MountError> {
    let is_for_users = matches!(&refused, MountError::Refused { error, .. } if is_denied(error));
    if !is_for_users || larder_sys::is_of_first_users() {
        return Err(refused);
    }
    fuse::overlay(lower, &scratch.directory).map_err(|error| MountError::Several(vec![refused, error]))
}

/// Returns true if this is the error of a kernel that only takes layers by path:
///
/// - Before 6.5, overlayfs takes options only as text (EOPNOTSUPP).
/// - From 6.5 to 6.12, it knows no option that is a descriptor (EINVAL).
/// - 6.13 and 6.14 may refuse a layer that is a detached mount (EINVAL).
fn wants_paths(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// The options for the first user namespace.
///
/// - `redirect_dir`: a directory of the image can be renamed. The kernel notes the old path in a mark
///   (`trusted.overlay.redirect`) of the upper directory. An image cannot bring marks of its own: it
///   keeps no `trusted.*` attribute, and the kernel reads no such mark in the lowest layer.
/// - `index`: the names of a hard link stay one file after a write. The kernel omits it, with a line
///   in its log, if the lower file system has no file handles.
/// - `xino`: all files are on one device, and keep their inode numbers.
/// - `volatile`: no syncs, because what is written is deleted with the mount anyway.
const OPTIONS: [(&str, MountValue); 5] = [
    ("redirect_dir", MountValue::Text(b"on")),
    ("metacopy", MountValue::Text(b"off")),
    ("index", MountValue::Text(b"on")),
    ("xino", MountValue::Text(b"on")),
    ("volatile", MountValue::Flag),
];
/// The options for other user namespaces: marks are `user.*` attributes, with which the kernel has
/// no redirects and no index. This needs Linux 5.11.
const FOR_USERS: [(&str, MountValue); 3] =
    [("xino", MountValue::Text(b"on")), ("volatile", MountValue::Flag), ("userxattr", MountValue::Flag)];

type Made = Result<Mount, larder_sys::MountRefused>;

fn at(step: &str) -> impl FnOnce(io::Error) -> larder_sys::MountRefused {
    let step = step.to_owned();
    move |error| larder_sys::MountRefused { step, error, said: String::new() }
}

/// Makes an overlay from descriptors of its layers. This needs Linux 6.13, or 6.15 if the lower
/// mount is detached.
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

/// Makes an overlay from paths of its layers, for older kernels. All layers must be in the mount
/// namespace of the thread that makes the overlay:
///
/// 1. The lower mount is copied, so that `lower` itself stays detached.
/// 2. A thread gets a copy of our mounts in a mount namespace of its own, which no other process
///    sees.
/// 3. The thread opens the upper and work directories, and attaches the copy to the directory of
///    `scratch`.
/// 4. The thread makes the overlay, which holds its layers by itself. Then the thread ends, and the
///    namespace with it.
///
/// The paths are those of descriptors (`/proc/self/fd/7`), so no byte of a file name can be taken
/// for the separator of layers or of options.
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

/// The root of an overlay has the attributes of its upper directory. This copies owner, mode, times
/// and `user.*` attributes from the image's root.
fn like(image: BorrowedFd, upper: &Path) -> io::Result<()> {
    let root = open_directory(image)?;
    let upper = fs::File::open(upper)?;
    let look = rustix::fs::fstat(&root)?;
    copy_attributes(root.as_fd(), upper.as_fd());
    let (user, group) = (Uid::from_raw(look.st_uid), Gid::from_raw(look.st_gid));
    match rustix::fs::fchown(&upper, Some(user), Some(group)) {
        // Without the right to change owners, the directory stays owned by this user, who can
        // write.
        Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    upper.set_permissions(Permissions::from_mode(look.st_mode & 0o7777))?;
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let last_modification = time(look.st_mtime as _, look.st_mtime_nsec as _);
    let times = Timestamps { last_access: time(look.st_atime as _, look.st_atime_nsec as _), last_modification };
    Ok(rustix::fs::futimens(&upper, &times)?)
}

/// Copies the `user.*` attributes only. The others, such as `security.*`, grant rights.
fn copy_attributes(from: BorrowedFd, to: BorrowedFd) {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let count = rustix::fs::flistxattr(from, names.as_mut_slice()).unwrap_or(0);
    for name in names[..count].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
        let done = rustix::fs::fgetxattr(from, name, value.as_mut_slice());
        let set = done.map(|count| rustix::fs::fsetxattr(to, name, &value[..count], rustix::fs::XattrFlags::empty()));
        // Not all file systems support extended attributes. Only the root directory lacks them
        // then.
        let _ = set;
    }
}
