//! Making a restored path under a temporary name and moving it into place.
//!
//! The path is made in a work directory beside its target, and then renamed. The work directory's
//! name is [`PREFIX`] and 16 hexadecimal digits; in it `top` is what is restored, and `old` what
//! was at the target. A target that is a mount point cannot be replaced by a rename. If it is the
//! working directory, processes in it would be left in a deleted directory. In both cases the work
//! directory is made inside the target, and the names in `top` are moved up one by one.
//!
//! Files that a mount will cover are moved aside in the same way, and back if the mount fails.
//!
//! A process can be killed between any two steps, and what existed before must not be lost:
//!
//! 1. The new tree is synced to disk before anything that existed is touched.
//! 2. If the file system can exchange two names, one call does everything. The old or the new tree
//!    is in place at any time.
//! 3. Otherwise a note ([`NOTE`]) in the work directory says which name `old` belongs to. It is
//!    written before anything is moved to `old`, and removed once the new tree is in place.
//! 4. The next command in that directory calls [`sweep`]. If it finds a note, it moves `old` back,
//!    or finishes the move if [`EMPTIED`] exists. If something else has been created there
//!    meanwhile, `old` is kept, and the command says where it is.
//!
//! Unaware of: what a path contains.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use crate::ImageError;

/// The beginning of the name of a work directory. 16 hexadecimal digits follow.
const PREFIX: &str = ".larder-";
/// The name of the restored path in the work directory.
pub(crate) const TOP: &str = "top";
/// The name of what existed before, in the work directory.
pub(crate) const OLD: &str = "old";
/// The name of what was in place and was taken back, in the work directory.
const BACK: &str = "back";
/// A file that says where `old` belongs: its name beside the work directory, or [`INSIDE`]. While
/// it exists, `old` must not be deleted.
pub(crate) const NOTE: &str = "belongs-to";
/// The content of a note if the work directory is inside the target, and `old` holds the names that
/// were there.
pub(crate) const INSIDE: &[u8] = b".";
/// A file that exists once all names of the target are in `old`. After that the names in `top` are
/// moved up.
pub(crate) const EMPTIED: &str = "emptied";
/// The most bytes of a note: the longest name on Linux.
pub(crate) const NOTE_BYTES_MAX: u64 = 255;

/// Says what to do if the target exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Fail, unless it is an empty directory.
    Refuse,
    /// Replace it once the new tree is complete.
    Replace,
}

/// A work directory. Dropping it removes it with its content.
#[derive(Debug)]
pub(crate) struct Work {
    path: PathBuf,
    /// Holds a lock, so that no other process sweeps the directory.
    lock: File,
    /// Its content could not be moved back and must stay.
    is_kept: bool,
}

