//! Being asked before another process's system calls run: seccomp user notification.
//!
//! A program installs a filter before it becomes the tool. At the calls that the filter names, the
//! kernel stops the tool's thread and notifies the process that has the filter's listener. The only
//! answer given here is to let the call go on. So the tool makes its own call, with its own rights.
//!
//! Unaware of: which calls matter, and what the notifications are used for.

use std::cell::Cell;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::filter::FilterStep;
use super::newer::Newer;

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    id: u64,
    /// The thread, as a number in our pid namespace. It is 0 if the thread is not visible in it.
    pub thread: u32,
    /// The system call table that the number is from (`AUDIT_ARCH_*`).
    pub architecture: u32,
    /// The number of the system call.
    pub number: i32,
    /// The arguments.
    pub arguments: [u64; 6],
    /// The address of the instruction that makes the call, in the caller's memory.
    pub instruction: u64,
}

/// The descriptor that the notifications of one filter arrive at.
pub struct Listener {
    fd: OwnedFd,
    guardian: Guardian,
    /// The id that the next notification has, unless one is withdrawn before it is received.
    next: Cell<Option<u64>>,
    missed: Cell<bool>,
}

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The call goes on. Its thread has waited until now.
    GoesOn,
    /// The call no longer waits: its thread has ended, or a signal has interrupted it. That may
    /// have been so when its memory was read, so what was read proves nothing.
    Gone,
    /// The kernel does not accept the answer (EINVAL before Linux 5.5), so the thread would wait
    /// for ever.
    Refused,
}

/// Serves a listener while other code waits for something else.
pub trait Attendant {
    /// Returns the filter that the program gets.
    fn filter(&self) -> Vec<FilterStep>;
    /// Takes the program's listener, just before the program begins as process `pid`.
    fn attach(&mut self, listener: Listener, pid: u32);
    /// Returns the listener, as long as notifications can come.
    fn listener(&self) -> Option<BorrowedFd<'_>>;
    /// Answers the notification that waits. An error means that the kernel does not accept our
    /// answers.
    fn serve(&mut self) -> io::Result<()>;
    /// Called when the last process that could send a notification is gone.
    fn desert(&mut self);
    /// Called when the program has ended. `others_live` is true if processes that it started still
    /// run. Their calls must not wait for us.
    fn release(&mut self, others_live: bool);
}

/// Handles what `poll` found on the attendant's listener. Returns true if it found anything.
pub(super) fn attend(attendant: &mut dyn Attendant, found: PollFlags) -> io::Result<bool> {
    if found.contains(PollFlags::IN) {
        attendant.serve()?;
    } else if !found.is_empty() {
        attendant.desert();
    }
    Ok(!found.is_empty())
}

impl Notification {
    /// Describes a call at which a thread was stopped in another way, for example by `ptrace`.
    pub(super) fn of_stopped(
        thread: u32,
        architecture: u32,
        number: i32,
        arguments: [u64; 6],
        instruction: u64,
    ) -> Notification {
        Notification { id: 0, thread, architecture, number, arguments, instruction }
    }
}

const IOCTL_RECEIVE: u64 = 0xc050_2100;
const IOCTL_SEND: u64 = 0xc018_2101;
const IOCTL_IS_VALID: u64 = 0x4008_2102;
/// `SECCOMP_IOCTL_NOTIF_SET_FLAGS`, Linux 6.6. With the flag, the other side is woken on our CPU,
/// because one of the two always waits.
const IOCTL_SET_FLAGS: u64 = 0x4008_2104;
const FLAG_SYNC_WAKE_UP: u64 = 1;
const ANSWER_CONTINUE: u32 = 1;

/// `struct seccomp_notif` with spare room, because a newer kernel's structure may be longer.
#[repr(C)]
struct Received {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    architecture: u32,
    instruction: u64,
    arguments: [u64; 6],
    room: [u64; 22],
}

