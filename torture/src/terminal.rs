//! A pseudo-terminal.

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::os::fd::OwnedFd;

/// Both ends of a pseudo-terminal.
pub(crate) struct Terminal {
    /// The end that the suite reads from.
    pub(crate) ours: OwnedFd,
    /// The end that the command writes to.
    pub(crate) theirs: OwnedFd,
}

impl Terminal {
    /// Opens a pseudo-terminal with this many rows and columns. It becomes no process's controlling
    /// terminal.
    pub(crate) fn open((rows, columns): (u16, u16)) -> Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).context("cannot open a pseudo-terminal")?;
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