impl Work {
    /// Creates one in the directory `beside`.
    pub(crate) fn begin(beside: &Path) -> Result<Work, ImageError> {
        let path = beside.join(format!("{PREFIX}{:016x}", larder_sys::random_u64()));
        DirBuilder::new().mode(0o700).create(&path).map_err(ImageError::io("create a directory", &path))?;
        let opened = File::open(&path).and_then(|lock| larder_sys::try_write_lock(&lock).map(|_| lock));
        let lock = opened.map_err(ImageError::io("lock the directory", &path))?;
        Ok(Work { path, lock, is_kept: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Stops the directory from passing on the group and the default ACL of its parent. Otherwise
    /// new files in it would get them.
    pub(crate) fn pass_nothing_on(&self) {
        let _ = rustix::fs::fchmod(&self.lock, Mode::RWXU);
        let _ = std::os::unix::fs::fchown(&self.lock, None, Some(larder_sys::effective_group()));
        let _ = rustix::fs::fremovexattr(&self.lock, "system.posix_acl_default");
    }
}

impl Work {
    /// Writes the note and syncs it: `old` will be what `name` is now.
    fn note(&self, name: &[u8]) -> io::Result<()> {
        let (new, note) = (self.path.join("note"), self.path.join(NOTE));
        let mut file = File::create_new(&new)?;
        file.write_all(name)?;
        file.sync_all()?;
        fs::rename(new, note)
    }

    /// Returns true if there is a note.
    fn is_noted(&self) -> bool {
        self.path.join(NOTE).symlink_metadata().is_ok()
    }

    /// Removes the note: `old` is back in place, or may be deleted.
    fn forget_note(&self) {
        let _ = fs::remove_file(self.path.join(NOTE));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_kept {
            // An incomplete removal is finished by a later sweep.
            let _ = larder_sys::remove_tree(&self.path);
        }
    }
}

/// Makes a directory writable for its owner until this is dropped, because renaming a directory to
/// another parent changes its `..` entry. Nothing happens if the path is not a directory or belongs
/// to another user; the rename will report that.
struct Movable(Option<(OwnedFd, Permissions)>);

impl Movable {
    fn make(path: &Path) -> Movable {
        Movable::make_at(CWD, path)
    }

    /// Does not follow links.
    fn make_at(at: impl AsFd, name: &Path) -> Movable {
        let made = || -> io::Result<Option<(OwnedFd, Permissions)>> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(at, name, flags, Mode::empty())?;
            let mode = rustix::fs::fstat(&directory)?.st_mode;
            if mode & Mode::WUSR.bits() != 0 {
                return Ok(None);
            }
            fs::set_permissions(itself(&directory), Permissions::from_mode(mode | Mode::RWXU.bits()))?;
            Ok(Some((directory, Permissions::from_mode(mode))))
        };
        Movable(made().unwrap_or_default())
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        if let Some((directory, permissions)) = self.0.take() {
            let _ = fs::set_permissions(itself(&directory), permissions);
        }
    }
}

/// Returns a path to an open directory that is valid whatever its name is now.
fn itself(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// How the path was put in place. It says how to undo that.
#[derive(Debug, Default)]
enum Placed {
    #[default]
    Not,
    /// Nothing or an empty directory was there.
    Alone,
    /// Both names were exchanged: the existing path is `top` now.
    Exchanged,
    /// The existing path is `old` now.
    Moved,
    /// Names were moved one by one: existing ones into `old`, those of `top` up. Pairs of source
    /// and destination.
    Up { old: Vec<(PathBuf, PathBuf)>, new: Vec<(PathBuf, PathBuf)> },
}

/// A target and its work directory. If it is dropped before [`Site::put_in_place`], only missing
/// parent directories were created.
#[derive(Debug)]
pub(crate) struct Site {
    target: PathBuf,
    work: Work,
    inside: OwnedFd,
    existing: Existing,
    /// The target directory itself must stay: it is a mount point or the working directory.
    stays: bool,
    /// Something exists that must stay until its replacement is on disk.
    replaces: bool,
    placed: Placed,
}

impl Site {
    /// Checks whether `target` can be created, and makes the work directory.
    pub(crate) fn prepare(target: &Path, existing: Existing) -> Result<Site, ImageError> {
        // A rename fails if the new name ends in `/.`, or for a file in `/`.
        let target: &Path = &target.components().collect::<PathBuf>();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(ImageError::io("create the directory", parent))?;
        let (stays, replaces) = match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (false, false),
            Err(error) => return Err(ImageError::io("stat it", target)(error)),
            Ok(there) => {
                let is_empty = there.is_dir() && is_empty(target)?;
                if existing == Existing::Refuse && !is_empty {
                    return Err(ImageError::InTheWay(target.to_owned()));
                }
                let own = fs::metadata(".").map(|own| (own.dev(), own.ino()));
                let stays = is_mounted_on(target)? || own.is_ok_and(|own| own == (there.dev(), there.ino()));
                (stays, !is_empty)
            }
        };
        let beside = if stays { target } else { parent };
        let work = Work::begin(beside)?;
        work.pass_nothing_on();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inside = rustix::fs::openat(CWD, work.path(), flags, Mode::empty());
        let inside = inside.map_err(ImageError::io("open it", work.path()))?;
        Ok(Site { target: target.to_owned(), work, inside, existing, stays, replaces, placed: Placed::Not })
    }

    /// Returns the work directory, in which the path is to be made as `top`.
    pub(crate) fn inside(&self) -> BorrowedFd<'_> {
        self.inside.as_fd()
    }

    /// Returns, for messages, the final path of a path below `top`.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.target.clone() } else { self.target.join(OsStr::from_bytes(path)) }
    }

    /// Moves the complete path into place. What existed is kept until [`Site::done`].
    pub(crate) fn put_in_place(&mut self) -> Result<(), ImageError> {
        let put = || -> io::Result<Placed> {
            if self.replaces {
                rustix::fs::syncfs(&self.work.lock)?;
            }
            if self.stays { self.move_up() } else { self.exchange() }
        };
        match put() {
            Ok(placed) => self.placed = placed,
            Err(error) => {
                self.work.is_kept = self.work.is_noted();
                return Err(ImageError::io("move it into place", &self.target)(error));
            }
        }
        Ok(())
    }