#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

impl Listener {
    /// Takes charge of a filter's listener.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Listener> {
        // SAFETY: passes a number. Kernels that do not know the request refuse it, and are only
        // slower.
        unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_SET_FLAGS as _, FLAG_SYNC_WAKE_UP) };
        let guardian = Guardian::start(&fd)?;
        Ok(Listener { fd, guardian, next: Cell::new(None), missed: Cell::new(false) })
    }

    /// Returns the next notification, or `None` if its sender is already gone.
    ///
    /// Call it only after `poll` has found something to read. Before Linux 6.11, it waits for ever
    /// if all processes that could send a notification are gone.
    pub fn receive(&self) -> Option<Notification> {
        // SAFETY: only the guardian has this memory as well, and it reads it only after we are
        // gone.
        let call = receive(self.fd.as_raw_fd(), unsafe { &mut *self.guardian.asked })?;
        // The kernel's ids are consecutive (`seccomp_next_notify_id`), and it delivers
        // notifications in that order.
        self.missed.set(self.missed.get() || self.next.get().is_some_and(|next| next != call.id));
        self.next.set(Some(call.id.wrapping_add(1)));
        Some(call)
    }

    /// Returns true if a notification was withdrawn before it was received. Its thread was
    /// interrupted by a signal, or killed.
    pub fn missed_some(&self) -> bool {
        self.missed.get()
    }

    /// Lets the call go on.
    pub fn let_go_on(&self, call: &Notification) -> Answered {
        let_go_on(self.fd.as_raw_fd(), call)
    }

    /// Returns true if the call still waits. Then its thread's number has not been reused
    /// meanwhile.
    pub fn still_waits(&self, call: &Notification) -> bool {
        // SAFETY: the kernel reads one number of ours.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), IOCTL_IS_VALID as _, &call.id) == 0 }
    }

    /// Ends the listener's work. If `others_live` is false, no process is left that could ask.
    /// Otherwise, the guardian answers from now on, and no code looks at the calls.
    pub fn release(self, others_live: bool) {
        self.guardian.release(others_live);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(super) fn receive_from(listener: &OwnedFd) -> Option<Notification> {
    // SAFETY: plain integers, for which zeros are valid.
    receive(listener.as_raw_fd(), &mut unsafe { zeroed() })
}

fn receive(fd: RawFd, room: &mut Received) -> Option<Notification> {
    // SAFETY: plain integers, for which zeros are valid. The kernel requires zeros.
    *room = unsafe { zeroed() };
    // SAFETY: the buffer is ours and longer than what the kernel writes.
    if unsafe { libc::ioctl(fd, IOCTL_RECEIVE as _, &raw mut *room) } != 0 {
        return None;
    }
    let Received { id, pid, number, architecture, arguments, instruction, .. } = *room;
    Some(Notification { id, thread: pid, architecture, number, arguments, instruction })
}

pub(super) fn let_go_on(fd: RawFd, call: &Notification) -> Answered {
    let mut answer = Answer { id: call.id, value: 0, error: 0, flags: ANSWER_CONTINUE };
    loop {
        // SAFETY: the kernel reads a structure of ours.
        if unsafe { libc::ioctl(fd, IOCTL_SEND as _, &mut answer) } == 0 {
            return Answered::GoesOn;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EINVAL) => return Answered::Refused,
            _ => return Answered::Gone,
        }
    }
}

/// Reads memory of a process into `to`, up to the first address that is not mapped. Returns how
/// many bytes were read.
pub fn read_memory(process: u32, address: u64, to: &mut [u8]) -> io::Result<usize> {
    let to = std::cell::RefCell::new(to);
    READING.or(
        || read_at_once(process, address, &mut to.borrow_mut()),
        || read_memory_file(process, address, &mut to.borrow_mut()),
    )
}

/// `process_vm_readv`, Linux 3.2. Seccomp profiles of containers refuse it, although the kernel
/// would allow it.
static READING: Newer = Newer::new();

