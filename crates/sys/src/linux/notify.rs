//! Being asked before system calls of another process: seccomp user notification.
//!
//! A filter that a program installs before it becomes the tool makes the kernel stop at the calls it names and tell
//! whoever holds its listener. The only answer given here is to let the call go on: the tool's own call runs, by its
//! own rights. Unaware of: which calls matter, and what is made of them.

use std::cell::Cell;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::files::Newer;

/// One instruction of a filter (`struct sock_filter`): classic BPF over `struct seccomp_data`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterStep {
    /// Operation.
    pub code: u16,
    /// How many steps are passed over when its condition holds.
    pub if_true: u8,
    /// And when it does not.
    pub if_false: u8,
    /// Operand.
    pub value: u32,
}

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    id: u64,
    /// The thread, by the numbers of this process's namespace; 0 when it is in none that can be seen from here.
    pub thread: u32,
    /// `AUDIT_ARCH_*`: which table the number is from.
    pub architecture: u32,
    /// Which call.
    pub number: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Where in the caller's memory the instruction is that makes it.
    pub instruction: u64,
}

/// Where the notifications of one filter arrive.
pub struct Listener {
    fd: OwnedFd,
    guardian: Guardian,
    /// The number that the next notification has if none is taken back before it is received.
    next: Cell<Option<u64>>,
    missed: Cell<bool>,
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The call goes on. Its thread waited all the time.
    GoesOn,
    /// Nothing waits any more: the thread has ended, or a signal has interrupted its call. That may have been so
    /// already when its memory was read, so what was read tells nothing.
    Gone,
    /// The kernel takes no such answer (EINVAL before Linux 5.5), so the thread waits for ever.
    Refused,
}

/// Serves a listener while something else is waited for.
pub trait Attendant {
    /// The filter that the program gets.
    fn filter(&self) -> Vec<FilterStep>;
    /// The program is about to begin as process `pid`; this is its listener.
    fn attach(&mut self, listener: Listener, pid: u32);
    /// The listener, as long as notifications can come.
    fn listener(&self) -> Option<BorrowedFd<'_>>;
    /// Answers the notification that waits. An error means that the kernel does not take our answers.
    fn serve(&mut self) -> io::Result<()>;
    /// The last process that could send a notification is gone.
    fn desert(&mut self);
    /// The program has ended; `others_live` when processes that it started have not. Their calls must not wait for us.
    fn release(&mut self, others_live: bool);
}

/// Does what `poll` found on the attendant's listener. Returns whether it found anything.
pub(super) fn attend(attendant: &mut dyn Attendant, found: PollFlags) -> io::Result<bool> {
    if found.contains(PollFlags::IN) {
        attendant.serve()?;
    } else if !found.is_empty() {
        attendant.desert();
    }
    Ok(!found.is_empty())
}