    /// Ends: everything that belongs together is in place, and what existed is deleted.
    pub(crate) fn done(self) {
        if self.replaces {
            // The new name must be on disk before what existed is deleted.
            let parent = if self.stays { Some(&*self.target) } else { self.work.path.parent() };
            let _ = parent.map(|parent| File::open(parent).and_then(|parent| parent.sync_all()));
        }
        self.work.forget_note();
    }

    /// Undoes [`Site::put_in_place`], but does not recreate an empty directory. Returns where the
    /// old content is if it could not be moved back.
    pub(crate) fn take_back(&mut self) -> Option<PathBuf> {
        let (top, old) = (self.work.path.join(TOP), self.work.path.join(OLD));
        if self.work.is_kept {
            return Some(old);
        }
        let movable = (Movable::make(&self.target), Movable::make(&top), Movable::make(&old));
        let done = match std::mem::take(&mut self.placed) {
            Placed::Not => Ok(()),
            Placed::Alone => fs::rename(&self.target, self.work.path.join(BACK)),
            Placed::Exchanged => {
                rustix::fs::renameat_with(CWD, &top, CWD, &self.target, RenameFlags::EXCHANGE).map_err(|error| {
                    // From now on `old` must not be deleted.
                    let named = self.target.file_name().map_or(Ok(()), |name| self.work.note(name.as_bytes()));
                    let _ = named.and_then(|()| fs::rename(&top, &old));
                    error.into()
                })
            }
            Placed::Moved => fs::rename(&self.target, &top).and_then(|()| fs::rename(&old, &self.target)),
            Placed::Up { old, new } => self.move_down(old, new),
        };
        drop(movable);
        if done.is_ok() {
            self.work.forget_note();
            return None;
        }
        self.work.is_kept = true;
        Some(old)
    }

    /// Moves `top` to the target by a rename or by exchanging both names.
    fn exchange(&self) -> io::Result<Placed> {
        let top = self.work.path.join(TOP);
        let _top = Movable::make(&top);
        if self.existing == Existing::Refuse {
            // Replaces a directory that is still empty, but nothing else that was created
            // meanwhile.
            let done = match rustix::fs::renameat_with(CWD, &top, CWD, &self.target, RenameFlags::NOREPLACE) {
                Err(rustix::io::Errno::EXIST) if top.is_dir() && self.target.is_dir() => fs::rename(&top, &self.target),
                Err(rustix::io::Errno::EXIST) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
                // The file system or the kernel does not support the flag.
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
                    fs::rename(&top, &self.target)
                }
                done => done.map_err(io::Error::from),
            };
            return done.map(|()| Placed::Alone);
        }
        let _there = Movable::make(&self.target);
        match rustix::fs::renameat_with(CWD, &top, CWD, &self.target, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(Placed::Exchanged),
            Err(rustix::io::Errno::NOENT) => fs::rename(&top, &self.target).map(|()| Placed::Alone),
            Err(_) => {
                let old = self.work.path.join(OLD);
                self.work.note(self.target.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_bytes())?;
                fs::rename(&self.target, &old).inspect_err(|_| self.work.forget_note())?;
                match fs::rename(&top, &self.target) {
                    Ok(()) => Ok(Placed::Moved),
                    Err(error) => {
                        fs::rename(&old, &self.target)?;
                        self.work.forget_note();
                        Err(error)
                    }
                }
            }
        }
    }

    /// Moves the names of the target into `old` and those of `top` up. If one cannot be moved, for
    /// example a mount point, all are moved back.
    fn move_up(&self) -> io::Result<Placed> {
        let (top, old) = (self.work.path.join(TOP), self.work.path.join(OLD));
        let _top = Movable::make(&top);
        self.work.note(INSIDE)?;
        fs::create_dir(&old)?;
        let all = |from: &Path, to: &Path, moved: &mut Vec<(PathBuf, PathBuf)>| -> io::Result<()> {
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                if from == self.target && (is_ours(&entry.file_name()) || entry.file_name() == "lost+found") {
                    continue;
                }
                let to = to.join(entry.file_name());
                let _entry = Movable::make(&entry.path());
                fs::rename(entry.path(), &to)?;
                moved.push((entry.path(), to));
            }
            Ok(())
        };
        let (mut before, mut new) = (Vec::new(), Vec::new());
        let done = all(&self.target, &old, &mut before)
            .and_then(|()| File::create_new(self.work.path.join(EMPTIED)).map(drop))
            .and_then(|()| all(&top, &self.target, &mut new));
        match done {
            Ok(()) => Ok(Placed::Up { old: before, new }),
            Err(error) => {
                self.move_down(before, new)?;
                self.work.forget_note();
                Err(error)
            }
        }
    }

    /// Undoes [`Site::move_up`].
    fn move_down(&self, old: Vec<(PathBuf, PathBuf)>, new: Vec<(PathBuf, PathBuf)>) -> io::Result<()> {
        let all = |moved: Vec<(PathBuf, PathBuf)>| {
            moved.into_iter().rev().try_for_each(|(from, to)| {
                let _to = Movable::make(&to);
                fs::rename(to, from)
            })
        };
        all(new)?;
        match fs::remove_file(self.work.path.join(EMPTIED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => all(old),
        }
    }
}

