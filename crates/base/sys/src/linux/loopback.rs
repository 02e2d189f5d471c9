//! Files as loop devices, for file systems that need a block device.
//!
//! Unaware of: what is in the file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

const CONTROL_GET_FREE: u64 = 0x4c82;
const CONFIGURE: u64 = 0x4c0a;
const READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: the device releases its file when it is neither open nor mounted any more.
const LET_GO: u32 = 4;
/// How often a free device is requested. Other processes may take the free device first.
const TRIES_MAX: u32 = 64;

/// `struct loop_info64`.
#[repr(C)]
struct Information {
    numbers: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [u8; 160],
}

/// `struct loop_config`.
#[repr(C)]
struct Configuration {
    fd: u32,
    block_bytes: u32,
    information: Information,
    reserved: [u64; 8],
}

/// Makes a free loop device read from `file`. Returns the open device and its path.
///
/// The device releases the file with its last user, so the caller must keep it open until it is
/// mounted.
pub fn loop_device(file: impl AsFd) -> io::Result<(File, PathBuf)> {
    set_up(file, READ_ONLY | LET_GO)
}

/// Does the same as [`loop_device`] for a device that is also written to. `file` must be open for
/// writing.
pub fn writable_loop_device(file: impl AsFd) -> io::Result<(File, PathBuf)> {
    set_up(file, LET_GO)
}

fn set_up(file: impl AsFd, flags: u32) -> io::Result<(File, PathBuf)> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..TRIES_MAX {
        // SAFETY: no pointer is passed; the result is a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), CONTROL_GET_FREE as _) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = OpenOptions::new().read(true).write(flags & READ_ONLY == 0).open(&path)?;
        // SAFETY: plain integers and bytes, for which zeros are valid.
        let mut configuration: Configuration = unsafe { std::mem::zeroed() };
        configuration.fd = file.as_fd().as_raw_fd() as u32;
        configuration.information.flags = flags;
        // SAFETY: the kernel reads our own structure, which has the size that the request expects.
        if unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE as _, &raw const configuration) } == 0 {
            return Ok((device, path));
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EBUSY) => {}
            error => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::ResourceBusy))
}
