//! Removing a directory tree of any depth, which another user may control.
//!
//! Unaware of: which user owns the tree, and why it is removed.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::mount::{MountNumber, mount_number};

/// The most directories that are open at once. A directory that lies deeper is first moved up to
/// the top.
const OPEN_MAX: usize = 32;
/// How often one directory is listed at most. Some file systems skip names while others are
/// removed.
const LISTINGS_MAX: u32 = 16;

/// Removes the file, link or directory at `path` with everything in it. Succeeds if there is
/// nothing.
///
/// Only the parent directory of `path` is looked up by path. See `remove_tree_at` for the rest.
///
/// # Errors
///
/// Returns the first error. Everything that can be removed is removed nevertheless.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Ok(()),
        opened => remove_tree_at(opened?, name),
    }
}

/// Removes `name` in a directory, with everything in it. Succeeds if there is nothing.
///
/// A process that can write to the tree meanwhile cannot make this remove anything else. Links are
/// removed and never followed, and mounts in the tree are left alone. Memory and descriptors do not
/// grow with the depth of the tree, and the code does not recurse. A directory that its owner may
/// not enter or change gets mode 0700 first.
///
/// # Errors
///
/// Returns the first error. Everything that can be removed is removed nevertheless.
pub fn remove_tree_at(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    let parent = directory.as_fd();
    let name = CString::new(name.as_bytes())?;
    let top = match open_to_empty(parent, &name) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return absent_is_fine(unlinkat(parent, &*name, AtFlags::empty())),
        opened => opened?,
    };
    let mut removal = Removal { mount: mount_number(&top).ok(), moved: false, first: None };
    removal.empty(top);
    match (removal.first, unlinkat(parent, &*name, AtFlags::REMOVEDIR)) {
        (Some(error), Err(errno)) if errno != Errno::NOENT => Err(error),
        // Nothing is left, so another process removed whatever we could not remove.
        (_, done) => absent_is_fine(done),
    }
}

fn absent_is_fine(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        done => Ok(done?),
    }
}

struct Removal {
    /// The mount that the tree is on. `None` if the kernel has no mount numbers (before Linux 5.8).
    mount: Option<MountNumber>,
    /// True if a directory was moved to the top level since the top level was last listed.
    moved: bool,
    first: Option<io::Error>,
}

/// A directory that is being emptied.
struct Level {
    listing: Dir,
    /// Its name in the level above.
    name: CString,
    listings: u32,
    /// True if something in it was removed since it was listed.
    has_removed: bool,
    /// True if something in it cannot be removed.
    has_failed: bool,
}

impl Level {
    fn new(directory: OwnedFd, name: CString) -> rustix::io::Result<Level> {
        Ok(Level { listing: Dir::new(directory)?, name, listings: 1, has_removed: false, has_failed: false })
    }

    fn list_again(&mut self) {
        self.listing.rewind();
        self.listings += 1;
        self.has_removed = false;
    }
}

impl Removal {
    /// Removes everything in a directory.
    ///
    /// The levels are a stack. The last level is emptied and then removed from the one before it.
    /// If the stack is full, a directory is instead moved into the first level under a new name.
    /// The first level is then listed once more at the end.
    fn empty(&mut self, top: OwnedFd) {
        let mut levels = match Level::new(top, CString::default()) {
            Ok(level) => vec![level],
            Err(errno) => return self.note(errno),
        };
        while let Some(level) = levels.last_mut() {
            match level.listing.read() {
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => match self.remove(&mut levels, entry.file_name(), entry.file_type()) {
                    Ok(Some(below)) => levels.push(below),
                    Ok(None) => mark(&mut levels, |level| level.has_removed = true),
                    Err(errno) => {
                        mark(&mut levels, |level| level.has_failed = true);
                        self.note(errno);
                    }
                },
                Some(Err(errno)) => {
                    level.has_failed = true;
                    self.note(errno);
                    self.close(&mut levels);
                }
                None => self.close(&mut levels),
            }
        }
    }