/// The files of a path, moved out of the way. Dropping it moves them back, unless
/// [`Aside::replaced`] was called.
#[derive(Debug)]
pub struct Aside {
    target: PathBuf,
    work: Work,
    is_replaced: bool,
}

impl Aside {
    /// Moves away what is at `target`. Returns `None` if nothing or an empty directory is there.
    pub fn begin(target: &Path) -> Result<Option<Aside>, ImageError> {
        match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ImageError::io("stat it", target)(error)),
            Ok(there) if there.is_dir() && is_empty(target)? => return Ok(None),
            Ok(_) => {}
        }
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let work = Work::begin(parent)?;
        let _there = Movable::make(target);
        let moved = target.file_name().ok_or(io::ErrorKind::InvalidInput.into());
        let moved = moved.and_then(|name| work.note(name.as_bytes()));
        let moved = moved.and_then(|()| fs::rename(target, work.path.join(OLD)));
        moved.map_err(ImageError::io("move it aside", target))?;
        Ok(Some(Aside { target: target.to_owned(), work, is_replaced: false }))
    }

    /// Something else is in place now: what was moved away is deleted.
    pub fn replaced(mut self) {
        self.is_replaced = true;
        self.work.forget_note();
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_replaced {
            // Removes an empty directory, which was made as a mount point.
            let _ = fs::remove_dir(&self.target);
            let old = self.work.path.join(OLD);
            let _old = Movable::make(&old);
            match fs::rename(old, &self.target) {
                Ok(()) => self.work.forget_note(),
                Err(_) => self.work.is_kept = true,
            }
        }
    }
}

/// Returns true if a directory has no names but our work directories and `lost+found`.
fn is_empty(dir: &Path) -> Result<bool, ImageError> {
    let mut entries = fs::read_dir(dir).map_err(ImageError::io("list the directory", dir))?;
    Ok(entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name()) || entry.file_name() == "lost+found")))
}

/// Returns whether a directory is a mount point. Fails if it does not exist.
pub fn is_mounted_on(path: &Path) -> Result<bool, ImageError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let there = fs::symlink_metadata(path).map_err(ImageError::io("stat it", path))?;
    let above = fs::metadata(parent).map_err(ImageError::io("stat it", parent))?;
    Ok(there.is_dir() && is_mount(path, there.dev() != above.dev()))
}

/// Returns whether `dir` is a mount point: by `STATX_ATTR_MOUNT_ROOT`, or if the kernel does not
/// report that, because it is on another device than its parent. The attribute also finds bind
/// mounts.
fn is_mount(dir: &Path, is_other_device: bool) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let known = rustix::fs::statx(CWD, dir, flags, rustix::fs::StatxFlags::empty());
    let root = rustix::fs::StatxAttributes::MOUNT_ROOT;
    match known {
        Ok(known) if known.stx_attributes_mask.contains(root) => known.stx_attributes.contains(root),
        _ => is_other_device,
    }
}

pub(crate) fn is_ours(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

pub(crate) fn names_in(dir: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(&name[..], b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

pub(crate) fn is_in(dir: impl AsFd, name: &[u8]) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Renames to a name that does not exist.
pub(crate) fn move_to_nothing(from: impl AsFd, name: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    use rustix::io::Errno;
    let _movable = Movable::make_at(&from, Path::new(OsStr::from_bytes(name)));
    match rustix::fs::renameat_with(&from, name, &to, new, RenameFlags::NOREPLACE) {
        // The file system or the kernel does not support the flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) if !is_in(&to, new) => {
            Ok(rustix::fs::renameat(&from, name, &to, new)?)
        }
        done => Ok(done?),
    }
}
