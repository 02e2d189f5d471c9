//! `stat` and `lstat` of paths, and ways of opening, reading, locking and renaming files that
//! `std::fs` does not have.
//!
//! Unaware of: what is in a file, and why it is read; lookups that start at a directory (`dir.rs`).

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::newer::Newer;
use crate::{FileType, Stat, Trust};

/// `STATX_MNT_ID_UNIQUE`, Linux 6.8: the number of a mount, which is never reused while the system
/// runs.
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;
/// The major device number of loop devices. Their device numbers are reused for other images.
const LOOP_MAJOR: u32 = 7;

pub(super) const EXT_MAGIC: u64 = 0xEF53;
pub(super) const OVERLAY_MAGIC: u64 = 0x794C_7630;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683E;
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// `statx`, Linux 4.11. Docker refused it until 18.04.
static STATX: Newer = Newer::new();
/// `faccessat2`, Linux 5.8.
static FACCESSAT2: Newer = Newer::new();

/// Returns the path of an open file as the kernel has it now, with all links resolved.
pub fn real_path_of(fd: impl AsFd) -> io::Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    Ok(fs::readlink(link, Vec::new())?.into_bytes())
}

/// Runs `lstat` on a path.
pub fn lstat(path: &[u8]) -> io::Result<Stat> {
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
}

/// Runs `stat` on a path.
pub fn stat(path: &[u8]) -> io::Result<Stat> {
    statx(CWD, path, AtFlags::empty())
}

/// Returns the path of the running program's file, and the result of its `lstat`. The path does not
/// end in a link.
///
/// The path from the kernel's auxiliary vector (`AT_EXECFN`) is usually right and costs one
/// `lstat`. Reading `/proc/self/exe` costs 20 times as much, because the kernel creates a `/proc`
/// directory for the process.
pub fn own_program() -> io::Result<(Vec<u8>, Stat)> {
    const PROC: &[u8] = b"/proc/self/exe";
    // A smaller file is a script that names the program after `#!`.
    const PROGRAM_BYTES_MIN: u64 = 64 << 10;
    // SAFETY: the call only reads the auxiliary vector. The kernel's string lives as long as the
    // process.
    let name = unsafe {
        let name = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        if name.is_null() { &[][..] } else { CStr::from_ptr(name).to_bytes() }
    };
    let is_path = name.starts_with(b"/") && ![&b"/proc/"[..], b"/dev/"].iter().any(|other| name.starts_with(other));
    if is_path
        && let Ok(found) = lstat(name)
        && found.kind == FileType::File
        && found.size_bytes >= PROGRAM_BYTES_MIN
    {
        return Ok((name.to_vec(), found));
    }
    Ok((fs::readlink(PROC, Vec::new())?.into_bytes(), stat(PROC)?))
}

/// Checks whether this process may execute (1), write (2) or read (4) the file at `path`. Links are
/// followed. The effective ids are used if `effective` is true, and otherwise the real ids.
pub fn may_access(path: &[u8], rights: u8, effective: bool) -> io::Result<()> {
    let wanted = fs::Access::from_bits_truncate(rights.into());
    let by = |flags| with_c_path(path, |path| fs::accessat(CWD, path, wanted, flags));
    if !effective {
        return by(AtFlags::empty());
    }
    FACCESSAT2.or(
        || by(AtFlags::EACCESS),
        // If the real ids are the effective ones, the older call gives the same result. That is so
        // in every program that is not set-user-id.
        || if ids_are_real() { by(AtFlags::empty()) } else { Err(Errno::NOSYS.into()) },
    )
}

fn ids_are_real() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() == geteuid() && getgid() == getegid()
}

/// Returns true if this process may lack a right to the file or directory with this `stat`: not every
/// user has it, and it is not this user's own. `right` is 4 to read it, or 1 to search it.
pub fn may_be_barred(stat: &Stat, right: u32) -> bool {
    let (all, owners) = (right * 0o111, right << 6);
    // SAFETY: only reads the auxiliary vector.
    let is_own = || u64::from(stat.owner) == unsafe { libc::getauxval(libc::AT_EUID) };
    let is_permitted = stat.mode & all == all || stat.mode & owners != 0 && is_own();
    !is_permitted
}

