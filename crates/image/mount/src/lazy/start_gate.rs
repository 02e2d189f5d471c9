//! Starts a gate, the process that keeps the FUSE device open.
//!
//! Unaware of: what a gate does.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use larder_sys::{Channel, Door};

use super::channel::{GateChannel, Message};
use super::device::Device;
use super::units::UNIT_BYTES;

pub(super) const GATE: &str = "gate2.sock";

/// Starts a gate and passes it the device, the root of its file system and the door.
pub(super) fn start_gate(
    directory: &Path,
    gate: &[OsString],
    size_bytes: u64,
    device: &Device,
    root: BorrowedFd,
) -> io::Result<GateChannel> {
    let path = directory.join(GATE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let door = Door::open(&path)?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let (ours, theirs) = Channel::pair()?;
    let (program, arguments) = gate.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
    let line = GateChannel::new(ours);
    let passed = [device.as_fd(), root, door.descriptor()];
    line.send(Message::Begin(size_bytes, UNIT_BYTES), &passed)?;
    // The gate ends when it is no longer needed. This thread collects its exit status, if this
    // process still exists.
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || child.wait())?;
    Ok(line)
}
