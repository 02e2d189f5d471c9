//! Files as block devices, for file systems that want one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

const CONTROL_GET_FREE: u64 = 0x4c82;
const CONFIGURE: u64 = 0x4c0a;
const READ_ONLY: u32 = 1;
/// The device lets go of its file once nobody has it open or mounted.
const LET_GO: u32 = 4;
/// Others ask for free devices as well: so often it is tried again.
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

/// Make a free loop device read from `file`. It lets go of the file with its last user: keep what is returned open
/// until the device is mounted.
pub fn loop_device(file: impl AsFd) -> io::Result<(File, PathBuf)> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    for _ in 0..TRIES_MAX {
        // SAFETY: takes and gives a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), CONTROL_GET_FREE as _) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = File::open(&path)?;
        // SAFETY: plain integers and bytes, for which zeros are valid.
        let mut configuration: Configuration = unsafe { std::mem::zeroed() };
        configuration.fd = file.as_fd().as_raw_fd() as u32;
        configuration.information.flags = READ_ONLY | LET_GO;
        // SAFETY: reads a structure of ours, of the size that the call has.
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
