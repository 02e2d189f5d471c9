//! Where a restored path is made, and how it gets to its place.
//!
//! It is made in a directory of a name that only larder gives, beside its place, and renamed. A place that is itself a
//! mount cannot be renamed to, and whoever works in a directory would be left in one that is gone: there it is made
//! inside, and its names are moved up one by one.
//!
//! What is to be mounted over is moved aside in the same way, and back where nothing was mounted.
//!
//! A process can be killed between any two of these steps, and what was there must not be lost then. So:
//!
//! 1. The new tree is synced to its disk before what was there is touched.
//! 2. If the file system can exchange two names, one call does all. The old or the new tree is in its place at any time.
//! 3. Otherwise a note ([`NOTE`]) in the directory says which name its `old` had, before that is moved there. The note
//!    goes once all that replaces it is in place.
//! 4. The next command in that directory calls [`sweep`]. If a note is there, what was moved aside is put back. If
//!    something else has come to its place meanwhile it is kept, and the command says where.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

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
/// A file that says where `old` belongs: the name that it had beside the directory, or [`INSIDE`]. As long as it is
/// there, `old` is the user's.
const NOTE: &str = "belongs-to";
/// In a note: `old` holds what was in the directory that holds ours.
const INSIDE: &[u8] = b".";
/// A file that is there once all that was in such a directory is in `old`: from then on `top` is moved up.
const EMPTIED: &str = "emptied";
/// A note, bytes: Linux' own limit of a name.
const NOTE_BYTES_MAX: u64 = 255;

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

impl Work {
    /// Write the note, and have it on the disk: `old` will be what `name` is now.
    fn note(&self, name: &[u8]) -> io::Result<()> {
        let (new, note) = (self.path.join("note"), self.path.join(NOTE));
        let mut file = File::create_new(&new)?;
        file.write_all(name)?;
        file.sync_all()?;
        fs::rename(new, note)
    }

    /// Whether `old` is the user's.
    fn is_noted(&self) -> bool {
        self.path.join(NOTE).symlink_metadata().is_ok()
    }

    /// What is in `old` is not wanted any more, or is where it was.
    fn forget_note(&self) {
        let _ = fs::remove_file(self.path.join(NOTE));
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_kept {
            // What cannot be removed is swept later.
            let _ = larder_sys::remove_tree(&self.path);
        }
    }
}

/// A directory that its owner may not write to cannot be moved into another one, since that is noted in it: until this
/// is dropped, its owner may. Anything else is as it is, and what is not ours says itself why it cannot be moved.
struct Movable(Option<(OwnedFd, Permissions)>);

impl Movable {
    fn make(path: &Path) -> Movable {
        Movable::make_at(CWD, path)
    }

    /// Links are not followed: what is made movable is the directory itself.
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

/// A path of what a descriptor is open at, whatever its name is by now.
fn itself(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// How something was put in place.
#[derive(Debug, Default)]
enum Placed {
    #[default]
    Not,
    /// Nothing was there, or an empty directory.
    Alone,
    /// What was there is `top` now.
    Exchanged,
    /// What was there is `old` now.
    Moved,
    /// Names were moved: those that were there to `old`, and those of `top` up. Each from where, and to where.
    Up { old: Vec<(PathBuf, PathBuf)>, new: Vec<(PathBuf, PathBuf)> },
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
    /// There is something that has to stay until all that comes in its place is on the disk.
    replaces: bool,
    placed: Placed,
}

impl Site {
    /// Find out whether something can go to `target`, and make where it is made.
    pub(crate) fn prepare(target: &Path, existing: Existing) -> Result<Site, ImageError> {
        // Nothing can be renamed to a name that ends in `/.`, nor a file to one that ends in a slash.
        let target: &Path = &target.components().collect::<PathBuf>();
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(ImageError::io("make the directory", parent))?;
        let (stays, replaces) = match fs::symlink_metadata(target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (false, false),
            Err(error) => return Err(ImageError::io("look at it", target)(error)),
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

    /// The directory in which it is made, as `top`.
    pub(crate) fn inside(&self) -> BorrowedFd<'_> {
        self.inside.as_fd()
    }

    /// For messages: what a path below `top` will be called.
    pub(crate) fn shown(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.target.clone() } else { self.target.join(OsStr::from_bytes(path)) }
    }

    /// It is whole: put it in its place. What was there stays until [`Site::done`].
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
                return Err(ImageError::io("put it in place", &self.target)(error));
            }
        }
        Ok(())
    }

    /// All that belongs together is in place: what was there before goes.
    pub(crate) fn done(self) {
        if self.replaces {
            // That it is in place is on the disk before what was there goes.
            let parent = if self.stays { Some(&*self.target) } else { self.work.path.parent() };
            let _ = parent.map(|parent| File::open(parent).and_then(|parent| parent.sync_all()));
        }
        self.work.forget_note();
    }

    /// Take it away again: what was there comes back, but for an empty directory. Returns where what was there is if it
    /// could not be put back.
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
                    // From now on `old` is the user's.
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

    fn exchange(&self) -> io::Result<Placed> {
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

    /// Where one name cannot be moved, as what is itself mounted on, all are moved back.
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

    /// Undo what [`Site::move_up`] did.
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

/// What was at a path, out of the way until something else is there. Dropped before that, it is where it was.
#[derive(Debug)]
pub struct Aside {
    target: PathBuf,
    work: Work,
    is_replaced: bool,
}

impl Aside {
    /// Move away what is at `target`; none where nothing is, or an empty directory.
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
        let moved = target.file_name().ok_or(io::ErrorKind::InvalidInput.into());
        let moved = moved.and_then(|name| work.note(name.as_bytes()));
        let moved = moved.and_then(|()| fs::rename(target, work.path.join(OLD)));
        moved.map_err(ImageError::io("move it aside", target))?;
        Ok(Some(Aside { target: target.to_owned(), work, is_replaced: false }))
    }

    /// Something else is there: it goes.
    pub fn replaced(mut self) {
        self.is_replaced = true;
        self.work.forget_note();
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_replaced {
            // What was made to mount on.
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
    let flags = AtFlags::SYMLINK_NOFOLLOW;
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

/// What was found of a command that was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// What it had moved aside is where it was.
    PutBack(PathBuf),
    /// What it was putting in place is there.
    Finished(PathBuf),
    /// What it had moved aside stays, since there is something else where it was.
    Kept {
        /// Where it was.
        target: PathBuf,
        /// Where it is.
        old: PathBuf,
    },
}

/// Finish in `dir` what commands began that were killed: put back what they had moved aside, and remove the rest. Only
/// directories of this user are touched, none that a living command works in, and no link is followed.
pub fn sweep(dir: &Path) -> Vec<Left> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(parent) = rustix::fs::openat(CWD, dir, flags, Mode::empty()) else { return Vec::new() };
    let names = names_in(&parent).unwrap_or_default().into_iter().filter(|name| is_ours(OsStr::from_bytes(name)));
    names.filter_map(|name| Abandoned::open(&parent, dir, &name)?.finish()).collect()
}

/// A directory of a command that was killed, locked.
struct Abandoned<'a> {
    /// The directory that it is in.
    parent: &'a OwnedFd,
    dir: &'a Path,
    name: &'a [u8],
    work: File,
}

