//! Starting a program that sets its own scheduling first. `posix_spawn` has no words for that, and what is set from
//! outside comes too late: on a busy machine a driver has started its compiler before its parent runs again.
//!
//! As `posix_spawn` does it: a child that borrows our memory, on a stack of its own, while we wait until it has become
//! the program.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::manner::Manner;
use super::process::{CStrings, Child, c_string};

/// Of 16 bytes, as every machine wants a stack aligned. Its few calls need some hundred bytes.
const STACK_WORDS: usize = 2048;

/// What the child needs, made before it is there, and what it says when it cannot become the program.
struct Start<'a> {
    path: CString,
    argv: CStrings,
    environment: CStrings,
    descriptors: &'a [(RawFd, RawFd)],
    mask: &'a libc::sigset_t,
    manner: &'a Manner,
    error: AtomicI32,
}

/// Like `spawn`, with the child scheduled in this manner.
pub(super) fn spawn_lowered(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: &[(RawFd, RawFd)],
    mask: &crate::SignalForwarding,
    manner: &Manner,
) -> io::Result<Child> {
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    let error = AtomicI32::new(0);
    let start = Start { path, argv, environment, descriptors, mask: mask.original(), manner, error };
    let mut stack = vec![0u128; STACK_WORDS];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `begin` on the upper end of a stack that nobody else has, and what it is given lives until
    // it has become the program or ended, since we do not run before. No handler runs in it: every signal is blocked.
    let pid = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
        let top = stack.as_mut_ptr().add(STACK_WORDS).cast();
        let pid = libc::clone(begin, top, flags, (&raw const start).cast_mut().cast());
        let failed = io::Error::last_os_error();
        libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        if pid < 0 { Err(failed) } else { Ok(pid) }
    }?;
    let child = Child { pid };
    match start.error.load(Relaxed) {
        0 => Ok(child),
        number => {
            let _ = child.wait();
            Err(io::Error::from_raw_os_error(number))
        }
    }
}

/// In the child: system calls on what was made before; none of it allocates.
extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: `spawn_lowered` passes a `Start` and waits.
    let start = unsafe { &*start.cast::<Start>() };
    start.manner.take_on();
    let error = start.become_program();
    start.error.store(error.raw_os_error().unwrap_or(libc::EIO), Relaxed);
    super::end_process(127)
}

impl Start<'_> {
    fn become_program(&self) -> io::Error {
        // SAFETY: open descriptors; null-terminated arrays of null-terminated strings, all alive.
        unsafe {
            for (ours, its) in self.descriptors {
                if libc::dup2(*ours, *its) < 0 {
                    return io::Error::last_os_error();
                }
            }
            libc::sigprocmask(libc::SIG_SETMASK, self.mask, std::ptr::null_mut());
            libc::execve(self.path.as_ptr(), self.argv.pointers.as_ptr(), self.environment.pointers.as_ptr());
            io::Error::last_os_error()
        }
    }
}