/// Returns the user and the group that files of this process get, unless a directory hands on its
/// group.
pub fn own_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Returns true if this process may write to the file at `path`, as `access` does with the real
/// ids.
pub fn may_write(path: &[u8]) -> bool {
    fs::access(path, fs::Access::WRITE_OK).is_ok()
}

/// Checks whether this process may create and remove names in the directory at `path`. The error
/// says why not.
pub fn may_make_in(path: &[u8]) -> io::Result<()> {
    Ok(fs::access(path, fs::Access::WRITE_OK | fs::Access::EXEC_OK)?)
}

/// Returns true if the file at `path` has extended attributes beyond the labels that a security
/// module gives every file. Also returns true if they cannot be listed.
pub fn has_attributes(path: &[u8]) -> bool {
    const LIST_BYTES: usize = 4096;
    let mut list = [0; LIST_BYTES];
    match fs::llistxattr(path, &mut list) {
        Ok(length) => list[..length]
            .split(|byte| *byte == 0)
            .any(|name| !name.is_empty() && (!name.starts_with(b"security.") || name == b"security.capability")),
        Err(error) => error != rustix::io::Errno::NOTSUP,
    }
}

/// The way in which a file is opened. It is closed on exec, and opening never waits for the other
/// end of a FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// For reading.
    Read,
    /// For reading. A link as the last component is an error.
    ReadPlain,
    /// For reading and writing. A link as the last component is an error.
    ChangePlain,
    /// For reading and writing. If the file does not exist, it is created with mode 0600. A link as
    /// the last component is an error.
    MakePlain,
    /// For writing. The file must not exist, and is created with this mode less the umask.
    New(u32),
}

/// Opens a file by one system call. The C library's `open` makes a second one (`fcntl`), for
/// kernels that do not know `O_CLOEXEC`.
pub fn open(path: &[u8], opening: Opening) -> io::Result<File> {
    const QUIET: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);
    let (flags, mode) = match opening {
        Opening::Read => (QUIET, 0),
        Opening::ReadPlain => (QUIET | OFlags::NOFOLLOW, 0),
        Opening::ChangePlain => (OFlags::RDWR | QUIET | OFlags::NOFOLLOW, 0),
        Opening::MakePlain => (OFlags::RDWR | OFlags::CREATE | QUIET | OFlags::NOFOLLOW, 0o600),
        Opening::New(mode) => (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode),
    };
    let open = |path: &CStr| fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(mode));
    Ok(File::from(with_c_path(path, |path| rustix::io::retry_on_intr(|| open(path)))?))
}

/// Runs `fstat` on an open file.
pub fn fstat(file: impl AsFd) -> io::Result<Stat> {
    statx(file, b"", AtFlags::EMPTY_PATH)
}

/// Returns true if an open file can be written through this descriptor. A file that was opened with
/// `O_PATH` cannot.
pub fn is_open_for_writing(file: impl AsFd) -> bool {
    let flags = fs::fcntl_getfl(file).unwrap_or(OFlags::RDONLY);
    !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE != OFlags::RDONLY
}

