//! Locks on single bytes of a file, which need not have so many.
//!
//! They belong to the process: no child inherits one, and it is gone when the process ends or closes any descriptor of
//! the file. So it is when it becomes another program, unless that inherits the descriptor. Unaware of: what a byte
//! stands for.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Bytes that can be locked are below this.
pub const LOCKED_BYTES_MAX: u64 = 1 << 62;

/// Take the lock of the byte at `at`, if nobody has it. The file must be open for writing. Errors where the file system
/// or the kernel has no more locks, or none at all.
pub fn try_lock_byte(file: &File, at: u64) -> io::Result<bool> {
    match control(file, libc::F_SETLK, libc::F_WRLCK, at, 1) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Which other process has the lock of the byte at `at`, if one has; 0 where it is in a namespace that is not ours.
pub fn byte_locked_by(file: &File, at: u64) -> io::Result<Option<u32>> {
    bytes_locked_by(file, at, 1)
}

/// Which other process has the lock of one of `count` bytes from `from` on, if one has; as [`byte_locked_by`] says it.
pub fn bytes_locked_by(file: &File, from: u64, count: u64) -> io::Result<Option<u32>> {
    let found = control(file, libc::F_GETLK, libc::F_WRLCK, from, count)?;
    Ok((found.l_type != libc::F_UNLCK as libc::c_short).then(|| u32::try_from(found.l_pid).unwrap_or(0)))
}

/// Give up our lock of the byte at `at`.
pub fn unlock_byte(file: &File, at: u64) -> io::Result<()> {
    unlock_bytes(file, at, 1)
}

/// Give up our locks of `count` bytes from `from` on.
pub fn unlock_bytes(file: &File, from: u64, count: u64) -> io::Result<()> {
    control(file, libc::F_SETLK, libc::F_UNLCK, from, count).map(drop)
}

fn control(file: &File, what: libc::c_int, kind: libc::c_int, at: u64, count: u64) -> io::Result<libc::flock> {
    // SAFETY: numbers only; all zeros is one.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = (at % LOCKED_BYTES_MAX) as libc::off_t;
    lock.l_len = count as libc::off_t;
    loop {
        // SAFETY: an open descriptor, and a lock of ours to read and fill.
        if unsafe { libc::fcntl(file.as_raw_fd(), what, &mut lock) } == 0 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
