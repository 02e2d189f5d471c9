//! Starting a program without copying this process.
//!
//! It works as `posix_spawn` does: the child borrows our memory and runs on a stack of its own. We
//! wait until it has become the program. `posix_spawn` itself would not do:
//!
//! * It cannot set a program's scheduling. Setting it from outside is too late, because on a busy
//!   machine a compiler driver has started its compiler before its parent runs again.
//! * musl's `posix_spawn` asks for the setting of each signal, ignores some that the program would
//!   inherit, and opens a pipe.
//!
//! Unaware of: what the program is for.

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::process::{CStrings, Child, c_string};
use super::sched_policy::SchedPolicy;

/// The number of 16-byte words of the child's stack, which is 16 KiB. 16 bytes is the alignment
/// that every machine needs. The child's few calls need some hundred bytes.
const STACK_WORDS: usize = 1024;
/// The exit code of a child that could not become the program. Only processes other than us see it.
const NOT_STARTED: u8 = 127;

/// All that the child needs, made before it exists, and the error that it stores if it fails.
struct Start<'a> {
    path: CString,
    argv: CStrings,
    environment: CStrings,
    descriptors: &'a [(RawFd, RawFd)],
    sched_policy: &'a SchedPolicy,
    mask: libc::sigset_t,
    ties: Ties,
    error: AtomicI32,
}

/// How a program is tied to us, apart from being our child.
#[derive(Clone, Copy, Default)]
struct Ties {
    /// It leads a session of its own.
    session: bool,
    /// It is killed when the thread that starts it ends. The value is the pid of this process.
    bound_to: Option<libc::pid_t>,
    /// SIGPIPE has its default effect in it, which ends it if it writes to a pipe without a reader.
    /// Rust's runtime ignores SIGPIPE.
    plain_pipes: bool,
}

/// Starts the program at `path`. `descriptors` are pairs of a descriptor of ours and the number
/// that the program gets it as, for example its standard streams.
///
/// The child gets the signal mask from before `mask` was prepared, and the scheduling of `sched_policy`.
pub fn spawn(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: &[(RawFd, RawFd)],
    mask: &crate::SignalForwarding,
    sched_policy: &SchedPolicy,
) -> io::Result<Child> {
    start(path, argv, environment, descriptors, *mask.original(), sched_policy, Ties::default())
}

/// Starts a program on the same terminal. It is killed when the calling thread ends. It gets the
/// signal mask from before `mask` was prepared.
pub fn spawn_job(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    mask: &crate::SignalForwarding,
) -> io::Result<Child> {
    let ties = Ties { session: false, bound_to: Some(ourselves()), plain_pipes: true };
    start(path, argv, environment, &[], *mask.original(), &SchedPolicy::default(), ties)
}

/// Starts the program at `path` in a session of its own, with `/dev/null` as its standard streams.
pub fn spawn_apart(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>]) -> io::Result<Child> {
    let null = null()?;
    let descriptors = [0, 1, 2].map(|its| (null.as_raw_fd(), its));
    let ties = Ties { session: true, ..Ties::default() };
    start(path, argv, environment, &descriptors, mask_now()?, &SchedPolicy::default(), ties)
}

/// Starts the program at `path` in a session of its own. It is killed when the calling thread ends.
/// Its standard error is `errors`, and the other standard streams are `/dev/null`.
pub fn spawn_bound(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], errors: RawFd) -> io::Result<Child> {
    bound(path, argv, environment, (errors, 2))
}

/// Starts the program at `path` in a session of its own. It is killed when the calling thread ends.
/// Its standard input is `input`, and the other standard streams are `/dev/null`.
pub fn spawn_bound_to(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], input: RawFd) -> io::Result<Child> {
    bound(path, argv, environment, (input, 0))
}

/// `given` is a descriptor, and the number of the standard stream for which it is used.
fn bound(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], given: (RawFd, RawFd)) -> io::Result<Child> {
    let null = null()?;
    let descriptors = [0, 1, 2].map(|its| (if its == given.1 { given.0 } else { null.as_raw_fd() }, its));
    let ties = Ties { session: true, bound_to: Some(ourselves()), ..Ties::default() };
    start(path, argv, environment, &descriptors, mask_now()?, &SchedPolicy::default(), ties)
}

fn start(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: &[(RawFd, RawFd)],
    mask: libc::sigset_t,
    sched_policy: &SchedPolicy,
    ties: Ties,
) -> io::Result<Child> {
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    begin(Start { path, argv, environment, descriptors, sched_policy, mask, ties, error: AtomicI32::new(0) })
}

fn ourselves() -> libc::pid_t {
    // SAFETY: takes no arguments.
    unsafe { libc::getpid() }
}

fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

fn mask_now() -> io::Result<libc::sigset_t> {
    // SAFETY: a signal set is plain bits, and the call fills it.
    unsafe {
        let mut mask = std::mem::zeroed();
        match libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask) {
            0 => Ok(mask),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn begin(start: Start<'_>) -> io::Result<Child> {
    let mut stack = [const { MaybeUninit::<u128>::uninit() }; STACK_WORDS];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `become_program` on a stack that no other code uses. What it is given
    // lives until it has become the program or ended, because we do not run before. No handler runs
    // in the child, because every signal is blocked until it has removed our handlers.
    let pid = unsafe {
        let before = super::signals::block_all();
        let top = stack.as_mut_ptr().add(STACK_WORDS).cast();
        let pid = libc::clone(become_program, top, flags, (&raw const start).cast_mut().cast());
        let failed = io::Error::last_os_error();
        libc::sigprocmask(libc::SIG_SETMASK, &before, null_mut());
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

/// Runs in the child. It makes system calls on what was made before, and never allocates.
extern "C" fn become_program(start: *mut c_void) -> c_int {
    // SAFETY: `begin` passes a `Start` and waits.
    let start = unsafe { &*start.cast::<Start>() };
    start.sched_policy.take_on();
    let error = start.become_program();
    start.error.store(error.raw_os_error().unwrap_or(libc::EIO), Relaxed);
    super::end_process(NOT_STARTED)
}

impl Start<'_> {
    fn become_program(&self) -> io::Error {
        // SAFETY: the descriptors are open; the arrays and their strings are null-terminated and
        // live.
        unsafe {
            if self.ties.session {
                // This cannot fail, because a new process leads no process group.
                libc::setsid();
            }
            if let Some(parent) = self.ties.bound_to {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have ended before the call.
                if libc::getppid() != parent {
                    super::end_process(NOT_STARTED);
                }
            }
            if self.ties.plain_pipes {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            }
            for &(ours, its) in self.descriptors {
                // If both numbers are equal, `dup2` would leave the descriptor closed on exec.
                let done = if ours == its { libc::fcntl(its, libc::F_SETFD, 0) } else { libc::dup2(ours, its) };
                if done < 0 {
                    return io::Error::last_os_error();
                }
            }
            // Signals that come from here on are the program's.
            crate::SignalForwarding::forget();
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask, null_mut());
            libc::execve(self.path.as_ptr(), self.argv.pointers.as_ptr(), self.environment.pointers.as_ptr());
            io::Error::last_os_error()
        }
    }
}