/// Returns true if any process has the file open for writing, or if that cannot be told. `file` is
/// open for reading.
pub fn has_writers(file: impl AsFd) -> bool {
    const F_SETSIG: libc::c_int = 10;
    const F_SETLEASE: libc::c_int = 1024;
    let fd = file.as_fd().as_raw_fd();
    // The kernel grants a read lease only if nothing has the file open for writing. If it is opened
    // while we have the lease, the signal is one that is ignored.
    // SAFETY: takes numbers.
    unsafe {
        let is_granted = libc::fcntl(fd, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(fd, F_SETLEASE, libc::c_int::from(libc::F_RDLCK)) == 0;
        !is_granted || libc::fcntl(fd, F_SETLEASE, libc::c_int::from(libc::F_UNLCK)) != 0
    }
}

/// Runs `fstat` on a standard descriptor: 0, 1 or 2.
pub fn standard_stat(fd: i32) -> io::Result<Stat> {
    match fd {
        0 => statx(rustix::stdio::stdin(), b"", AtFlags::EMPTY_PATH),
        1 => statx(rustix::stdio::stdout(), b"", AtFlags::EMPTY_PATH),
        _ => statx(rustix::stdio::stderr(), b"", AtFlags::EMPTY_PATH),
    }
}

/// Returns what an unchanged ctime proves on the file system of an open file.
///
/// Only file systems whose ctime comes from the running kernel's clock are trusted. On tmpfs, a
/// hard link that is made within one clock tick leaves its directory's times unchanged. The files
/// of images (EROFS, squashfs) have stored times. For overlayfs, nothing is proved about the lower
/// layers.
pub fn file_trust(fd: impl AsFd) -> io::Result<Trust> {
    let magic = fs::fstatfs(fd)?.f_type as u64;
    Ok(match magic {
        EXT_MAGIC | XFS_MAGIC | BTRFS_MAGIC => Trust { files: true, directories: true },
        TMPFS_MAGIC => Trust { files: true, directories: false },
        _ => Trust::NONE,
    })
}

/// Returns true if the kernel has multigrain timestamps (Linux 6.13). All file systems that
/// `file_trust` trusts then use them.
///
/// With them, once a file's ctime was read, the next change gets a different ctime, even within one
/// clock tick.
pub fn times_are_multigrain() -> bool {
    let name = rustix::system::uname();
    let mut numbers = name.release().to_bytes().split(|b| !b.is_ascii_digit());
    let mut next = || numbers.next().and_then(|n| std::str::from_utf8(n).ok()?.parse::<u32>().ok()).unwrap_or(0);
    (next(), next()) >= (6, 13)
}

/// Calls `call` with the path as a C string.
///
/// It does what rustix does, but in one pass, because paths are short and a hit has hundreds of
/// them.
pub(super) fn with_c_path<T>(path: &[u8], call: impl FnOnce(&CStr) -> rustix::io::Result<T>) -> io::Result<T> {
    const SHORT_BYTES: usize = 256;
    let mut buffer = [MaybeUninit::<u8>::uninit(); SHORT_BYTES];
    if path.len() >= SHORT_BYTES {
        return Ok(call(&super::process::c_string(path)?)?);
    }
    let mut holds_zero = false;
    for (to, from) in buffer.iter_mut().zip(path) {
        to.write(*from);
        holds_zero |= *from == 0;
    }
    buffer[path.len()].write(0);
    if holds_zero {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: this many bytes were written above, and only the last of them is zero.
    let path = unsafe {
        CStr::from_bytes_with_nul_unchecked(std::slice::from_raw_parts(buffer.as_ptr().cast(), path.len() + 1))
    };
    Ok(call(path)?)
}

#[inline]
pub(super) fn statx(dir: impl AsFd, name: &[u8], flags: AtFlags) -> io::Result<Stat> {
    STATX.or(|| by_statx(dir.as_fd(), name, flags), || by_stat(dir.as_fd(), name, flags))
}

#[inline]
pub(super) fn by_statx(dir: BorrowedFd, name: &[u8], flags: AtFlags) -> io::Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let st = with_c_path(name, |name| fs::statx(dir, name, flags | AtFlags::NO_AUTOMOUNT, mask))?;
    let nanoseconds = |t: fs::StatxTimestamp| t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec.into());
    // Without unique numbers (before Linux 6.8), the lower bits are zero. A `volume` of exactly
    // 2^63 is never trusted.
    let unique = if st.stx_mask & STATX_MNT_ID_UNIQUE != 0 { st.stx_mnt_id } else { 0 };
    Ok(Stat {
        kind: FileType::of_code((u32::from(st.stx_mode) >> 12) as u8),
        mode: u32::from(st.stx_mode) & 0o7777,
        volume: volume(st.stx_dev_major, st.stx_dev_minor, unique),
        device: device(st.stx_dev_major, st.stx_dev_minor),
        inode: st.stx_ino,
        size_bytes: st.stx_size,
        modified_ns: nanoseconds(st.stx_mtime),
        changed_ns: nanoseconds(st.stx_ctime),
        links: st.stx_nlink,
        owner: st.stx_uid,
        group: st.stx_gid,
    })
}

