//! Signals while a tool runs: what is sent to the wrapper alone goes on to the tool; what the terminal sent to the
//! whole group has reached it already.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

const FORWARDED: [i32; 6] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

static CHILD: AtomicI32 = AtomicI32::new(0);
static SEEN: AtomicBool = AtomicBool::new(false);
/// Handlers are set.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Blocks the forwarded signals from the moment it is made until `begin` says where they go.
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

impl SignalForwarding {
    /// Block the signals.
    pub fn prepare() -> io::Result<SignalForwarding> {
        // SAFETY: both sets are initialised by the calls that fill them.
        unsafe {
            let mut original = std::mem::zeroed();
            let mut blocked = std::mem::zeroed();
            libc::sigemptyset(&mut blocked);
            for signal in FORWARDED {
                libc::sigaddset(&mut blocked, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &blocked, &mut original) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(SignalForwarding { original })
        }
    }

    /// The mask from before, which the tool is to have.
    pub(crate) fn original(&self) -> &libc::sigset_t {
        &self.original
    }

    /// Send what comes from now on, and what came since `prepare`, to `pid`. Signals that were ignored stay so.
    pub fn begin(&self, pid: i32) {
        CHILD.store(pid, SeqCst);
        BEGUN.store(true, SeqCst);
        // SAFETY: the handler only touches atomics and calls kill; structures are initialised.
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
        // SAFETY: no handler. The tool was started with the caller's setting; whether its reader is there is for it to
        // notice, not for us to die of.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        self.unblock();
    }

    /// Give the mask back without forwarding anything, when no tool could be started.
    pub fn unblock(&self) {
        // SAFETY: restores the mask that `prepare` saved.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.original, std::ptr::null_mut()) };
    }

    /// In a child that is about to become a program, and still has our memory: no handler of ours is to run there.
    pub(crate) fn forget() {
        if !BEGUN.load(SeqCst) {
            return;
        }
        for signal in FORWARDED {
            // SAFETY: structures are initialised; a child has a table of handlers of its own.
            unsafe {
                let mut old = std::mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, std::ptr::null(), &mut old);
                if old.sa_sigaction == forward as *const () as usize {
                    libc::signal(signal, libc::SIG_DFL);
                }
            }
        }
    }

    /// The child has ended: what comes from now on goes nowhere, and is only noted.
    pub fn end() {
        CHILD.store(0, SeqCst);
    }

    /// Whether any of them came.
    pub fn seen() -> bool {
        SEEN.load(SeqCst)
    }
}
