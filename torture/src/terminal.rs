//! A pseudo-terminal.

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::os::fd::OwnedFd;

/// Both ends.
pub(crate) struct Terminal {
    /// Where a person would look.
    pub(crate) ours: OwnedFd,
    /// What the command writes to.
    pub(crate) theirs: OwnedFd,
}

impl Terminal {
    /// A new one of so many rows and columns, nobody's controlling terminal.
    pub(crate) fn open((rows, columns): (u16, u16)) -> Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).context("no terminal is to be had")?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = openat(CWD, name, flags, Mode::empty()).context("cannot open the terminal")?;
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size)?;
        Ok(Self { ours, theirs })
    }
}