impl Notification {
    /// A call at which a thread was stopped otherwise.
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
/// Linux 6.6: wake the other side on the processor that we are on, since one of the two always waits.
const IOCTL_SET_FLAGS: u64 = 0x4008_2104;
const FLAG_SYNC_WAKE_UP: u64 = 1;
const ANSWER_CONTINUE: u32 = 1;

/// `struct seccomp_notif`, with room: the kernel's may be longer than the one known here.
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
    /// Take charge of a filter's listener.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Listener> {
        // SAFETY: passes a number; kernels that do not know it say so, and are merely slower.
        unsafe { libc::ioctl(fd.as_raw_fd(), IOCTL_SET_FLAGS as _, FLAG_SYNC_WAKE_UP) };
        let guardian = Guardian::start(&fd)?;
        Ok(Listener { fd, guardian, next: Cell::new(None), missed: Cell::new(false) })
    }

    /// The next notification. Returns `None` if its sender is gone already. Call it only after `poll` has found something to
    /// read: before Linux 6.11 it waits for ever once all processes that could send one are gone.
    pub fn receive(&self) -> Option<Notification> {
        // SAFETY: the guardian's room, which only it reads, when we are gone.
        let call = receive(self.fd.as_raw_fd(), unsafe { &mut *self.guardian.asked })?;
        // The kernel numbers them one after the other (`seccomp_next_notify_id`) and hands them out in that order.
        self.missed.set(self.missed.get() || self.next.get().is_some_and(|next| next != call.id));
        self.next.set(Some(call.id.wrapping_add(1)));
        Some(call)
    }

    /// Returns true if a notification was taken back before it was received. Its thread was interrupted by a signal, or
    /// killed.
    pub fn missed_some(&self) -> bool {
        self.missed.get()
    }

    /// Lets the call go on.
    pub fn let_go_on(&self, call: &Notification) -> Answered {
        let_go_on(self.fd.as_raw_fd(), call)
    }

    /// Whether the call still waits: then its process is the one that has its number, and was so all the time.
    pub fn still_waits(&self, call: &Notification) -> bool {
        // SAFETY: reads one number of ours.
        unsafe { libc::ioctl(self.fd.as_raw_fd(), IOCTL_IS_VALID as _, &call.id) == 0 }
    }

    /// Nobody asks any more (`others_live` is false), or from now on nobody looks at what they ask.
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
    // SAFETY: plain integers, for which zeros are valid; the kernel wants to find zeros.
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
        // SAFETY: reads a structure of ours.
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

/// Reads memory of a process into `to`, as much of it as there is in one piece.
pub fn read_memory(process: u32, address: u64, to: &mut [u8]) -> io::Result<usize> {
    let to = std::cell::RefCell::new(to);
    READING.or(
        || read_at_once(process, address, &mut to.borrow_mut()),
        || read_memory_file(process, address, &mut to.borrow_mut()),
    )
}

/// Linux 3.2. Profiles of containers refuse it, though the kernel lets us read.
static READING: Newer = Newer::new();

fn read_at_once(process: u32, address: u64, to: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: to.len() };
    // SAFETY: the kernel checks the other process's addresses and writes no more than `to` holds.
    let count = unsafe { libc::process_vm_readv(process as libc::pid_t, &local, 1, &remote, 1, 0) };
    if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
}

/// Reads by `/proc/PID/mem`, which the kernel allows to the same processes.
fn read_memory_file(process: u32, address: u64, to: &mut [u8]) -> io::Result<usize> {
    let path = format!("/proc/{process}/mem");
    let memory = super::files::open(path.as_bytes(), super::files::Opening::Read)?;
    match rustix::io::pread(&memory, to, address) {
        // Nothing is mapped there.
        Err(Errno::IO) => Err(Errno::FAULT.into()),
        read => Ok(read?),
    }
}

/// Whether `thread` is a thread of `process`, one that has not ended.
pub fn is_thread_of(thread: u32, process: u32) -> bool {
    // SAFETY: signal 0 is not sent, only asked about.
    let done = unsafe { libc::syscall(libc::SYS_tgkill, process as libc::pid_t, thread as libc::pid_t, 0) };
    done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// The target of a symbolic link.
pub fn link_target(path: &[u8]) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlink(path, Vec::new())?.into_bytes())
}

/// The effective group.
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// By which signal the process behind `process` ended, after it did: Linux 6.15; before that nobody but its parent
/// learns it.
pub fn signal_that_ended(process: impl AsFd) -> Option<i32> {
    const PIDFD_GET_INFO: u64 = 0xc040_ff0b;
    const INFO_EXIT: u64 = 1 << 3;
    // The first version of `struct pidfd_info`: the mask is its first field, the exit status its last.
    let mut info = [0u64; 8];
    info[0] = INFO_EXIT;
    // SAFETY: the number says that 64 bytes are there, and they are.
    let done = unsafe { libc::ioctl(process.as_fd().as_raw_fd(), PIDFD_GET_INFO as _, &mut info) };
    let status = (info[7] >> 32) as i32;
    (done == 0 && info[0] & INFO_EXIT != 0 && status & 0x7f != 0).then_some(status & 0x7f)
}

