//! Lookups that start at an open directory, and opening a directory without following links.
//!
//! Unaware of: why a path is looked up.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::files::{file_trust, real_path_of, statx, with_c_path};
use super::newer::Newer;
use crate::{FileType, Stat, Trust};

/// Descriptors above this are not kept open until the process ends. A process may have 1,024 by
/// default.
const KEPT_OPEN_MAX: i32 = 256;

/// Flags that open a directory only as a starting point for lookups.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// The kernel refuses paths of this length or longer with ENAMETOOLONG. The length is in bytes and
/// includes the final zero.
const PATH_BYTES_MAX: usize = 4096;

/// `openat2`, Linux 5.6.
static OPENAT2: Newer = Newer::new();

/// A directory that is open as a starting point for lookups (`O_PATH`).
pub struct Dir(OwnedFd);

impl Dir {
    /// Opens `path`. With `refuse_links`, a symbolic link anywhere in it is an error (ELOOP).
    pub fn open(path: &[u8], refuse_links: bool) -> io::Result<Dir> {
        match refuse_links {
            true => Ok(Dir(open_without_links(CWD, path)?)),
            false => Ok(Dir(with_c_path(path, |path| fs::openat(CWD, path, DIRECTORY, Mode::empty()))?)),
        }
    }

    /// Opens a directory in this one. A symbolic link is an error (ELOOP).
    pub fn open_in(&self, name: &[u8]) -> io::Result<Dir> {
        Ok(Dir(open_without_links(self.0.as_fd(), name)?))
    }

    /// Keeps the directory open until the process ends, because that closes all descriptors at
    /// once. It is closed now if its descriptor is `KEPT_OPEN_MAX` or more.
    pub fn keep_open(self) {
        if self.0.as_raw_fd() < KEPT_OPEN_MAX {
            std::mem::forget(self.0);
        }
    }

    /// Runs `lstat` on a name in this directory.
    pub fn lstat(&self, name: &[u8]) -> io::Result<Stat> {
        statx(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Runs `stat` on a name in this directory.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        statx(&self.0, name, AtFlags::empty())
    }

    /// Runs `fstat` on this directory.
    pub fn itself(&self) -> io::Result<Stat> {
        statx(&self.0, b"", AtFlags::EMPTY_PATH)
    }

    /// Returns how many blocks of 512 bytes a name in this directory takes, with links followed. With
    /// an empty name, it is the directory itself.
    pub fn blocks(&self, name: &[u8]) -> io::Result<u64> {
        let name = if name.is_empty() { b"." } else { name };
        let stat = with_c_path(name, |name| fs::statat(&self.0, name, AtFlags::empty()))?;
        Ok(stat.st_blocks as u64)
    }

    /// Returns the directory's path with all links resolved.
    pub fn real_path(&self) -> io::Result<Vec<u8>> {
        real_path_of(&self.0)
    }

    /// Returns the target of a symbolic link in this directory.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(&self.0, name, Vec::new())?.into_bytes())
    }

    /// Opens a file in this directory for reading. Never waits for the writer of a FIFO.
    pub fn open_file(&self, name: &[u8]) -> io::Result<File> {
        self.open_with(name, OFlags::empty())
    }

    /// Opens a file as [`Dir::open_file`] does. If the name is a symbolic link, this is an error.
    pub fn open_plain_file(&self, name: &[u8]) -> io::Result<File> {
        self.open_with(name, OFlags::NOFOLLOW)
    }

    fn open_with(&self, name: &[u8], also: OFlags) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        Ok(File::from(fs::openat(&self.0, name, flags | also, Mode::empty())?))
    }

    /// Checks whether this process may execute (1), write (2) or read (4) a name in this directory,
    /// as `access` does.
    pub fn access(&self, name: &[u8], rights: u8) -> io::Result<()> {
        let wanted = fs::Access::from_bits_truncate(rights.into());
        Ok(fs::accessat(&self.0, name, wanted, AtFlags::empty())?)
    }

    /// Returns what an unchanged ctime proves on this directory's file system.
    pub fn trust(&self) -> io::Result<Trust> {
        file_trust(&self.0)
    }

    /// Returns the names in this directory except `.` and `..`, in the file system's order.
    ///
    /// Each comes with its type: the file type bits of a mode, shifted right by 12. The type is 0
    /// if the file system does not report it.
    pub fn names(&self) -> io::Result<Vec<(Vec<u8>, u8)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = fs::openat(&self.0, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&readable)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push((name, (entry.file_type().as_raw_mode() >> 12) as u8));
            }
        }
        Ok(names)
    }
}

