//! Starting a program under a seccomp filter whose notifications come to us.
//!
//! The program installs the filter itself, between `fork` and `execve`, and passes the listener to
//! us.
//!
//! Unaware of: what the filter is for.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::filter::FilterStep;
use super::notify::{Answered, Attendant, Listener, attend, let_go_on, receive_from};
use super::poll::timespec;
use super::process::{CStrings, Child, c_string};
use super::sched_policy::SchedPolicy;

/// How long to wait for a program that neither begins nor makes a call that asks us. It is then
/// started again without a filter, so a slow disk costs no more than this.
const BEGIN_DEADLINE: Duration = Duration::from_secs(30);
/// How long each step of [`try_attending`] may take. They take microseconds.
const TRIAL_DEADLINE: Duration = Duration::from_secs(10);

/// Starts a program like `spawn`, but under the attendant's filter. The given descriptors are
/// closed in this process.
///
/// An error means that the program did not begin. Either there is no listener, or the program could
/// not be started for a reason of its own.
pub fn spawn_attended(
    path: &[u8],
    argv: &[Vec<u8>],
    environment: &[Vec<u8>],
    descriptors: Vec<(OwnedFd, RawFd)>,
    mask: &crate::SignalForwarding,
    sched_policy: &SchedPolicy,
    attendant: &mut dyn Attendant,
) -> io::Result<Child> {
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    let filter = attendant.filter();
    let (ours, theirs) = socket_pair()?;
    let start = Start {
        path,
        argv,
        environment,
        descriptors: &descriptors,
        mask: mask.original(),
        sched_policy,
        filter: &filter,
    };
    // `vfork` is not possible, because the parent has to answer the child's `execve`.
    // SAFETY: everything that the child needs was made before; it only makes system calls and never
    // returns.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => start.become_program(ours.as_raw_fd(), theirs.as_raw_fd()),
        pid => Child { pid },
    };
    drop(theirs);
    // They must be closed before the guardian is forked, because they tell whether a process
    // outlives the tool.
    drop(descriptors);
    let began = receive_listener(&ours).and_then(|listener| {
        attendant.attach(Listener::new(listener)?, child.pid as u32);
        serve_until_begun(&ours, attendant)
    });
    if let Err(error) = began {
        // The child has not begun, and would wait for an answer that does not come.
        // SAFETY: this is our child, which was not waited for yet.
        unsafe { libc::kill(child.pid, libc::SIGKILL) };
        let _ = child.wait();
        attendant.release(false);
        return Err(error);
    }
    Ok(child)
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    // SAFETY: the call fills our array; both descriptors are new and ours.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])))
    }
}

/// Serves the attendant until the program has begun.
///
/// The `execve` of the program is already a call that waits for an answer. The socket closes when
/// it succeeds.
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

/// Tries all that an attendant needs, on a child that makes one harmless call: a filter with a
/// listener, receiving the call, reading the memory of its thread, and letting it go on. It costs a
/// fork.
///
/// The error says which of these is refused here. For example, a container's seccomp profile
/// refuses the first, `kernel.yama.ptrace_scope=2` the third, and Linux before 5.5 the last.
pub fn try_attending() -> io::Result<()> {
    const ASKED: libc::c_long = libc::SYS_getppid;
    const MARK: [u8; 16] = *b"read this please";
    // Load the number of the call. If it is this call's, notify; else allow.
    let filter = [
        FilterStep::load(0),
        FilterStep::unless(FilterStep::EQUAL, ASKED as u32, 1),
        FilterStep::answer(libc::SECCOMP_RET_USER_NOTIF),
        FilterStep::ALLOW,
    ];
    let (ours, theirs) = socket_pair()?;
    // SAFETY: the child only makes system calls, on what was made before, and never returns.
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
    // SAFETY: this is our child, which was not waited for yet.
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
        return Err(io::Error::other("reading the memory of a child gave wrong bytes"));
    }
    match let_go_on(listener.as_raw_fd(), &call) {
        Answered::GoesOn => {}
        answered => return Err(io::Error::other(format!("letting a system call go on (Linux 5.5): {answered:?}"))),
    }
    // The other end closes when the child ends, which it does only if its call went on.
    wait_for(socket, TRIAL_DEADLINE).map_err(step("waiting for a child to go on")).map(drop)
}

/// Waits until the descriptor can be read, or until its other end is closed. Returns which.
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
/// The size of the buffer for control messages, in bytes: `CMSG_SPACE(sizeof(int))`, and some.
const CONTROL_BYTES: usize = 64;

