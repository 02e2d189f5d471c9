//! Pipes, terminals and pseudo-terminals that a tool writes its messages to while larder also keeps
//! them.
//!
//! Unaware of: what the messages are.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{self, OptionalActions, OutputModes, Winsize};

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of columns.
    pub columns: u16,
    /// The number of rows.
    pub rows: u16,
}

fn standard(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the descriptor is used only if `standard_descriptors_open` found it open.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Returns true if standard input, output and error are all open.
pub fn standard_descriptors_open() -> bool {
    let mut asked = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the array holds as many as are named. The call does not wait.
    let answered = unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, 0) } >= 0;
    answered && asked.iter().all(|of| of.revents & libc::POLLNVAL == 0)
}

/// Describes standard output and standard error. Returns the terminal size of each, or `None` if it
/// is no terminal, and whether both are the same open file.
pub fn standard_outputs() -> ([Option<TerminalSize>; 2], bool) {
    use rustix::fs::{FileType, Stat, fstat};
    let found = [1, 2].map(|fd| (fd, fstat(standard(fd)).ok()));
    // Only a character device can be a terminal, so the size is asked for no other kind.
    let is_device = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    let sizes = found.map(|(fd, stat)| stat.filter(is_device).and_then(|_| terminal_size(fd)));
    let [output, error] = found.map(|(_, stat)| stat.map(|stat| (stat.st_dev, stat.st_ino)));
    (sizes, output.is_some() && output == error && same_file(1, 2))
}

/// Returns the size of the terminal on standard input, or `None` if it is no terminal.
pub fn standard_input_size() -> Option<TerminalSize> {
    terminal_size(0)
}

/// Returns the size of the terminal that controls this process (`/dev/tty`), or `None` if there is
/// none.
pub fn controlling_terminal_size() -> Option<TerminalSize> {
    let tty = rustix::fs::open("/dev/tty", OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    size_of(tty.as_fd())
}

fn terminal_size(fd: RawFd) -> Option<TerminalSize> {
    size_of(standard(fd))
}

fn size_of(fd: BorrowedFd) -> Option<TerminalSize> {
    if !termios::isatty(fd) {
        return None;
    }
    let size = termios::tcgetwinsize(fd).unwrap_or(Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 });
    Some(TerminalSize { columns: size.ws_col, rows: size.ws_row })
}

/// Returns true if two standard descriptors with one inode are one open file, with one position.
/// For example, `2>&1` makes them one, but `>f 2>>f` does not.
fn same_file(a: RawFd, b: RawFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let pid = std::process::id() as libc::c_int;
    // SAFETY: compares two descriptors of this process; no pointers.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, a as libc::c_ulong, b as libc::c_ulong) } {
        -1 => rustix::fs::fcntl_getfl(standard(a)).ok() == rustix::fs::fcntl_getfl(standard(b)).ok(),
        order => order == 0,
    }
}

/// Returns true if a tool would meet something on this standard descriptor that it does not meet
/// behind our pipe. That is a device that is neither a terminal nor `/dev/null`, a pipe without a
/// reader, or anything that was opened for reading only.
pub fn is_odd_output(fd: RawFd) -> bool {
    use rustix::fs::{FileType, OFlags};
    let access = rustix::fs::fcntl_getfl(standard(fd)).map(|flags| flags & OFlags::RWMODE);
    if access == Ok(OFlags::RDONLY) {
        return true;
    }
    let Ok(stat) = rustix::fs::fstat(standard(fd)) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => {
            let null = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3);
            !null && !rustix::termios::isatty(standard(fd))
        }
        FileType::Fifo => {
            let found = super::poll::found_now(&standard(fd), PollFlags::empty());
            found.is_ok_and(|found| found.contains(PollFlags::ERR))
        }
        _ => false,
    }
}

/// Creates a pipe whose ends are closed on exec. Returns the read end and the write end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// A pseudo-terminal that looks to the tool like the caller's terminal.
pub struct PseudoTerminal {
    /// Our end, from which we read what the tool writes.
    pub ours: OwnedFd,
    /// The tool's end.
    pub tools: OwnedFd,
}

impl PseudoTerminal {
    /// Creates a pseudo-terminal with the size and settings of the terminal `like`, but with
    /// `OPOST` off. So bytes pass unchanged, and the real terminal translates the line feeds.
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
