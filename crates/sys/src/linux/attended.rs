//! Starting a program under a filter whose notifications come to us.
//!
//! The program installs the filter itself, between `fork` and `execve`, and hands its listener over. Unaware of: what
//! the filter is for.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::manner::Manner;
use super::notify::{Answered, Attendant, FilterStep, Listener, attend, let_go_on, receive_from};
use super::process::{CStrings, Child, c_string};

/// A program that neither begins nor asks anything for so long does not get that far. It is started again without a
/// filter then, so a slow disk costs no more than this.
const BEGIN_DEADLINE: Duration = Duration::from_secs(30);
/// How long each step of [`try_attending`] may take. They take microseconds.
const TRIAL_DEADLINE: Duration = Duration::from_secs(10);

/// Like `spawn`, under the attendant's filter. Of the descriptors none is left open here. An error means that the
/// program did not begin, for lack of a listener or for a reason of its own.
pub fn spawn_attended(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: Vec<(OwnedFd, RawFd)>,
    mask: &crate::SignalForwarding,
    manner: &Manner,
    attendant: &mut dyn Attendant,
) -> io::Result<Child> {
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    let filter = attendant.filter();
    let (ours, theirs) = socket_pair()?;
    let start =
        Start { path, argv, environment, descriptors: &descriptors, mask: mask.original(), manner, filter: &filter };
    // Not vfork: its parent could not answer the child's execve.
    // SAFETY: everything that the child needs was made before; it makes system calls only and never returns.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => start.become_program(ours.as_raw_fd(), theirs.as_raw_fd()),
        pid => Child { pid },
    };
    drop(theirs);
    // The guardian is not to hold them, not even for a moment: they tell whether some process outlives the tool.
    drop(descriptors);
    let began = receive_listener(&ours).and_then(|listener| {
        attendant.attach(Listener::new(listener)?, child.pid as u32);
        serve_until_begun(&ours, attendant)
    });
    if let Err(error) = began {
        // It has not begun, and would wait for an answer that nobody gives.
        // SAFETY: our child, not yet waited for.
        unsafe { libc::kill(child.pid, libc::SIGKILL) };
        let _ = child.wait();
        attendant.release(false);
        return Err(error);
    }
    Ok(child)
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    // SAFETY: fills our array; both are new and ours.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])))
    }
}

/// The program's own file being executed is a call that waits for an answer, too. The socket closes with it.
fn serve_until_begun(ours: &OwnedFd, attendant: &mut dyn Attendant) -> io::Result<()> {
    loop {
        let (begun, asked) = {
            let mut set = vec![PollFd::new(ours, PollFlags::IN)];
            set.extend(attendant.listener().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            match poll(&mut set, Some(&timespec(BEGIN_DEADLINE))) {
                Err(Errno::INTR) => continue,
                polled if polled? == 0 => return Err(io::ErrorKind::TimedOut.into()),
                _ => {}
            };
            let found = |at: usize| set.get(at).map_or(PollFlags::empty(), PollFd::revents);
            (!found(0).is_empty(), found(1))
        };
        if !attend(attendant, asked)? && begun {
            let mut number = [0; 4];
            return match rustix::io::read(ours, &mut number).unwrap_or(0) {
                4 => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
                _ => Ok(()),
            };
        }
    }
}

fn timespec(time: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() }
}

/// Tries all that an attendant needs, on a child that makes one harmless call: a filter with a listener, hearing of the
/// call, reading the memory of the thread that makes it, and letting it go on. The error says which of these is refused
/// here. For example, a container's seccomp profile refuses the first, Linux before 5.5 the last, and
/// `kernel.yama.ptrace_scope=2` the third. It costs a fork.
pub fn try_attending() -> io::Result<()> {
    const ASKED: libc::c_long = libc::SYS_getppid;
    const MARK: [u8; 16] = *b"read this please";
    // Load the number; if it is this call's, ask; else allow.
    let filter = [
        FilterStep { code: 0x20, if_true: 0, if_false: 0, value: 0 },
        FilterStep { code: 0x15, if_true: 0, if_false: 1, value: ASKED as u32 },
        FilterStep { code: 0x06, if_true: 0, if_false: 0, value: libc::SECCOMP_RET_USER_NOTIF },
        FilterStep { code: 0x06, if_true: 0, if_false: 0, value: libc::SECCOMP_RET_ALLOW },
    ];
    let (ours, theirs) = socket_pair()?;
    // SAFETY: the child makes system calls only, on what was made before, and never returns.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: closes the child's own copy of a descriptor.
            unsafe { libc::close(ours.as_raw_fd()) };
            match install(&filter) {
                Err(error) => tell(theirs.as_raw_fd(), error),
                Ok(listener) => send_listener(theirs.as_raw_fd(), listener),
            }
            // SAFETY: `getppid` takes no arguments and ignores these.
            unsafe { libc::syscall(ASKED, MARK.as_ptr(), 0) };
            super::end_process(0)
        }
        pid => Child { pid },
    };
    drop(theirs);
    let tried = attend_trial(&ours, child.pid as u32, &MARK);
    // SAFETY: our child, not yet waited for.
    unsafe { libc::kill(child.pid, libc::SIGKILL) };
    let _ = child.wait();
    tried
}