/// Receives the child's first message: the listener, or the errno that says why there is none.
fn receive_listener(from: &OwnedFd) -> io::Result<OwnedFd> {
    let mut number = [0u8; 4];
    let mut room = ControlRoom([0; CONTROL_BYTES]);
    // SAFETY: all buffers are ours, and their lengths are passed. A descriptor that comes is new
    // and ours.
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
            _ => Err(io::Error::other("the child ended without sending a listener")),
        }
    }
}

/// All that the child needs, made before it exists.
struct Start<'a> {
    path: CString,
    argv: CStrings,
    environment: CStrings,
    descriptors: &'a [(OwnedFd, RawFd)],
    mask: &'a libc::sigset_t,
    sched_policy: &'a SchedPolicy,
    filter: &'a [FilterStep],
}

impl Start<'_> {
    /// Runs in the child: does what `spawn` does, and installs the filter.
    fn become_program(&self, parents: RawFd, socket: RawFd) -> ! {
        // SAFETY: only system calls on what was made before; none of it allocates.
        let error = unsafe {
            // The listener is on its way through the other end of the socket. If that end were open
            // in the child, the child itself would keep the listener alive, and would wait for ever
            // if we died before receiving it.
            libc::close(parents);
            self.sched_policy.take_on();
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

/// Runs in the child: reports why it ends, and ends.
fn tell(socket: RawFd, error: i32) -> ! {
    let number = error.to_ne_bytes();
    // SAFETY: writes bytes of ours. The other end may be closed.
    unsafe { libc::send(socket, number.as_ptr().cast(), number.len(), libc::MSG_NOSIGNAL) };
    end_child()
}

/// Ends the child, whose only thread this is. `exit_group` would ask the listener, and would wait
/// for ever if the child itself has the listener open.
fn end_child() -> ! {
    loop {
        // SAFETY: ends the thread.
        unsafe { libc::syscall(libc::SYS_exit, 127) };
    }
}

/// Runs in the child: installs the filter and returns its listener. From here on, the calls that
/// the filter names wait for the listener.
fn install(filter: &[FilterStep]) -> Result<RawFd, i32> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut().cast() };
    // With this flag (Linux 5.19), a signal that has a handler does not interrupt a call that
    // waits. Without it, such a call is notified again.
    let mut flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let mut may_promise = true;
    loop {
        // SAFETY: the filter has the kernel's form and outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) };
        match if fd < 0 { errno() } else { return Ok(fd as RawFd) } {
            libc::EINVAL if flags & libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0 => {
                flags &= !libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
            }
            // An unprivileged process must first give up gaining rights. Set-user-id programs then
            // start without theirs.
            libc::EACCES if may_promise => {
                may_promise = false;
                // SAFETY: no pointers.
                unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            }
            error => return Err(error),
        }
    }
}

/// Runs in the child: sends the listener to the parent. If that fails, no process could answer, so
/// the child ends.
fn send_listener(socket: RawFd, listener: RawFd) {
    let mut byte = [0u8];
    let mut room = ControlRoom([0; CONTROL_BYTES]);
    // SAFETY: all buffers are ours, on this stack, and their lengths are passed.
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
        end_child();
    }
    // If the child itself had the listener open, it would wait for ever if we died. It does not use
    // `close`, because the filter asks about that. On Linux before 5.9, the listener stays open
    // until the program begins.
    // SAFETY: the number is that of our own descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, listener, listener, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_if_its_parent_died_before_the_listener_was_sent() {
        let filter = [
            FilterStep::load(0),
            FilterStep::unless(FilterStep::EQUAL, libc::SYS_exit_group as u32, 1),
            FilterStep::answer(libc::SECCOMP_RET_USER_NOTIF),
            FilterStep::ALLOW,
        ];
        let (ours, theirs) = socket_pair().expect("two sockets");
        drop(ours);
        // SAFETY: the child only makes system calls, on what was made before, and never returns.
        let child = match unsafe { libc::fork() } {
            0 => {
                if let Ok(listener) = install(&filter) {
                    send_listener(theirs.as_raw_fd(), listener);
                }
                end_child()
            }
            pid => pid,
        };
        let end = Instant::now() + TRIAL_DEADLINE;
        let mut status = 0;
        // SAFETY: our child, and a number of ours.
        while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
            if Instant::now() > end {
                // SAFETY: our child, which was not waited for yet.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child waits for a listener that nothing serves");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(libc::WEXITSTATUS(status), 127);
    }
}
