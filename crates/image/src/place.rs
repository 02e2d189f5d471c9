//! Where a restored path is made, and how it gets to its place.
//!
//! It is made in a directory of a name that only larder gives, beside its place, and renamed. A place that is itself a
//! mount cannot be renamed to, and whoever works in a directory would be left in one that is gone: there it is made
//! inside, and its names are moved up one by one.
//!
//! What is to be mounted over is moved aside in the same way, and back where nothing was mounted.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags};

use crate::ImageError;

/// Names that only larder gives begin so; 16 hexadecimal digits follow.
const PREFIX: &str = ".larder-";
/// What is left by one who was killed is removed once it is so old: before, it may not have been locked yet.
const SWEEP_AGE: Duration = Duration::from_secs(60);
/// What is restored, in the directory where it is made.
pub(crate) const TOP: &str = "top";
/// What was there before, beside it.
const OLD: &str = "old";
/// What had been put in place, and was taken back.
const BACK: &str = "back";

/// What is done where there is something already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is an error, but for an empty directory.
    Refuse,
    /// It goes, once all that replaces it is there.
    Replace,
}

/// A directory of a name that only larder gives. Dropped, it goes, with all that is in it.
#[derive(Debug)]
pub(crate) struct Work {
    path: PathBuf,
    /// Locked, so that nobody sweeps it.
    lock: File,
    /// What is in it could not be put back, and stays.
    is_kept: bool,
}

impl Work {
    /// Make one in `beside`.
    pub(crate) fn begin(beside: &Path) -> Result<Work, ImageError> {
        let path = beside.join(format!("{PREFIX}{:016x}", larder_sys::random_u64()));
        DirBuilder::new().mode(0o700).create(&path).map_err(ImageError::io("make a directory", &path))?;
        let opened = File::open(&path).and_then(|lock| larder_sys::try_write_lock(&lock).map(|_| lock));
        let lock = opened.map_err(ImageError::io("lock the directory", &path))?;
        Ok(Work { path, lock, is_kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the directory above passes its group and a list of who may what on, this one does not: what is made in it
    /// gets our own group, and no rights but its mode's.
    pub(crate) fn pass_nothing_on(&self) {
        let _ = rustix::fs::fchmod(&self.lock, Mode::RWXU);
        let _ = std::os::unix::fs::fchown(&self.lock, None, Some(larder_sys::effective_group()));
        let _ = rustix::fs::fremovexattr(&self.lock, "system.posix_acl_default");
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_kept {
            remove_tree(&self.path);
        }
    }
}

/// A directory that its owner may not write to cannot be moved into another one, since that is noted in it: until this
/// is dropped, its owner may. Anything else is as it is, and what is not ours says itself why it cannot be moved.
struct Movable(Option<(File, Permissions)>);

impl Movable {
    fn make(path: &Path) -> Movable {
        let made = || -> io::Result<Option<(File, Permissions)>> {
            let there = fs::symlink_metadata(path)?;
            if !there.is_dir() || there.mode() & Mode::WUSR.bits() != 0 {
                return Ok(None);
            }
            fs::set_permissions(path, Permissions::from_mode(there.mode() | Mode::RWXU.bits()))?;
            Ok(Some((File::open(path)?, there.permissions())))
        };
        Movable(made().unwrap_or_default())
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        if let Some((directory, permissions)) = self.0.take() {
            let _ = directory.set_permissions(permissions);
        }
    }
}

/// See above. Dropped before it is put in place, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Site {
    target: PathBuf,
    work: Work,
    inside: OwnedFd,
    existing: Existing,
    /// The directory there stays: something is mounted on it, or it is the working directory.
    stays: bool,
    /// What is to be renamed, from where to where, so that all is as it was before it was put in place.
    back: Vec<(PathBuf, PathBuf)>,
}

impl Site {
    /// Find out whether something can go to `target`, and make where it is made.
    pub(crate) fn prepare(target: &Path, existing: Existing) -> Result<Site, ImageError> {
        // Nothing can be renamed to a name that ends in `/.`, nor a file to one that ends in a slash.
        let target: &Path = &target.components().collect::<PathBuf>();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(ImageError::io("make the directory", parent))?;
        let stays = match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(ImageError::io("look at it", target)(error)),
            Ok(there) => {
                let is_empty = there.is_dir() && is_empty(target)?;
                if existing == Existing::Refuse && !is_empty {
                    return Err(ImageError::InTheWay(target.to_owned()));
                }
                let own = fs::metadata(".").map(|own| (own.dev(), own.ino()));
                is_mounted_on(target)? || own.is_ok_and(|own| own == (there.dev(), there.ino()))
            }
        };
        let beside = if stays { target } else { parent };
        sweep(beside);
        let work = Work::begin(beside)?;
        work.pass_nothing_on();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inside = rustix::fs::openat(CWD, work.path(), flags, Mode::empty());
        let inside = inside.map_err(ImageError::io("open it", work.path()))?;
        Ok(Site { target: target.to_owned(), work, inside, existing, stays, back: Vec::new() })
    }

    /// The directory in which it is made, as `top`.
    pub(crate) fn inside(&self) -> BorrowedFd<'_> {
        self.inside.as_fd()
    }

