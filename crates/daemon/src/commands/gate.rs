//! `larderd gate`: the process that holds back reads of a lazily mounted image while no filler
//! runs.
//!
//! Unaware of: what is read, and which program fills.

use std::ffi::OsString;
use std::os::fd::AsFd;

use anyhow::{Context, Result};

use super::FINE;

/// Runs as the gate until it is not needed any more. `rescue` is the command that starts a filler:
/// directory, program, arguments.
pub(crate) fn run(rescue: Vec<OsString>) -> Result<u8> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("standard input is closed")?;
    larder_mount::lazy::gate(socket, rescue)
        .context("`larder gate` is started by larderd and cannot be used by hand")?;
    Ok(FINE)
}