fn read_at_once(process: u32, address: u64, to: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: to.len() };
    // SAFETY: the kernel checks the other process's addresses and writes no more than `to` holds.
    let count = unsafe { libc::process_vm_readv(process as libc::pid_t, &local, 1, &remote, 1, 0) };
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
}

/// Reads memory by `/proc/PID/mem`. The kernel allows it for the same processes.
fn read_memory_file(process: u32, address: u64, to: &mut [u8]) -> io::Result<usize> {
    let path = format!("/proc/{process}/mem");
    let memory = super::files::open(path.as_bytes(), super::files::Opening::Read)?;
    match rustix::io::pread(&memory, to, address) {
        // Nothing is mapped at the address.
        Err(Errno::IO) => Err(Errno::FAULT.into()),
        read => Ok(read?),
    }
}

/// Returns true if `thread` is a thread of `process` and has not ended.
pub fn is_thread_of(thread: u32, process: u32) -> bool {
    // SAFETY: signal 0 only checks whether the thread exists.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, process as libc::pid_t, thread as libc::pid_t, 0) };
    done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Returns the target of a symbolic link.
pub fn link_target(path: &[u8]) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlink(path, Vec::new())?.into_bytes())
}

/// Returns the effective group id.
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns the signal that ended an opened process (Linux 6.15). Before that, only the parent of
/// the process learns it, and this returns `None`.
pub fn signal_that_ended(process: impl AsFd) -> Option<i32> {
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    const INFO_EXIT: u64 = 1 << 3;
    // The first version of `struct pidfd_info`: the mask is its first field, the exit status its
    // last.
    let mut info = [0u64; 8];
    info[0] = INFO_EXIT;
    // SAFETY: the request's number contains the size of 64 bytes, which the array has.
    let done = unsafe { libc::ioctl(process.as_fd().as_raw_fd(), PIDFD_GET_INFO as _, &mut info) };
    let status = (info[7] >> 32) as i32;
    (done == 0 && info[0] & INFO_EXIT != 0 && status & 0x7f != 0).then_some(status & 0x7f)
}

// ---------------------------------------------------------------- the guardian

/// A small helper process that also holds the listener.
///
/// Once the last descriptor of a listener is closed, the calls that would notify it fail. That must
/// not happen to processes that still run if we end or are killed. So the guardian answers after we
/// are gone, until no process is left that could ask.
struct Guardian {
    pid: libc::pid_t,
    /// The write end of a pipe, which is open as long as we are at work. One byte in it means that
    /// there is nothing left to guard.
    ours: OwnedFd,
    /// Shared memory with the notification that was received last. The kernel does not deliver a
    /// call twice, so the guardian must know it to answer it.
    asked: *mut Received,
}