/// Runs `fstatat`, which every kernel has. It reports everything that `statx` does except the
/// number of the mount.
#[cold]
fn by_stat(dir: BorrowedFd, name: &[u8], flags: AtFlags) -> io::Result<Stat> {
    let st = with_c_path(name, |name| fs::statat(dir, name, flags | AtFlags::NO_AUTOMOUNT))?;
    let nanoseconds = |s: i64, ns: u64| s.saturating_mul(1_000_000_000).saturating_add(ns as i64);
    let (major, minor) = (fs::major(st.st_dev), fs::minor(st.st_dev));
    Ok(Stat {
        kind: FileType::of_code((st.st_mode >> 12) as u8),
        mode: st.st_mode & 0o7777,
        volume: volume(major, minor, 0),
        device: device(major, minor),
        inode: st.st_ino,
        size_bytes: st.st_size as u64,
        modified_ns: nanoseconds(st.st_mtime as _, st.st_mtime_nsec as _),
        changed_ns: nanoseconds(st.st_ctime as _, st.st_ctime_nsec as _),
        links: st.st_nlink as _,
        owner: st.st_uid,
        group: st.st_gid,
    })
}

fn device(major: u32, minor: u32) -> u64 {
    u64::from(major) << 32 | u64::from(minor)
}

/// Returns a number that identifies a file system while the system runs. It is the device number,
/// or the mount's unique number if the device number may be reused soon.
fn volume(major: u32, minor: u32, unique: u64) -> u64 {
    if major != 0 && major != LOOP_MAJOR { device(major, minor) } else { 1 << 63 | unique }
}

/// Reads all of a file whose size was just found to be `size_bytes`. It takes one call if the size
/// has not changed since.
pub fn read_sized(mut file: &File, size_bytes: u64) -> io::Result<Vec<u8>> {
    let size = usize::try_from(size_bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size.saturating_add(1)).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let read = rustix::io::retry_on_intr(|| rustix::io::read(file, rustix::buffer::spare_capacity(&mut bytes)))?;
    // The call asked for one byte more. So reading exactly `size` bytes means that the file ends
    // there.
    if read != size {
        io::Read::read_to_end(&mut file, &mut bytes)?;
    }
    Ok(bytes)
}

/// Reads the whole file at a path; links are followed. Returns `None` if it has more than
/// `bytes_max` bytes.
pub fn read_at_most(path: &[u8], bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    read_rest_at_most(&open(path, Opening::Read)?, bytes_max)
}

/// Reads the rest of an open file. Returns `None` if it has more than `bytes_max` bytes.
pub fn read_rest_at_most(file: &File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let size_bytes = fstat(file)?.size_bytes;
    if size_bytes > bytes_max {
        return Ok(None);
    }
    // One byte more than the size, so that one call reads all of it. A device has size 0 and may
    // never end.
    let mut bytes = Vec::with_capacity(size_bytes as usize + 1);
    io::Read::read_to_end(&mut io::Read::take(file, bytes_max + 1), &mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

/// Returns the path of these bytes.
pub fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Returns a path of an open file that is valid as long as this process has it open.
pub fn volatile_path(file: &File) -> Vec<u8> {
    format!("/proc/{}/fd/{}", crate::process_id(), file.as_raw_fd()).into_bytes()
}

/// Renames a file to a name that does not exist yet. Returns false if the name exists. Also returns
/// false if the file system can neither rename this way nor create hard links.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::renameat_with(CWD, from, CWD, to, fs::RenameFlags::NOREPLACE) {
        // The call is missing before Linux 3.15, on some file systems (NFS), and in old seccomp
        // profiles.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => link_new(from, to),
        Err(Errno::EXIST) => Ok(false),
        done => done.map(|()| true).map_err(io::Error::from),
    }
}

/// Does what `rename_new` does, by creating a hard link and removing the old name.
fn link_new(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::linkat(CWD, from, CWD, to, AtFlags::empty()) {
        Ok(()) => {
            let _ = fs::unlink(from);
            Ok(true)
        }
        // The caller creates the directory if it is missing.
        Err(Errno::NOENT) => Err(Errno::NOENT.into()),
        Err(_) => Ok(false),
    }
}