impl<'a> Abandoned<'a> {
    /// None of another user, and none that is in use.
    fn open(parent: &'a OwnedFd, dir: &'a Path, name: &'a [u8]) -> Option<Abandoned<'a>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let work = File::from(rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?);
        let is_own = work.metadata().ok()?.uid() == larder_sys::effective_user();
        let is_locked = is_own && larder_sys::try_write_lock(&work).is_ok_and(|locked| locked);
        is_locked.then_some(Abandoned { parent, dir, name, work })
    }

    fn finish(&self) -> Option<Left> {
        match self.note() {
            Ok(None) => {
                let modified = self.work.metadata().and_then(|meta| meta.modified());
                let old = |modified: SystemTime| modified.elapsed().is_ok_and(|age| age > SWEEP_AGE);
                if modified.is_ok_and(old) {
                    self.remove();
                }
                None
            }
            Ok(Some(note)) if note == INSIDE => Some(self.move_all()),
            Ok(Some(note)) if !note.is_empty() && note != b".." && !note.contains(&b'/') => self.put_back(&note),
            _ => Some(self.kept(self.dir)),
        }
    }

    fn note(&self) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&self.work, NOTE, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            opened => File::from(opened?),
        };
        let mut note = Vec::new();
        opened.take(NOTE_BYTES_MAX).read_to_end(&mut note)?;
        Ok(Some(note))
    }

    /// Put `old` back where it was, if nothing is there, or an empty directory.
    fn put_back(&self, note: &[u8]) -> Option<Left> {
        let target = self.dir.join(OsStr::from_bytes(note));
        if !is_in(&self.work, OLD.as_bytes()) {
            // Killed before it was moved there, or after it was moved back.
            self.remove();
            return None;
        }
        let _ = rustix::fs::unlinkat(self.parent, note, AtFlags::REMOVEDIR);
        if move_to_nothing(&self.work, OLD.as_bytes(), self.parent, note).is_err() {
            return Some(self.kept(&target));
        }
        self.remove();
        Some(Left::PutBack(target))
    }

    /// Move up what was to come, if all that was there is in `old`; else move that back.
    fn move_all(&self) -> Left {
        let is_emptied = is_in(&self.work, EMPTIED.as_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = if is_emptied { TOP } else { OLD };
        let moved = match rustix::fs::openat(&self.work, from, flags, Mode::empty()) {
            // Killed before there was an `old`.
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(from) => names_in(&from)
                .and_then(|names| names.iter().try_for_each(|name| move_to_nothing(&from, name, self.parent, name))),
        };
        if moved.is_err() {
            return self.kept(self.dir);
        }
        self.remove();
        if is_emptied { Left::Finished(self.dir.to_owned()) } else { Left::PutBack(self.dir.to_owned()) }
    }

    fn kept(&self, target: &Path) -> Left {
        Left::Kept { target: target.to_owned(), old: self.dir.join(OsStr::from_bytes(self.name)).join(OLD) }
    }

    /// Remove what is in it, and the directory by its name if that is an empty directory then.
    fn remove(&self) {
        // The note goes first: what is removed is not taken for the user's if we are killed as well.
        let _ = rustix::fs::unlinkat(&self.work, NOTE, AtFlags::empty());
        for name in names_in(&self.work).unwrap_or_default() {
            let _ = larder_sys::remove_tree_at(&self.work, OsStr::from_bytes(&name));
        }
        let _ = rustix::fs::unlinkat(self.parent, self.name, AtFlags::REMOVEDIR);
    }
}

fn names_in(dir: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(&name[..], b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

fn is_in(dir: impl AsFd, name: &[u8]) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Rename to a name that nothing has.
fn move_to_nothing(from: impl AsFd, name: &[u8], to: impl AsFd, new: &[u8]) -> io::Result<()> {
    use rustix::io::Errno;
    let _movable = Movable::make_at(&from, Path::new(OsStr::from_bytes(name)));
    match rustix::fs::renameat_with(&from, name, &to, new, RenameFlags::NOREPLACE) {
        // A file system that cannot say, or a system that does not have the call.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) if !is_in(&to, new) => {
            Ok(rustix::fs::renameat(&from, name, &to, new)?)
        }
        done => Ok(done?),
    }
}
