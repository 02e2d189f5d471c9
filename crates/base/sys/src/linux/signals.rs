//! Signals while a tool runs. A signal that a process sent to the wrapper is forwarded to the tool.
//! A signal from the terminal went to the whole process group and has already reached the tool.
//!
//! Unaware of: what the tool is.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

const FORWARDED: [i32; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

static CHILD: AtomicI32 = AtomicI32::new(0);
static SEEN: AtomicBool = AtomicBool::new(false);
/// True once the handlers are installed.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// A guard that blocks the forwarded signals from its creation until `begin` says where they go.
pub struct SignalForwarding {
    original: libc::sigset_t,
}

extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    SEEN.store(true, SeqCst);
    // SAFETY: the kernel passes a valid siginfo; kill is safe in a handler.
    unsafe {
        let from_a_process = (*info).si_code <= 0;
        let child = CHILD.load(SeqCst);
        if from_a_process && child > 0 {
            libc::kill(child, signal);
        }
    }
}

/// Returns the set of these signals.
pub(super) fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: `sigemptyset` initialises the set, and all numbers are valid.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// Blocks all signals. Returns those that were blocked before.
pub(super) fn block_all() -> libc::sigset_t {
    // SAFETY: both sets are initialised by the calls that fill them.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}

impl SignalForwarding {
    /// Blocks the signals.
    pub fn prepare() -> io::Result<SignalForwarding> {
        // SAFETY: the call fills the second set.
        unsafe {
            let mut original = std::mem::zeroed();
            if libc::sigprocmask(libc::SIG_BLOCK, &set_of(&FORWARDED), &mut original) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(SignalForwarding { original })
        }
    }

    /// Returns the signal mask from before, which the tool gets.
    pub(crate) fn original(&self) -> &libc::sigset_t {
        &self.original
    }

    /// Forwards signals to `pid`: those that come from now on, and those that came since `prepare`.
    /// Signals that were ignored stay ignored.
    pub fn begin(&self, pid: i32) {
        CHILD.store(pid, SeqCst);
        BEGUN.store(true, SeqCst);
        // SAFETY: the handler only touches atomics and calls kill; the structures are initialised.
        unsafe {
            for signal in FORWARDED {
                let mut old = std::mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                if old.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                let mut new = std::mem::zeroed::<libc::sigaction>();
                new.sa_sigaction = forward as *const () as usize;
                new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                libc::sigaction(signal, &new, std::ptr::null_mut());
            }
        }
        // SIGPIPE is ignored from now on, so that we do not die if the reader of the output has
        // gone. The tool was started with the caller's setting and notices it by itself.
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        self.unblock();
    }

    /// Restores the signal mask without forwarding anything, for when no tool could be started.
    pub fn unblock(&self) {
        // SAFETY: restores the mask that `prepare` saved.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.original, std::ptr::null_mut()) };
    }

    /// Removes our handlers in a child that is about to become a program. The child may share our
    /// memory, so our handler must not run there.
    pub(crate) fn forget() {
        if !BEGUN.load(SeqCst) {
            return;
        }
        for signal in FORWARDED {
            // SAFETY: the structures are initialised, and the child has its own table of handlers.
            unsafe {
                let mut old = std::mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                if old.sa_sigaction == forward as *const () as usize {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
        }
    }

    /// Says that the tool has ended. Signals that come from now on are only noted.
    pub fn end() {
        CHILD.store(0, SeqCst);
    }

    /// Returns true if any of the signals came.
    pub fn seen() -> bool {
        SEEN.load(SeqCst)
    }
}