/// Waits for the exclusive lock of `file` (`flock`). It is held until the file is closed.
pub fn write_lock(file: &File) -> io::Result<()> {
    loop {
        match fs::flock(file, fs::FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Takes the exclusive lock of `file`. Returns false if the file is locked.
pub fn try_write_lock(file: &File) -> io::Result<bool> {
    match fs::flock(file, fs::FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        done => done.map(|()| true).map_err(io::Error::from),
    }
}

/// Returns true if the exclusive lock of `file` is held. If not, this takes a shared lock, which is
/// held until the file is closed.
pub fn is_write_locked(file: &File) -> io::Result<bool> {
    match fs::flock(file, fs::FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        done => done.map(|()| false).map_err(io::Error::from),
    }
}

/// Returns 64 random bits, for the names of temporary files.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => now_mixed(),
    }
}

fn now_mixed() -> u64 {
    (crate::now_coarse_ns() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(crate::process_id()) << 40
}

/// Returns the kernel's id of this boot. Stamps are valid only during one boot.
pub fn boot_id() -> io::Result<String> {
    let file = fs::open("/proc/sys/kernel/random/boot_id", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // The kernel writes all of it at once: 36 characters and a line feed.
    let mut text = [0; 64];
    let count = rustix::io::read(&file, &mut text)?;
    let is_of_id = |c: &u8| c.is_ascii_hexdigit() || *c == b'-';
    let id: String = text[..count].iter().take_while(|c| is_of_id(c)).map(|c| char::from(*c)).collect();
    if id.len() < 16 { Err(io::Error::other("/proc/sys/kernel/random/boot_id has no boot id")) } else { Ok(id) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::newer::is_refusal;
    use super::*;

    /// A directory that is removed with its content when it is dropped.
    pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

    impl Scratch {
        pub(crate) fn new() -> Scratch {
            let path = std::env::temp_dir().join(format!("larder-files-{:016x}", random_u64()));
            std::fs::create_dir(&path).expect("makes");
            Scratch(path.canonicalize().expect("is there"))
        }

        pub(crate) fn path(&self, below: &str) -> Vec<u8> {
            format!("{}{below}", self.0.display()).into_bytes()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn older_calls_say_the_same() {
        let scratch = Scratch::new();
        std::os::unix::fs::symlink("nothing", scratch.0.join("link")).expect("links");
        for (path, flags) in [
            (scratch.path(""), AtFlags::empty()),
            (scratch.path("/link"), AtFlags::SYMLINK_NOFOLLOW),
            (scratch.path("/link"), AtFlags::empty()),
            (b"/proc/self/exe".to_vec(), AtFlags::empty()),
            (b"/dev/null".to_vec(), AtFlags::empty()),
        ] {
            let without_mount = |stat: io::Result<Stat>| {
                stat.map(|stat| Stat { volume: stat.volume & !(1 << 63) & stat.device, ..stat })
                    .map_err(|error| error.raw_os_error())
            };
            let new = by_statx(CWD, &path, flags);
            if new.as_ref().is_err_and(is_refusal) {
                return eprintln!("skipped: statx is missing or refused here");
            }
            assert_eq!(without_mount(by_stat(CWD, &path, flags)), without_mount(new));
        }
    }

    #[test]
    fn a_name_is_taken_once() {
        let scratch = Scratch::new();
        let name = |name: &str| scratch.0.join(name);
        for (rename, to) in [(rename_new as fn(&Path, &Path) -> _, name("one")), (link_new, name("two"))] {
            for (from, taken) in [(name("first"), true), (name("second"), false)] {
                std::fs::write(&from, from.as_os_str().as_encoded_bytes()).expect("writes");
                assert_eq!(rename(&from, &to).expect("renames"), taken);
                assert_eq!(from.exists(), !taken);
            }
            assert!(std::fs::read(&to).expect("reads").ends_with(b"first"));
            assert!(
                rename(&name("second"), &name("none/x")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            );
        }
    }

    #[test]
    fn no_more_is_read_than_asked_for() {
        let name = read_at_most(b"/proc/self/comm", 4096).expect("reads").expect("is short");
        assert!(name.ends_with(b"\n"), "its size is 0, but it has content");
        assert_eq!(read_at_most(b"/proc/self/comm", name.len() as u64 - 1).expect("reads"), None);
        assert_eq!(read_at_most(b"/dev/zero", 4096).expect("reads"), None);
    }
}