    /// For messages: what a path below `top` will be called.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.target.clone() } else { self.target.join(OsStr::from_bytes(path)) }
    }

    /// It is whole: put it in its place. What was there goes when this is dropped.
    pub(crate) fn put_in_place(&mut self) -> Result<(), ImageError> {
        let done = if self.stays {
            self.move_up()
        } else {
            self.exchange().map(|there| {
                let target = || self.target.clone();
                let back = [(target(), self.work.path.join(BACK))].into_iter();
                self.back = back.chain(there.map(|there| (there, target()))).collect();
            })
        };
        done.map_err(ImageError::io("put it in place", &self.target))
    }

    /// Take it away again: what was there comes back, but for an empty directory.
    pub(crate) fn take_back(&mut self) {
        for (from, to) in std::mem::take(&mut self.back) {
            let _from = Movable::make(&from);
            self.work.is_kept |= fs::rename(from, to).is_err();
        }
    }

    /// Returns where what was there is now.
    fn exchange(&self) -> io::Result<Option<PathBuf>> {
        let top = self.work.path.join(TOP);
        let _top = Movable::make(&top);
        if self.existing == Existing::Refuse {
            // A directory that is still empty is replaced; anything else that came meanwhile is not.
            let done = match rustix::fs::renameat_with(CWD, &top, CWD, &self.target, RenameFlags::NOREPLACE) {
                Err(rustix::io::Errno::EXIST) if top.is_dir() && self.target.is_dir() => fs::rename(&top, &self.target),
                Err(rustix::io::Errno::EXIST) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
                // A file system that cannot say, or a system that does not have the call.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                    fs::rename(&top, &self.target)
                }
                done => done.map_err(io::Error::from),
            };
            return done.map(|()| None);
        }
        let _there = Movable::make(&self.target);
        match rustix::fs::renameat_with(CWD, &top, CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(Some(top)),
            Err(rustix::io::Errno::NOENT) => fs::rename(&top, &self.target).map(|()| None),
            Err(_) => {
                let old = self.work.path.join(OLD);
                fs::rename(&self.target, &old)?;
                fs::rename(&top, &self.target).inspect_err(|_| drop(fs::rename(&old, &self.target)))?;
                Ok(Some(old))
            }
        }
    }

    /// Where one name cannot be moved, as what is itself mounted on, all are moved back.
    fn move_up(&mut self) -> io::Result<()> {
        let (top, old) = (self.work.path.join(TOP), self.work.path.join(OLD));
        let _top = Movable::make(&top);
        fs::create_dir(&old)?;
        let mut moved: Vec<(PathBuf, PathBuf)> = Vec::new();
        let mut all = |from: &Path, to: &Path| -> io::Result<()> {
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                let is_there_always = entry.path() == self.work.path || entry.file_name() == "lost+found";
                if from == self.target && is_there_always {
                    continue;
                }
                let to = to.join(entry.file_name());
                let _entry = Movable::make(&entry.path());
                fs::rename(entry.path(), &to)?;
                moved.push((entry.path(), to));
            }
            Ok(())
        };
        let done = all(&self.target, &old).and_then(|()| all(&top, &self.target));
        self.back = moved.into_iter().rev().map(|(from, to)| (to, from)).collect();
        if done.is_err() {
            self.take_back();
        }
        done
    }
}