impl Guardian {
    fn start(listener: &OwnedFd) -> io::Result<Guardian> {
        let (theirs, ours) = super::pipe()?;
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let shared = rustix::mm::MapFlags::SHARED;
        // SAFETY: this is a new mapping at an address that the kernel chooses, full of zeros. It
        // stays until both processes have ended.
        let asked = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size_of::<Received>(), access, shared)? };
        let asked = asked.cast::<Received>();
        // SAFETY: the child only makes system calls, on its own stack, and never returns.
        match unsafe { super::process::fork_unseen()? } {
            0 => guard(listener.as_raw_fd(), theirs.as_raw_fd(), asked),
            pid => Ok(Guardian { pid, ours, asked }),
        }
    }

    fn release(self, others_live: bool) {
        if others_live {
            return;
        }
        if rustix::io::write(&self.ours, &[0]) != Ok(1) {
            // The guardian could not be told that nothing is left to guard.
            // SAFETY: this is our own child, which was not waited for yet.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        // SAFETY: waits for our own child.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// Runs the guardian. It has no terminal, keeps no directory in use and no other descriptor open,
/// and only SIGKILL ends it.
fn guard(listener: RawFd, pipe: RawFd, asked: *mut Received) -> ! {
    const LISTENER: RawFd = 0;
    const PIPE: RawFd = 1;
    // SAFETY: changes this process's own descriptors and signals. Only these two descriptors are
    // used afterwards.
    unsafe {
        libc::setsid();
        super::signals::block_all();
        // The descriptors are first moved up, so that neither `dup2` overwrites the other one.
        let (listener, pipe) = (libc::fcntl(listener, libc::F_DUPFD, 3), libc::fcntl(pipe, libc::F_DUPFD, 3));
        libc::dup2(listener, LISTENER);
        libc::dup2(pipe, PIPE);
        super::closing::close_range(2, RawFd::MAX);
        libc::chdir(c"/".as_ptr());
    }
    let mut byte = [0u8];
    // SAFETY: reads one byte into a buffer of one. The call returns when we write it, or when we
    // are gone.
    if unsafe { libc::read(PIPE, byte.as_mut_ptr().cast(), 1) } == 0 {
        // SAFETY: no other process is left that uses this memory.
        answer_all(LISTENER, unsafe { &mut *asked });
    }
    super::end_process(0)
}

/// Lets every call go on until no process is left that could make one. The call that was received
/// last is answered first.
fn answer_all(listener: RawFd, room: &mut Received) {
    let last = Notification { id: room.id, thread: 0, architecture: 0, number: 0, arguments: [0; 6], instruction: 0 };
    let_go_on(listener, &last);
    loop {
        let mut set = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        // SAFETY: passes one entry, which is ours.
        let count = unsafe { libc::poll(&mut set, 1, -1) };
        if count > 0 && set.revents & libc::POLLIN == 0 {
            return;
        }
        if count > 0
            && let Some(call) = receive(listener, room)
        {
            let_go_on(listener, &call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before Linux 6.11, receiving from a listener waits for ever if all processes that could send
    /// a notification are gone. In that case `poll` finds its other end closed and nothing to read.
    #[test]
    fn nothing_is_received_from_a_deserted_listener() {
        #[derive(Default)]
        struct Counting {
            served: u32,
            deserted: u32,
        }
        impl Attendant for Counting {
            fn filter(&self) -> Vec<FilterStep> {
                Vec::new()
            }
            fn attach(&mut self, _: Listener, _: u32) {}
            fn listener(&self) -> Option<BorrowedFd<'_>> {
                None
            }
            fn serve(&mut self) -> io::Result<()> {
                self.served += 1;
                Ok(())
            }
            fn desert(&mut self) {
                self.deserted += 1;
            }
            fn release(&mut self, _: bool) {}
        }
        let mut attendant = Counting::default();
        let mut found = |flags| attend(&mut attendant, flags).expect("serves");
        assert!(!found(PollFlags::empty()));
        assert!(found(PollFlags::IN));
        assert!(found(PollFlags::IN | PollFlags::HUP));
        assert!(found(PollFlags::HUP));
        assert_eq!((attendant.served, attendant.deserted), (2, 1));
    }

    #[test]
    fn memory_is_read_alike_by_both_ways() {
        let text = *b"some bytes of ours";
        let own = crate::process_id();
        for (address, count) in [(text.as_ptr() as u64, text.len()), (8, 4)] {
            let (mut once, mut file) = (vec![0; count], vec![0; count]);
            let told = |read: io::Result<usize>| read.map_err(|error| error.raw_os_error());
            let by_call = told(read_at_once(own, address, &mut once));
            if by_call == Err(Some(libc::ENOSYS)) || by_call == Err(Some(libc::EPERM)) {
                return eprintln!("skipped: reading memory of processes is not allowed here");
            }
            assert_eq!(told(read_memory_file(own, address, &mut file)), by_call);
            assert_eq!(once, file);
        }
    }
}
