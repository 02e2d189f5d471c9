//! POSIX record locks on single bytes of a file. The locked bytes may lie beyond the end of the
//! file.
//!
//! A lock belongs to the process, and no child inherits it. It is released when the process ends,
//! or when the process closes any descriptor of the file. So `execve` releases it, too, unless the
//! new program inherits the descriptor.
//!
//! Unaware of: what a byte stands for.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The bytes that can be locked have offsets below this.
pub const LOCKED_BYTES_MAX: u64 = 1 << 62;

/// Takes the lock of the byte at `at`. Returns false if another process has it. The file must be
/// open for writing. Fails if the file system has no locks, or if the kernel has no more of them.
pub fn try_lock_byte(file: &File, at: u64) -> io::Result<bool> {
    match control(file, libc::F_SETLK, libc::F_WRLCK, at, 1) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the process that has the lock of the byte at `at`, if another process has it. The number
/// is 0 if that process is in a pid namespace that we cannot see.
pub fn byte_locked_by(file: &File, at: u64) -> io::Result<Option<u32>> {
    bytes_locked_by(file, at, 1)
}

/// Returns a process that has the lock of one of `count` bytes from `from` on, if another process
/// has one. The number is 0 in the case that [`byte_locked_by`] describes.
pub fn bytes_locked_by(file: &File, from: u64, count: u64) -> io::Result<Option<u32>> {
    let found = control(file, libc::F_GETLK, libc::F_WRLCK, from, count)?;
    Ok((found.l_type != libc::F_UNLCK as libc::c_short).then(|| u32::try_from(found.l_pid).unwrap_or(0)))
}

/// Releases our lock of the byte at `at`.
pub fn unlock_byte(file: &File, at: u64) -> io::Result<()> {
    unlock_bytes(file, at, 1)
}

/// Releases our locks of `count` bytes from `from` on.
pub fn unlock_bytes(file: &File, from: u64, count: u64) -> io::Result<()> {
    control(file, libc::F_SETLK, libc::F_UNLCK, from, count).map(drop)
}

fn control(file: &File, what: libc::c_int, kind: libc::c_int, at: u64, count: u64) -> io::Result<libc::flock> {
    // SAFETY: the structure has only integers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = (at % LOCKED_BYTES_MAX) as libc::off_t;
    lock.l_len = count as libc::off_t;
    loop {
        // SAFETY: the descriptor is open, and the kernel reads and fills our own structure.
        if unsafe { libc::fcntl(file.as_raw_fd(), what, &mut lock) } == 0 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
