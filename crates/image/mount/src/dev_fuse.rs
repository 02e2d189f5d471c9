//! Opens `/dev/fuse` and mounts a FUSE file system that is answered through it.
//!
//! Unaware of: what the file system holds, and which process answers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use larder_sys::{MountValue, new_mount};

use crate::layer::LAYER;
use crate::{Mount, MountError};

pub(crate) const DEVICE: &str = "/dev/fuse";

pub(crate) fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

/// Mounts a file system that is answered through the open `/dev/fuse` descriptor `device`,
/// read-only and detached. The kernel checks permissions by the modes and owners that the file
/// system reports (`default_permissions`). All users may access it (`allow_other`).
pub(crate) fn mount_device(device: BorrowedFd) -> Result<Mount, MountError> {
    let number = device.as_raw_fd().to_string();
    let (user, group) = (larder_sys::effective_user().to_string(), larder_sys::effective_group().to_string());
    let text = |text: &'static str| MountValue::Text(text.as_bytes());
    let options = [
        ("source", text("larder")),
        ("subtype", text("larder")),
        ("fd", MountValue::Text(number.as_bytes())),
        ("rootmode", text("40000")),
        ("user_id", MountValue::Text(user.as_bytes())),
        ("group_id", MountValue::Text(group.as_bytes())),
        ("default_permissions", MountValue::Flag),
        ("allow_other", MountValue::Flag),
        ("ro", MountValue::Flag),
    ];
    new_mount("fuse", &options, LAYER).map(Mount::passed).map_err(MountError::refused("a FUSE file system"))
}
