//! `larderd gate`: the process for which reads of a lazily mounted image wait when its filler is gone.
//!
//! Unaware of: what is read, who fills.

use std::ffi::OsString;
use std::os::fd::AsFd;

use anyhow::{Context, Result};

use super::FINE;

/// Be one, until nobody needs it. `rescue` is how a filler is started: directory, program, arguments.
pub(crate) fn run(rescue: Vec<OsString>) -> Result<u8> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("standard input is closed")?;
    larder_mount::lazy::gate(socket, rescue).context("larderd starts it: `larder gate` is not for people")?;
    Ok(FINE)
}