    /// Removes a name in the last level. A directory that is not empty becomes a new level, or is
    /// moved to the first level.
    fn remove(&mut self, levels: &mut [Level], name: &CStr, kind: FileType) -> rustix::io::Result<Option<Level>> {
        let (Some(first), Some(last)) = (levels.first(), levels.last()) else { return Ok(None) };
        let (top, directory) = (first.listing.fd()?, last.listing.fd()?);
        let unlink = |flags| allowed(directory, || unlinkat(directory, name, flags));
        let done = match kind {
            FileType::Directory => Err(Errno::ISDIR),
            _ => unlink(AtFlags::empty()),
        };
        // POSIX says that unlinking a directory fails with EPERM.
        let done = match done {
            Err(Errno::ISDIR | Errno::PERM) => unlink(AtFlags::REMOVEDIR).map_err(|errno| match done {
                Err(Errno::PERM) if errno == Errno::NOTDIR => Errno::PERM,
                _ => errno,
            }),
            done => done,
        };
        match done {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let below = open_to_empty(directory, name)?;
        if mount_number(&below).ok() != self.mount {
            return Err(Errno::BUSY);
        }
        if levels.len() < OPEN_MAX {
            return Level::new(below, name.to_owned()).map(Some);
        }
        let new = format!(".larder-deep-{:016x}", super::random_u64());
        // A directory that we may not write to cannot be moved, because moving changes its `..`
        // entry.
        allowed(below.as_fd(), || allowed(directory, || renameat(directory, name, top, &*new)))?;
        self.moved = true;
        Ok(None)
    }

    /// Called when the last level was listed to its end. Lists it once more, or removes it from the
    /// stack.
    fn close(&mut self, levels: &mut Vec<Level>) {
        let is_top = levels.len() == 1;
        let Some(level) = levels.last_mut() else { return };
        if is_top && std::mem::take(&mut self.moved) {
            return level.list_again();
        }
        let name = level.name.clone();
        let (failed, may_list) = (level.has_failed, level.has_removed && level.listings < LISTINGS_MAX);
        let above = levels.len().checked_sub(2).and_then(|above| levels.get(above));
        let done = match above {
            // The caller removes the top directory.
            None => Ok(()),
            Some(above) => {
                above.listing.fd().and_then(|above| allowed(above, || unlinkat(above, &*name, AtFlags::REMOVEDIR)))
            }
        };
        match done {
            Err(Errno::NOTEMPTY | Errno::EXIST) if !failed && may_list => {
                mark(levels, Level::list_again);
            }
            Err(errno) if errno != Errno::NOENT => {
                self.note(errno);
                levels.pop();
                mark(levels, |above| above.has_failed = true);
            }
            _ => {
                levels.pop();
                mark(levels, |above| above.has_removed = true);
            }
        }
    }

    fn note(&mut self, errno: Errno) {
        self.first.get_or_insert_with(|| errno.into());
    }
}

/// Applies `note` to the last level.
fn mark(levels: &mut [Level], note: impl FnOnce(&mut Level)) {
    if let Some(level) = levels.last_mut() {
        note(level);
    }
}

/// Does something that needs write permission for a directory. If permission is missing, the
/// directory first gets mode 0700.
fn allowed<T>(directory: BorrowedFd, act: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    match act() {
        Err(Errno::ACCESS) if fchmod(directory, Mode::RWXU).is_ok() => act(),
        done => done,
    }
}

/// Opens a directory so that it can be listed. A link to a directory is an error.
fn open_to_empty(directory: BorrowedFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(directory, name, flags | OFlags::RDONLY, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            // The mode is changed through the descriptor, because a path that became a link
            // meanwhile would be followed.
            let place = openat(directory, name, flags | OFlags::PATH, Mode::empty())?;
            rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)?;
            open()
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use rustix::fs::mkdirat;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new() -> Place {
            let path = std::env::temp_dir().join(format!("larder-sys-{}", crate::random_u64()));
            fs::create_dir(&path).expect("makes");
            Place(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            remove_tree(&self.0).expect("removes");
        }
    }

    /// Creates directories inside each other, with a file in every tenth.
    fn nest(top: &Path, depth: usize) {
        fs::create_dir(top).expect("makes");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, top, flags, Mode::empty()).expect("opens");
        for level in 0..depth {
            mkdirat(&at, "d", Mode::RWXU).expect("makes");
            if level % 10 == 0 {
                let file = openat(&at, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR);
                file.expect("makes");
            }
            at = openat(&at, "d", flags, Mode::empty()).expect("opens");
        }
    }