/// Opens the directory at `path`. A symbolic link anywhere in it is an error (ELOOP).
fn open_without_links(from: BorrowedFd, path: &[u8]) -> io::Result<OwnedFd> {
    let at_once =
        || with_c_path(path, |path| fs::openat2(from, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS));
    OPENAT2.or(at_once, || walk_without_links(from, path))
}

/// Opens the directory at `path` as `openat2` does with `RESOLVE_NO_SYMLINKS`, but without that
/// call.
///
/// Each component is opened in the directory that was opened before it. So a component that is
/// replaced by a link meanwhile is not followed either.
fn walk_without_links(from: BorrowedFd, path: &[u8]) -> io::Result<OwnedFd> {
    if path.len() >= PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let open = |from: BorrowedFd, name: &[u8]| {
        let opened = with_c_path(name, |name| fs::openat(from, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()));
        // With `O_DIRECTORY`, opening a link fails with ENOTDIR instead of ELOOP.
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => {
                let found = statx(from, name, AtFlags::SYMLINK_NOFOLLOW);
                let is_link = found.is_ok_and(|found| found.kind == FileType::Link);
                Err(if is_link { Errno::LOOP.into() } else { error })
            }
            opened => opened,
        }
    };
    let first: &[u8] = match path {
        [] => return Err(Errno::NOENT.into()),
        [b'/', ..] => b"/",
        _ => b".",
    };
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.fold(open(from, first), |above, name| open(above?.as_fd(), name))
}

#[cfg(test)]
mod tests {
    use super::super::files::by_statx;
    use super::super::files::tests::Scratch;
    use super::super::newer::is_refusal;
    use super::*;

    #[test]
    fn a_walk_opens_what_openat2_opens() {
        let scratch = Scratch::new();
        let there = |below: &str| scratch.0.join(below);
        std::fs::create_dir_all(there("a/b")).expect("makes");
        std::fs::write(there("a/file"), "").expect("writes");
        for (target, link) in [("b", "a/link"), ("..", "a/up"), ("file", "a/to-file"), ("nothing", "a/dangling")] {
            std::os::unix::fs::symlink(target, there(link)).expect("links");
        }
        let below = [
            "",
            "/",
            "/a",
            "//a/./b/",
            "/a/b/..",
            "/a/b/../b",
            "/..",
            "/a/link",
            "/a/link/",
            "/a/link/..",
            "/a/up/a",
            "/a/file",
            "/a/file/",
            "/a/file/x",
            "/a/to-file",
            "/a/dangling",
            "/a/dangling/x",
            "/a/none",
            "/none/../a",
        ];
        let whole = below.iter().map(|below| scratch.path(below));
        let long = [scratch.path(&"/.".repeat(PATH_BYTES_MAX)), scratch.path(&format!("/{}", "x".repeat(300)))];
        let others = [&b""[..], b"/", b".", b"..", b"/proc/self", b"/proc/self/cwd", b"a\0b"].map(<[u8]>::to_vec);
        let inode = |opened: io::Result<OwnedFd>| {
            opened.and_then(|dir| by_statx(dir.as_fd(), b"", AtFlags::EMPTY_PATH)).map(|stat| stat.file_id())
        };
        let numbered = |found: io::Result<_>| found.map_err(|error| (error.raw_os_error(), error.kind()));
        for path in whole.chain(long).chain(others) {
            let by_call =
                with_c_path(&path, |path| fs::openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS));
            if by_call.as_ref().is_err_and(is_refusal) {
                return eprintln!("skipped: openat2 is missing or refused here");
            }
            let by_walk = walk_without_links(CWD, &path);
            assert_eq!(numbered(inode(by_walk)), numbered(inode(by_call)), "{}", String::from_utf8_lossy(&path));
        }
    }
}
