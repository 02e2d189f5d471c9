//! Pipes, terminals and pseudo-terminals: where a tool's messages go while they are also kept.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{self, OptionalActions, OutputModes, Winsize};

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Width.
    pub columns: u16,
    /// Height.
    pub rows: u16,
}

fn standard(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: only asked about standard descriptors that `standard_descriptors_open` found open.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Where standard output and error lead: the size of the terminal behind each, `None` where it is not one, and whether
/// both are one open file.
pub fn standard_outputs() -> ([Option<TerminalSize>; 2], bool) {
    use rustix::fs::{FileType, Stat, fstat};
    let found = [1, 2].map(|fd| (fd, fstat(standard(fd)).ok()));
    // A terminal is a character device: nothing else is asked.
    let is_device = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    let sizes = found.map(|(fd, stat)| stat.filter(is_device).and_then(|_| terminal_size(fd)));
    let [output, error] = found.map(|(_, stat)| stat.map(|stat| (stat.st_dev, stat.st_ino)));
    (sizes, output.is_some() && output == error && same_file(1, 2))
}

/// The size of the terminal that standard input is, `None` where it is not one.
pub fn standard_input_size() -> Option<TerminalSize> {
    terminal_size(0)
}

fn terminal_size(fd: RawFd) -> Option<TerminalSize> {
    let fd = standard(fd);
    if !termios::isatty(fd) {
        return None;
    }
    let size = termios::tcgetwinsize(fd).unwrap_or(Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 });
    Some(TerminalSize { columns: size.ws_col, rows: size.ws_row })
}

/// Whether two standard descriptors of one inode are one open file, with one position: `2>&1`, but not `>f 2>>f`.
fn same_file(a: RawFd, b: RawFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let pid = std::process::id() as libc::c_int;
    // SAFETY: compares two descriptors of this process; no pointers.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, a as libc::c_ulong, b as libc::c_ulong) } {
        -1 => rustix::fs::fcntl_getfl(standard(a)).ok() == rustix::fs::fcntl_getfl(standard(b)).ok(),
        order => order == 0,
    }
}

/// Whether a standard descriptor leads where a tool would meet what it does not meet behind our pipe: a device that is
/// neither a terminal nor the null device, or a pipe that nobody reads any more.
pub fn is_odd_output(fd: RawFd) -> bool {
    use rustix::fs::FileType;
    let Ok(stat) = rustix::fs::fstat(standard(fd)) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => {
            let null = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3);
            !null && !rustix::termios::isatty(standard(fd))
        }
        FileType::Fifo => {
            let watched = standard(fd);
            let mut set = [rustix::event::PollFd::new(&watched, rustix::event::PollFlags::empty())];
            let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut set, Some(&at_once)).is_ok()
                && set[0].revents().contains(rustix::event::PollFlags::ERR)
        }
        _ => false,
    }
}

/// A pipe, closed on exec: (read end, write end).
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// A terminal of our own that looks like the caller's.
pub struct PseudoTerminal {
    /// Our side: what the tool writes can be read here.
    pub ours: OwnedFd,
    /// The tool's side.
    pub tools: OwnedFd,
}

impl PseudoTerminal {
    /// Make one of the size and with the settings of the terminal behind `like`, but that bytes pass as they are: the
    /// real terminal will turn line feeds into what it wants.
    pub fn like(like: RawFd) -> io::Result<PseudoTerminal> {
        let like = standard(like);
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let path = ptsname(&ours, Vec::new())?;
        let tools = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
        let mut settings = termios::tcgetattr(like)?;
        settings.output_modes &= !OutputModes::OPOST;
        termios::tcsetattr(&tools, OptionalActions::Now, &settings)?;
        termios::tcsetwinsize(&tools, termios::tcgetwinsize(like)?)?;
        Ok(PseudoTerminal { ours, tools })
    }
}
