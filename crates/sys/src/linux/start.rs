//! Starting a program without copying this process.
//!
//! As `posix_spawn` does it: a child that borrows our memory, on a stack of its own, while we wait until it has become
//! the program. Its own words would not do: it cannot set a program's scheduling, and what is set from outside comes too
//! late (on a busy machine a driver has started its compiler before its parent runs again); and musl's asks for each
//! signal's setting, ignores some that the program would inherit, and opens a pipe.

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::manner::Manner;
use super::process::{CStrings, Child, c_string};

/// Of 16 bytes, as every machine wants a stack aligned: 16 KiB. The child's few calls need some hundred bytes.
const STACK_WORDS: usize = 1024;
/// What a child ends with that could not become the program, for whoever looks at it from outside.
const NOT_STARTED: u8 = 127;

/// What the child needs, made before it is there, and what it says when it cannot become the program.
struct Start<'a> {
    path: CString,
    argv: CStrings,
    environment: CStrings,
    descriptors: &'a [(RawFd, RawFd)],
    manner: &'a Manner,
    mask: libc::sigset_t,
    ties: Ties,
    error: AtomicI32,
}

/// What a program has to do with us beside being our child.
#[derive(Clone, Copy, Default)]
struct Ties {
    /// It leads a session of its own.
    session: bool,
    /// It is killed when the thread that starts it ends; the number of this process.
    bound_to: Option<libc::pid_t>,
    /// It is ended by writing to nobody, as programs are, and not as Rust's are.
    plain_pipes: bool,
}

/// Start the program at `path`. `descriptors` are (ours, its): its standard streams, say. The child gets the signal mask
/// from before `mask` was prepared, and is scheduled in this manner.
pub fn spawn(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: &[(RawFd, RawFd)],
    mask: &crate::SignalForwarding,
    manner: &Manner,
) -> io::Result<Child> {
    start(path, argv, environment, descriptors, *mask.original(), manner, Ties::default())
}

/// Start a program that is to end with the thread that calls this, in front of the same terminal. It gets the signal mask
/// from before `mask` was prepared.
pub fn spawn_job(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    mask: &crate::SignalForwarding,
) -> io::Result<Child> {
    let ties = Ties { session: false, bound_to: Some(ourselves()), plain_pipes: true };
    start(path, argv, environment, &[], *mask.original(), &Manner::default(), ties)
}

/// Start the program at `path` in a session of its own, its standard streams on the null device.
pub fn spawn_apart(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>]) -> io::Result<Child> {
    let null = null()?;
    let descriptors = [0, 1, 2].map(|its| (null.as_raw_fd(), its));
    let ties = Ties { session: true, ..Ties::default() };
    start(path, argv, environment, &descriptors, mask_now()?, &Manner::default(), ties)
}

/// The same, but to end with the thread that calls this, and its standard error on a file of ours.
pub fn spawn_bound(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], errors: RawFd) -> io::Result<Child> {
    let null = null()?;
    let descriptors = [(null.as_raw_fd(), 0), (null.as_raw_fd(), 1), (errors, 2)];
    let ties = Ties { session: true, bound_to: Some(ourselves()), ..Ties::default() };
    start(path, argv, environment, &descriptors, mask_now()?, &Manner::default(), ties)
}

/// The same with its standard input from us, and what it says of its own for nobody.
pub fn spawn_bound_to(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], input: RawFd) -> io::Result<Child> {
    let null = null()?;
    let descriptors = [(input, 0), (null.as_raw_fd(), 1), (null.as_raw_fd(), 2)];
    let ties = Ties { session: true, bound_to: Some(ourselves()), ..Ties::default() };
    start(path, argv, environment, &descriptors, mask_now()?, &Manner::default(), ties)
}

fn start(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: &[(RawFd, RawFd)],
    mask: libc::sigset_t,
    manner: &Manner,
    ties: Ties,
) -> io::Result<Child> {
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    begin(Start { path, argv, environment, descriptors, manner, mask, ties, error: AtomicI32::new(0) })
}

fn ourselves() -> libc::pid_t {
    // SAFETY: takes nothing.
    unsafe { libc::getpid() }
}

fn null() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

fn mask_now() -> io::Result<libc::sigset_t> {
    // SAFETY: a set of signals is plain bits, and is filled by the call.
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
    // SAFETY: the child runs `become_program` on the upper end of a stack that nobody else has, and what it is given
    // lives until it has become the program or ended, since we do not run before. No handler runs in it: every signal
    // is blocked until it has given up ours.
    let pid = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
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

/// In the child: system calls on what was made before; none of it allocates.
extern "C" fn become_program(start: *mut c_void) -> c_int {
    // SAFETY: `begin` passes a `Start` and waits.
    let start = unsafe { &*start.cast::<Start>() };
    start.manner.take_on();
    let error = start.become_program();
    start.error.store(error.raw_os_error().unwrap_or(libc::EIO), Relaxed);
    super::end_process(NOT_STARTED)
}

impl Start<'_> {
    fn become_program(&self) -> io::Error {
        // SAFETY: open descriptors; null-terminated arrays of null-terminated strings, all alive.
        unsafe {
            if self.ties.session {
                // A new process leads no group: this cannot fail.
                libc::setsid();
            }
            if let Some(parent) = self.ties.bound_to {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // It may have ended before that.
                if libc::getppid() != parent {
                    super::end_process(NOT_STARTED);
                }
            }
            if self.ties.plain_pipes {
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            }
            for &(ours, its) in self.descriptors {
                // The same one would stay one that is closed when the program begins.
                let done = if ours == its { libc::fcntl(its, libc::F_SETFD, 0) } else { libc::dup2(ours, its) };
                if done < 0 {
                    return io::Error::last_os_error();
                }
            }
            // What comes from here on is the program's.
            crate::SignalForwarding::forget();
            libc::sigprocmask(libc::SIG_SETMASK, &self.mask, null_mut());
            libc::execve(self.path.as_ptr(), self.argv.pointers.as_ptr(), self.environment.pointers.as_ptr());
            io::Error::last_os_error()
        }
    }
}