/// A descriptor that stands for a process, whatever becomes of its number.
pub fn process_handle(process: u32) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(process as i32).ok_or(Errno::SRCH)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

// ---------------------------------------------------------------- the guardian

/// Once the last descriptor of a listener is closed, the calls that would notify it fail. So that neither our end nor
/// our sudden death does that to what still runs, a process of a few pages holds it as well, and answers when we are
/// gone, until nobody asks any more.
struct Guardian {
    pid: libc::pid_t,
    /// Open as long as we are at work. One byte in it says that there is nothing left to guard.
    ours: OwnedFd,
    /// Memory that both have: the notification that was received last. A call that we received and did not answer is
    /// told to nobody else.
    asked: *mut Received,
}

impl Guardian {
    fn start(listener: &OwnedFd) -> io::Result<Guardian> {
        let (theirs, ours) = super::pipe()?;
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let shared = rustix::mm::MapFlags::SHARED;
        // SAFETY: a new mapping at an address that the kernel chooses, full of zeros; it stays until both have ended.
        let asked = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size_of::<Received>(), access, shared)? };
        let asked = asked.cast::<Received>();
        // No signal at its end, so that waiting for the tool's processes does not find it.
        const NO_SIGNAL: libc::c_ulong = 0;
        // SAFETY: like `fork`; the child makes system calls only, on its own stack, and never returns.
        match unsafe { libc::syscall(libc::SYS_clone, NO_SIGNAL, 0, 0, 0, 0) } {
            -1 => Err(io::Error::last_os_error()),
            0 => guard(listener.as_raw_fd(), theirs.as_raw_fd(), asked),
            pid => Ok(Guardian { pid: pid as libc::pid_t, ours, asked }),
        }
    }

    fn release(self, others_live: bool) {
        if others_live {
            return;
        }
        if rustix::io::write(&self.ours, &[0]) != Ok(1) {
            // It was not told, and nothing is left to guard.
            // SAFETY: our own child, which was not waited for yet.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
        }
        // SAFETY: waits for our own child.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// The guardian's life. It has no terminal, no directory and no descriptor of anybody's, and no signal but KILL ends
/// it.
fn guard(listener: RawFd, pipe: RawFd, asked: *mut Received) -> ! {
    const LISTENER: RawFd = 0;
    const PIPE: RawFd = 1;
    // SAFETY: this process's own descriptors and signals; nothing of it is used afterwards but the two.
    unsafe {
        libc::setsid();
        let mut all = zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        // Neither may be overwritten before it was copied.
        let (listener, pipe) = (libc::fcntl(listener, libc::F_DUPFD, 3), libc::fcntl(pipe, libc::F_DUPFD, 3));
        libc::dup2(listener, LISTENER);
        libc::dup2(pipe, PIPE);
        super::closing::close_range(2, RawFd::MAX);
        libc::chdir(c"/".as_ptr());
    }
    let mut byte = [0u8];
    // SAFETY: reads one byte into a buffer of one. Ends when we write it, or when we are gone.
    if unsafe { libc::read(PIPE, byte.as_mut_ptr().cast(), 1) } == 0 {
        // SAFETY: nobody else is left to use it.
        answer_all(LISTENER, unsafe { &mut *asked });
    }
    super::end_process(0)
}

/// Let every call go on, the one that was received last to begin with, until no process is left that could make one.
fn answer_all(listener: RawFd, room: &mut Received) {
    let last = Notification { id: room.id, thread: 0, architecture: 0, number: 0, arguments: [0; 6], instruction: 0 };
    let_go_on(listener, &last);
    loop {
        let mut set = libc::pollfd { fd: listener, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, ours.
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

    /// Before Linux 6.11, receiving from a listener waits for ever if all processes that could send a notification are gone.
    /// That is when `poll` finds its other end closed and nothing to read.
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
                return eprintln!("skipped: memory cannot be read here");
            }
            assert_eq!(told(read_memory_file(own, address, &mut file)), by_call);
            assert_eq!(once, file);
        }
    }
}