/// What was at a path, out of the way until something else is there. Dropped before that, it is where it was.
#[derive(Debug)]
pub struct Aside {
    target: PathBuf,
    work: Work,
    is_replaced: bool,
}

impl Aside {
    /// Move away what is at `target`; none where nothing is, or an empty directory. What whoever was killed meanwhile
    /// had moved goes as what a killed restore left.
    pub fn begin(target: &Path) -> Result<Option<Aside>, ImageError> {
        match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ImageError::io("look at it", target)(error)),
            Ok(there) if there.is_dir() && is_empty(target)? => return Ok(None),
            Ok(_) => {}
        }
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let work = Work::begin(parent)?;
        let _there = Movable::make(target);
        fs::rename(target, work.path.join(OLD)).map_err(ImageError::io("move it aside", target))?;
        Ok(Some(Aside { target: target.to_owned(), work, is_replaced: false }))
    }

    /// Something else is there: it goes.
    pub fn replaced(mut self) {
        self.is_replaced = true;
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_replaced {
            // What was made to mount on.
            let _ = fs::remove_dir(&self.target);
            let old = self.work.path.join(OLD);
            let _old = Movable::make(&old);
            if fs::rename(old, &self.target).is_err() {
                self.work.is_kept = true;
            }
        }
    }
}

fn is_empty(dir: &Path) -> Result<bool, ImageError> {
    let mut entries = fs::read_dir(dir).map_err(ImageError::io("list the directory", dir))?;
    Ok(entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name()) || entry.file_name() == "lost+found")))
}

/// Whether something is mounted on a directory; an error where there is nothing.
pub fn is_mounted_on(path: &Path) -> Result<bool, ImageError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = fs::symlink_metadata(path).map_err(ImageError::io("look at it", path))?;
    let above = fs::metadata(parent).map_err(ImageError::io("look at it", parent))?;
    Ok(there.is_dir() && is_mount(path, there.dev() != above.dev()))
}

/// Whether something is mounted at `dir`: another device than above it, or the same one once more.
fn is_mount(dir: &Path, is_other_device: bool) -> bool {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let known = rustix::fs::statx(CWD, dir, flags, rustix::fs::StatxFlags::empty());
    let root = rustix::fs::StatxAttributes::MOUNT_ROOT;
    match known {
        Ok(known) if known.stx_attributes_mask.contains(root) => known.stx_attributes.contains(root),
        _ => is_other_device,
    }
}

fn is_ours(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Remove from `dir` what somebody left there who was killed while restoring.
pub fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| is_ours(&entry.file_name())) {
        let old = |modified: SystemTime| modified.elapsed().is_ok_and(|age| age > SWEEP_AGE);
        let is_old = entry.metadata().is_ok_and(|meta| meta.is_dir() && meta.modified().is_ok_and(old));
        let lock = File::open(entry.path()).ok();
        if is_old && lock.is_some_and(|lock| larder_sys::try_write_lock(&lock).is_ok_and(|locked| locked)) {
            remove_tree(&entry.path());
        }
    }
}

/// Remove a tree; what cannot be removed is swept later.
fn remove_tree(path: &Path) {
    let _ = larder_sys::remove_tree(path);
}
