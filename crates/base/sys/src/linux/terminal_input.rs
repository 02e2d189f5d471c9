//! Watches whether anything is read from the terminal on standard input while a command runs.
//!
//! Two facts tell that, because neither suffices alone:
//!
//! 1. inotify reports each read that returned something. It does not report a read that returned
//!    the end of file (Ctrl-D).
//! 2. The kernel sends a signal for each line and each end of file that is typed (`O_ASYNC`). If
//!    one came and the terminal has nothing to read at the end, something has read it.
//!
//! Unaware of: what is read, which process reads it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags, inotify, open};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::isatty;

use super::poll::found_now;

const TERMINAL: &std::ffi::CStr = c"/proc/self/fd/0";
/// The controlling terminal. It has an inode of its own.
const CONTROLLING: &std::ffi::CStr = c"/dev/tty";
const STACK_BYTES: usize = 64 << 10;

const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;
/// The `type` of `struct f_owner_ex` for a thread.
const F_OWNER_TID: libc::c_int = 0;
/// The `si_code` of a signal for input. Another one (`POLL_OUT`) says that output can go on.
const POLL_IN: libc::c_int = 1;

/// Returns true if standard input is a terminal from which a read would have to wait.
pub fn standard_input_awaits_typing() -> bool {
    isatty(stdin()) && !has_input()
}

fn has_input() -> bool {
    !found_now(&stdin(), PollFlags::IN).is_ok_and(|found| found.is_empty())
}

/// Returns all that a program can ask about the terminal on standard input: its size and its
/// settings. Returns `None` if standard input is no terminal.
pub fn standard_input_settings() -> Option<Vec<u8>> {
    let mut settings = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: the kernel fills the structure, and it is read only after that succeeded.
    let settings = unsafe {
        if libc::tcgetattr(0, settings.as_mut_ptr()) != 0 {
            return None;
        }
        settings.assume_init()
    };
    let size = rustix::termios::tcgetwinsize(stdin()).ok()?;
    let modes = [settings.c_iflag, settings.c_oflag, settings.c_cflag, settings.c_lflag];
    let text = format!("{} {} {modes:x?} {:x?}", size.ws_row, size.ws_col, settings.c_cc);
    Some(text.into_bytes())
}

/// The number of the listening thread, once it can be sent signals. A channel would need so much
/// thread-local data that musl maps memory for it at each start.
type Ready = OnceLock<Result<i32, Errno>>;

/// A watch on the terminal on standard input.
pub struct TerminalWatch {
    reads: OwnedFd,
    listener: JoinHandle<bool>,
    /// The kernel's number of the listening thread.
    thread: i32,
    settings: Option<Vec<u8>>,
}

impl TerminalWatch {
    /// Begins to watch.
    pub fn begin() -> io::Result<TerminalWatch> {
        let reads = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(&reads, TERMINAL, inotify::WatchFlags::ACCESS)?;
        inotify::add_watch(&reads, CONTROLLING, inotify::WatchFlags::ACCESS)?;
        // An open file of our own, because the flags of an open file hold for all that share it.
        let terminal =
            open(TERMINAL, OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let ready = Arc::<Ready>::default();
        let told = ready.clone();
        let listener = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || listen(&terminal, &told))?;
        let thread = (*ready.wait())?;
        Ok(TerminalWatch { reads, listener, thread, settings: standard_input_settings() })
    }

    /// Ends the watch. Returns true if something was read from the terminal, or if its settings
    /// are not as before. Also returns true if that cannot be told.
    pub fn was_used(self) -> bool {
        let mut event = [0; 4096];
        let was_read = !matches!(rustix::io::read(&self.reads, &mut event), Err(Errno::AGAIN));
        // SAFETY: takes numbers. The thread has not ended, because only this signal ends it.
        let told = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread, stop_signal()) } == 0;
        let was_typed = !told || self.listener.join().unwrap_or(true);
        was_read || was_typed && !has_input() || self.settings != standard_input_settings()
    }
}

fn typed_signal() -> libc::c_int {
    libc::SIGRTMIN() + 1
}

/// A higher number than that of `typed_signal`, so it is delivered after all of those.
fn stop_signal() -> libc::c_int {
    libc::SIGRTMIN() + 2
}

/// Waits for the kernel's signals until it is told to stop. Returns true if something was typed.
/// Only this thread gets the signals, so the mask of the others, which children inherit, stays.
fn listen(terminal: &OwnedFd, ready: &Ready) -> bool {
    // The kernel sends SIGIO if it cannot queue another signal.
    let signals = super::signals::set_of(&[typed_signal(), stop_signal(), libc::SIGIO]);
    // SAFETY: blocks signals of this thread.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) };
    let asked = ask_for_signals(terminal);
    let failed = asked.is_err();
    let _ = ready.set(asked);
    if failed {
        return true;
    }
    let mut was_typed = false;
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, and the kernel fills `info`, which is all zeros before.
        let (signal, info) = unsafe { (libc::sigwaitinfo(&signals, info.as_mut_ptr()), info.assume_init()) };
        match signal {
            _ if signal == stop_signal() => return was_typed,
            _ if signal == typed_signal() => was_typed |= info.si_code == POLL_IN,
            libc::SIGIO => was_typed = true,
            _ => {}
        }
    }
}

/// Asks the kernel to send this thread a signal when something is typed. Returns its number.
fn ask_for_signals(terminal: &OwnedFd) -> Result<i32, Errno> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let owner = [F_OWNER_TID, thread];
    let fd = terminal.as_raw_fd();
    // SAFETY: `owner` has the layout of `struct f_owner_ex`, and the kernel only reads it. The
    // other calls take numbers.
    let failed = unsafe {
        libc::fcntl(fd, F_SETOWN_EX, owner.as_ptr()) == -1
            || libc::fcntl(fd, F_SETSIG, typed_signal()) == -1
            || libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) == -1
    };
    if failed { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) } else { Ok(thread) }
}