    /// Runs `act` on a thread with a stack as small as that of the broker's threads.
    fn on_a_small_stack(act: impl FnOnce() + Send + 'static) {
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(act).expect("starts");
        thread.join().expect("ends");
    }

    #[test]
    fn deep_trees_need_few_descriptors_and_little_stack() {
        let place = Place::new();
        let top = place.path("top");
        nest(&top, 3000);
        // A second branch that is as deep.
        nest(&top.join("other"), 3000);
        let few = std::env::var_os("LARDER_TEST_FEW").is_some();
        if few {
            let limit = getrlimit(Resource::Nofile);
            setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).expect("sets");
        }
        let its = top.clone();
        on_a_small_stack(move || remove_tree(&its).expect("removes"));
        assert!(!top.exists());
        if !few {
            // Runs this test once more in a process that may open 64 descriptors.
            let mut again = std::process::Command::new(std::env::current_exe().expect("is known"));
            again.args(["--exact", "linux::remove::tests::deep_trees_need_few_descriptors_and_little_stack"]);
            let done = again.env("LARDER_TEST_FEW", "1").output().expect("runs");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
        }
    }

    #[test]
    fn wide_trees_and_all_kinds() {
        let place = Place::new();
        let (top, outside) = (place.path("top"), place.path("outside"));
        fs::create_dir_all(&outside).expect("makes");
        fs::write(outside.join("file"), b"").expect("writes");
        fs::create_dir(&top).expect("makes");
        for number in 0..2000 {
            fs::create_dir(top.join(format!("d{number}"))).expect("makes");
            fs::write(top.join(format!("d{number}/file")), b"").expect("writes");
        }
        symlink(&outside, top.join("link")).expect("links");
        rustix::fs::mknodat(CWD, top.join("fifo"), FileType::Fifo, Mode::RUSR, 0).expect("makes");
        for (name, mode) in [("d1", 0), ("d2", 0o500), ("d3", 0o300), ("d4/file", 0)] {
            fs::set_permissions(top.join(name), Permissions::from_mode(mode)).expect("changes");
        }
        fs::set_permissions(&top, Permissions::from_mode(0o500)).expect("changes");
        remove_tree(&top).expect("removes");
        assert!(!top.exists() && outside.join("file").exists());
        symlink(&outside, &top).expect("links");
        remove_tree(&top).expect("removes");
        assert!(fs::symlink_metadata(&top).is_err() && outside.join("file").exists());
        fs::write(&top, b"").expect("writes");
        remove_tree(&top).expect("removes");
        remove_tree(&top).expect("succeeds if nothing is there");
        remove_tree(&top.join("no/such")).expect("succeeds if nothing is there");
        assert!(!top.exists());
    }

    #[test]
    fn an_error_does_not_stop_the_rest() {
        if crate::effective_user() == 0 {
            // Only the superuser can create an entry that cannot be removed: a mount.
            let place = Place::new();
            let top = place.path("top");
            nest(&top, 40);
            let stays = top.join("d/d/stays");
            fs::create_dir(&stays).expect("makes");
            let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "larder"]).arg(&stays).status();
            if !mounted.is_ok_and(|status| status.success()) {
                return println!("skipped: mounting a tmpfs is not allowed here");
            }
            fs::write(stays.join("file"), b"").expect("writes");
            let error = remove_tree(&top).expect_err("a mount in the tree is an error");
            let is_there = stays.join("file").exists();
            let left = fs::read_dir(top.join("d/d")).expect("is there").count();
            assert!(std::process::Command::new("umount").arg(&stays).status().expect("runs").success());
            assert_eq!(error.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
            assert_eq!((is_there, left), (true, 1), "only the mount is left");
        } else {
            println!("skipped: only the superuser can mount");
        }
    }
}
