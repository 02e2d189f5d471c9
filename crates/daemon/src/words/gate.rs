//! `larderd gate`: the process that holds reads of a lazily mounted image back until their bytes are there.
//!
//! Unaware of: what is read, who fills.

use std::os::fd::AsFd;

use anyhow::{Context, Result};

use super::FINE;

/// Be one, until nobody needs it.
pub(crate) fn run() -> Result<u8> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("standard input is closed")?;
    larder_mount::lazy::gate(socket).context("larderd starts it: `larder gate` is not for people")?;
    Ok(FINE)
}