fn attend_trial(socket: &OwnedFd, child: u32, mark: &[u8; 16]) -> io::Result<()> {
    let step = |what: &'static str| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    wait_for(socket, TRIAL_DEADLINE).map_err(step("waiting for a child to start"))?;
    let listener = receive_listener(socket).map_err(step("seccomp user notification"))?;
    let found = wait_for(&listener, TRIAL_DEADLINE).map_err(step("waiting for a system call's notification"))?;
    if !found.contains(PollFlags::IN) {
        return Err(io::Error::other("the child ended before its system call"));
    }
    let call = receive_from(&listener)
        .ok_or_else(io::Error::last_os_error)
        .map_err(step("receiving a system call's notification"))?;
    let mut read = [0; 16];
    super::notify::read_memory(child, call.arguments[0], &mut read)
        .map_err(step("reading the memory of a child (ptrace_scope, a security profile)"))?;
    if read != *mark {
        return Err(io::Error::other("the memory of a child was read wrongly"));
    }
    match let_go_on(listener.as_raw_fd(), &call) {
        Answered::GoesOn => {}
        answered => return Err(io::Error::other(format!("letting a system call go on ({answered:?}): Linux 5.5"))),
    }
    // The other end closes when the child ends, which it does only if its call went on.
    wait_for(socket, TRIAL_DEADLINE).map_err(step("waiting for a child to go on")).map(drop)
}

/// Waits until something can be read, or the other end is closed. Returns which.
fn wait_for(fd: &OwnedFd, at_most: Duration) -> io::Result<PollFlags> {
    let end = Instant::now() + at_most;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut set = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        match poll(&mut set, Some(&timespec(left))) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            polled => return polled.map(|_| set[0].revents()).map_err(io::Error::from),
        }
    }
}

#[repr(C, align(8))]
struct ControlRoom([u8; CONTROL_BYTES]);
/// `CMSG_SPACE(sizeof(int))`, and some.
const CONTROL_BYTES: usize = 64;

/// The child's first message: the listener, or the number of the error for which there is none.
fn receive_listener(from: &OwnedFd) -> io::Result<OwnedFd> {
    let mut number = [0u8; 4];
    let mut room = ControlRoom([0; CONTROL_BYTES]);
    // SAFETY: all buffers are ours and as long as said; a descriptor that came is new and ours.
    unsafe {
        let mut part = libc::iovec { iov_base: number.as_mut_ptr().cast(), iov_len: number.len() };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        let count = loop {
            let count = libc::recvmsg(from.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
            if count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break count;
            }
        };
        let control = libc::CMSG_FIRSTHDR(&message);
        if count > 0 && !control.is_null() && (*control).cmsg_type == libc::SCM_RIGHTS {
            return Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned()));
        }
        match count {
            4 => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(number))),
            _ => Err(io::Error::other("the child ended before it began")),
        }
    }
}

/// What the child needs, made before it is there.
struct Start<'a> {
    path: CString,
    argv: CStrings,
    environment: CStrings,
    descriptors: &'a [(OwnedFd, RawFd)],
    mask: &'a libc::sigset_t,
    manner: &'a Manner,
    filter: &'a [FilterStep],
}

impl Start<'_> {
    /// In the child: what `posix_spawn` does for `spawn`, and the filter.
    fn become_program(&self, parents: RawFd, socket: RawFd) -> ! {
        // SAFETY: system calls on what was made before; none of it allocates.
        let error = unsafe {
            // A listener that was sent lives in the other end: were that open here, the child would keep it, and wait
            // for ever should we die before it was received.
            libc::close(parents);
            self.manner.take_on();
            for (ours, its) in self.descriptors {
                if libc::dup2(ours.as_raw_fd(), *its) < 0 {
                    tell(socket, errno());
                }
            }
            match install(self.filter) {
                Err(error) => tell(socket, error),
                Ok(listener) => send_listener(socket, listener),
            }
            libc::sigprocmask(libc::SIG_SETMASK, self.mask, std::ptr::null_mut());
            libc::execve(self.path.as_ptr(), self.argv.pointers.as_ptr(), self.environment.pointers.as_ptr());
            errno()
        };
        tell(socket, error)
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// In the child: say why it ends, and end.
fn tell(socket: RawFd, error: i32) -> ! {
    let number = error.to_ne_bytes();
    // SAFETY: writes bytes of ours; nobody may be there to read them.
    unsafe { libc::send(socket, number.as_ptr().cast(), number.len(), libc::MSG_NOSIGNAL) };
    super::end_process(127)
}

/// In the child: from here on the calls that the filter names wait for the listener.
fn install(filter: &[FilterStep]) -> Result<RawFd, i32> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // A signal that is handled does not interrupt a call that waits (Linux 5.19); without it such a call is asked about
    // again.
    let mut flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let mut may_promise = true;
    loop {
        // SAFETY: the program's steps have the kernel's form and outlive the call.
        let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) };
        match if fd < 0 { errno() } else { return Ok(fd as RawFd) } {
            libc::EINVAL if flags & libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0 => {
                flags &= !libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
            }
            // Who is not privileged promises to gain no rights: set-user-id programs then start without theirs.
            libc::EACCES if may_promise => {
                may_promise = false;
                // SAFETY: no pointers.
                unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            }
            error => return Err(error),
        }
    }
}

/// In the child: hand the listener to the parent. Should that fail, nobody could answer, so it ends.
fn send_listener(socket: RawFd, listener: RawFd) {
    let mut byte = [0u8];
    let mut room = ControlRoom([0; CONTROL_BYTES]);
    // SAFETY: all buffers are ours, on this stack, and as long as said.
    let sent = unsafe {
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let control = libc::CMSG_FIRSTHDR(&message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(control).cast::<RawFd>().write_unaligned(listener);
        libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL)
    };
    if sent != 1 {
        super::end_process(127);
    }
    // Whoever holds the listener can answer: were it the child itself, it would wait for ever should we die. Not by
    // `close`, which the filter asks about. On Linux before 5.9 it stays open until the program begins.
    // SAFETY: the number is that of our own descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, listener, listener, 0) };
}
