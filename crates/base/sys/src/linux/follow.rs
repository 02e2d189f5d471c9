//! Observing the system calls of a few processes from outside, by `ptrace`, for as long as they are
//! of interest.
//!
//! Each event leaves its thread stopped until the next event is requested, so that the thread can
//! be inspected. Processes that a traced process forks are traced as well, and so is what it
//! executes. If we end in any way, the kernel lets all traced processes go on.
//!
//! Unaware of: which calls matter, and what the events are used for.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::{size_of, zeroed};
use std::time::Duration;

use super::cpu_affinity::CpuAffinity;
use super::notify::{Notification, is_thread_of};
use super::signals::{block_all, set_of};
use super::trace::{control, is_stopping, makers, message};

/// An event of a traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// The process is traced from now on.
    Began,
    /// The process is about to make a system call.
    Called(Notification),
    /// The process created this process, which has not run yet and is traced as well.
    Forked(u32),
    /// The process has ended.
    Ended {
        /// True if a signal killed it.
        killed: bool,
    },
}

/// The processes that are traced.
pub struct Followed {
    /// The traced threads, each with its process.
    of_thread: HashMap<i32, i32>,
    /// Threads that are detached when they stop next.
    left: HashSet<i32>,
    /// Processes whose first stop was not seen yet.
    beginning: HashSet<i32>,
    /// Threads that stopped before the stop that says which thread created them.
    early: HashSet<i32>,
    /// The thread that stays stopped until the next event is requested.
    held: Option<i32>,
    near: CpuAffinity,
}

const OPTIONS: i32 =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE;
/// The signal of a stop for a system call (`PTRACE_O_TRACESYSGOOD`).
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// `PTRACE_GET_SYSCALL_INFO`, Linux 5.3.
const GET_SYSCALL_INFO: i32 = 0x420e;
const ENTRY: u64 = 1;
/// How often `wait_for_left` checks a thread, which takes 10 ms. A thread that still sleeps in the
/// kernel then is detached when it wakes.
const LOOKS_MAX: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// How often the trial checks its child: for ten seconds at most. The child stops within
/// microseconds.
const TRIAL_LOOKS_MAX: u32 = 50_000;
const TRIAL_LOOK_EVERY: Duration = Duration::from_micros(200);

/// `struct ptrace_syscall_info` of a system call that begins.
#[repr(C)]
struct CallInfo {
    /// The lowest byte says whether a call begins or ends. The upper half says which system call
    /// table its number is from.
    operation: u64,
    instruction: u64,
    stack: u64,
    number: u64,
    arguments: [u64; 6],
    room: u64,
}

/// Tries all that tracing a process needs, on a child that waits: attaching to it, stopping it,
/// reading its memory, and asking which call it is in (Linux 5.3).
///
/// The error says what is refused here. For example, containers of 2018 refuse to attach.
pub fn try_following() -> io::Result<()> {
    const MARK: [u8; 16] = *b"read this please";
    // SAFETY: the child only makes system calls, and never returns.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => loop {
            // SAFETY: both are system calls without pointers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                libc::pause();
            }
        },
        pid => super::Child { pid },
    };
    let step = |what: &'static str| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let tried = || {
        control(libc::PTRACE_SEIZE as _, child.pid, 0, OPTIONS as usize).map_err(step("attaching to a process"))?;
        control(libc::PTRACE_INTERRUPT as _, child.pid, 0, 0).map_err(step("stopping a process"))?;
        wait_for_stop(child.pid).map_err(step("waiting until a process is stopped"))?;
        let mut read = [0; MARK.len()];
        super::notify::read_memory(child.pid as u32, MARK.as_ptr() as u64, &mut read)
            .map_err(step("reading the memory of a process"))?;
        if read != MARK {
            return Err(io::Error::other("reading the memory of a process gave wrong bytes"));
        }
        // SAFETY: plain integers, for which zeros are valid.
        let mut info: CallInfo = unsafe { zeroed() };
        control(GET_SYSCALL_INFO, child.pid, size_of::<CallInfo>(), (&raw mut info) as usize)
            .map_err(step("asking which system call a process makes"))
    };
    let tried = tried();
    // SAFETY: this is our child, which was not waited for yet.
    unsafe { libc::kill(child.pid, libc::SIGKILL) };
    let _ = child.wait();
    tried
}

/// Waits for the first stop of a child.
fn wait_for_stop(pid: i32) -> io::Result<()> {
    for _ in 0..TRIAL_LOOKS_MAX {
        let mut status = 0;
        // SAFETY: writes to our own integer.
        match unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 => std::thread::sleep(TRIAL_LOOK_EVERY),
            found if found == pid && libc::WIFSTOPPED(status) => return Ok(()),
            -1 => return Err(io::Error::last_os_error()),
            _ => return Err(io::Error::other("the process ended")),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

impl Followed {
    /// Returns a set without processes, and sets up the signals of this process.
    ///
    /// From here on, SIGURG does nothing but wake `wait`, and once in a while it may fail to do so.
    /// All children of this process must be traced by this set.
    pub fn nobody() -> Followed {
        // SAFETY: the handler does nothing; the structures are initialised; the mask is this
        // process's own.
        unsafe {
            // No SIGCHLD is sent for stops, because `waitpid` reports them. The signal would wake
            // us on the CPU that the other thread ran on.
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            action.sa_flags = libc::SA_NOCLDSTOP;
            libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
            action.sa_sigaction = nothing as *const () as usize;
            action.sa_flags = 0;
            libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut());
            libc::sigprocmask(libc::SIG_UNBLOCK, &woken_by(), std::ptr::null_mut());
        }
        Followed {
            of_thread: HashMap::new(),
            left: HashSet::new(),
            beginning: HashSet::new(),
            early: HashSet::new(),
            held: None,
            near: CpuAffinity::default(),
        }
    }

    /// Pins a stopped process, and those that it creates, to our CPU. It does nothing if a process
    /// is pinned already.
    ///
    /// The pinning ends with `let_roam`, when the process is no longer traced, or when it creates a
    /// thread.
    pub fn keep_near(&mut self, process: u32) {
        self.near.keep(process as i32);
    }

    /// Ends all pinning.
    pub fn let_roam(&mut self) {
        self.near.release_all();
    }

    /// Traces a process that has one thread. Fails if that is not allowed, or if another process
    /// traces it.
    pub fn follow(&mut self, pid: u32) -> io::Result<()> {
        let pid = pid as i32;
        control(libc::PTRACE_SEIZE as _, pid, 0, OPTIONS as usize)?;
        self.of_thread.insert(pid, pid);
        self.beginning.insert(pid);
        control(libc::PTRACE_INTERRUPT as _, pid, 0, 0)
    }

    /// Lets the thread of the last event go on, and returns the next event with its process.
    /// Returns `None` if a signal came.
    pub fn wait(&mut self) -> Option<(u32, Did)> {
        if let Some(held) = self.held.take() {
            resume(held, 0);
        }
        loop {
            let mut status = 0;
            // SAFETY: writes to our own integer.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
            if pid <= 0 {
                if io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
                    wait_for_a_signal();
                }
                return None;
            }
            let process = self.of_thread.get(&pid).copied();
            let did = match libc::WIFSTOPPED(status) {
                true if self.left.contains(&pid) => self.let_go_of(pid, status),
                true => self.stopped(pid, status),
                false => self.ended(pid, libc::WIFSIGNALED(status)),
            };
            if let (Some(did), Some(process)) = (did, process) {
                return Some((process as u32, did));
            }
        }
    }

    /// Returns true if a process has more than one thread.
    pub fn has_threads(&self, process: u32) -> bool {
        self.of_thread.values().filter(|of| **of == process as i32).count() > 1
    }

    /// Stops tracing a process. What it creates from now on is not traced either.
    pub fn leave(&mut self, process: u32) {
        let process = process as i32;
        let threads: Vec<i32> = self.of_thread.iter().filter(|(_, of)| **of == process).map(|(t, _)| *t).collect();
        for thread in threads {
            self.near.release(thread);
            self.of_thread.remove(&thread);
            self.beginning.remove(&thread);
            if self.held == Some(thread) {
                self.held = None;
                detach(thread, 0);
            } else {
                self.left.insert(thread);
            }
        }
    }

    /// Detaches the threads of processes that were left, if that is possible soon.
    pub fn wait_for_left(&mut self) {
        for thread in self.left.iter().copied().collect::<Vec<_>>() {
            let _ = control(libc::PTRACE_INTERRUPT as _, thread, 0, 0);
            for _ in 0..LOOKS_MAX {
                let mut status = 0;
                // SAFETY: writes to our own integer.
                match unsafe { libc::waitpid(thread, &mut status, libc::__WALL | libc::WNOHANG) } {
                    0 => std::thread::sleep(LOOK_EVERY),
                    pid if pid > 0 && libc::WIFSTOPPED(status) => {
                        self.let_go_of(thread, status);
                        break;
                    }
                    _ => {
                        self.left.remove(&thread);
                        break;
                    }
                }
            }
        }
    }

    fn let_go_of(&mut self, thread: i32, status: i32) -> Option<Did> {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if is_making(event)
            && let Ok(child) = message(thread)
        {
            self.near.release_unseen(child);
            match self.early.remove(&child) {
                true => detach(child, 0),
                false => drop(self.left.insert(child)),
            }
        }
        self.left.remove(&thread);
        detach(thread, if event == 0 && signal != CALL_STOP { signal } else { 0 });
        None
    }

    fn stopped(&mut self, thread: i32, status: i32) -> Option<Did> {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            0 if signal == CALL_STOP => return self.called(thread),
            0 => resume(thread, signal),
            _ if is_making(event) => return self.forked(thread),
            libc::PTRACE_EVENT_STOP if is_stopping(signal) => {
                let _ = control(libc::PTRACE_LISTEN as _, thread, 0, 0);
            }
            libc::PTRACE_EVENT_STOP if !self.of_thread.contains_key(&thread) => drop(self.early.insert(thread)),
            libc::PTRACE_EVENT_STOP if self.beginning.remove(&thread) => {
                self.held = Some(thread);
                return Some(Did::Began);
            }
            _ => resume(thread, 0),
        }
        None
    }

    fn called(&mut self, thread: i32) -> Option<Did> {
        // SAFETY: plain integers, for which zeros are valid.
        let mut info: CallInfo = unsafe { zeroed() };
        let told = control(GET_SYSCALL_INFO, thread, size_of::<CallInfo>(), (&raw mut info) as usize);
        if told.is_err() || info.operation & 0xff != ENTRY {
            resume(thread, 0);
            return None;
        }
        self.held = Some(thread);
        let architecture = (info.operation >> 32) as u32;
        let CallInfo { number, arguments, instruction, .. } = info;
        Some(Did::Called(Notification::of_stopped(thread as u32, architecture, number as i32, arguments, instruction)))
    }

    fn forked(&mut self, thread: i32) -> Option<Did> {
        let process = *self.of_thread.get(&thread).unwrap_or(&thread);
        self.held = Some(thread);
        let child = message(thread).ok()?;
        let is_thread = is_thread_of(child as u32, process as u32);
        self.near.made(thread, child);
        if is_thread {
            self.near.release_all();
        }
        self.of_thread.insert(child, if is_thread { process } else { child });
        if self.early.remove(&child) {
            resume(child, 0);
        }
        if is_thread {
            self.held = None;
            resume(thread, 0);
            return None;
        }
        Some(Did::Forked(child as u32))
    }

    fn ended(&mut self, thread: i32, killed: bool) -> Option<Did> {
        self.near.release(thread);
        self.left.remove(&thread);
        self.early.remove(&thread);
        self.beginning.remove(&thread);
        let process = self.of_thread.remove(&thread);
        self.free_orphans();
        (process == Some(thread)).then_some(Did::Ended { killed })
    }

    /// Detaches new threads whose creator was killed in the middle of a fork. The creator's stop
    /// never comes, so no other code would let them go on.
    fn free_orphans(&mut self) {
        let known = |maker: &i32| self.of_thread.contains_key(maker) || self.left.contains(maker);
        let (left, orphans): (HashSet<i32>, HashSet<i32>) =
            self.early.iter().partition(|child| makers(**child).iter().any(known));
        self.early = left;
        for child in orphans {
            self.near.release_unseen(child);
            detach(child, 0);
        }
    }
}

extern "C" fn nothing(_signal: i32) {}

/// Sleeps until a signal comes, for at most 20 ms, if no process is traced.
fn wait_for_a_signal() {
    const AT_MOST: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let set = woken_by();
    // SAFETY: the set is blocked while it is waited for.
    unsafe {
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::sigtimedwait(&set, std::ptr::null_mut(), &AT_MOST);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

fn woken_by() -> libc::sigset_t {
    set_of(&[libc::SIGURG])
}

fn is_making(event: i32) -> bool {
    matches!(event, libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE)
}

/// Lets a thread run until its next system call begins or ends. This fails if the thread was killed
/// meanwhile. Its end is then reported.
fn resume(thread: i32, signal: i32) {
    let _ = control(libc::PTRACE_SYSCALL as _, thread, 0, signal as usize);
}

fn detach(thread: i32, signal: i32) {
    let _ = control(libc::PTRACE_DETACH as _, thread, 0, signal as usize);
}

/// A helper process that works on a copy of this process's memory, until its work is done or this
/// process has ended.
pub struct Beside {
    pid: libc::pid_t,
}

impl Beside {
    /// Starts a helper process that does `work`. This process must have one thread.
    ///
    /// Apart from memory, `work` must not use what this process shares with others, for example
    /// standard streams and children.
    pub fn start(work: impl FnOnce()) -> io::Result<Beside> {
        let parent = super::process_id();
        // SAFETY: this process has one thread; the child never returns.
        match unsafe { super::process::fork_unseen()? } {
            0 => {
                // A panic would call `abort`, which signals the thread id that libc remembers. That
                // is the parent's.
                std::panic::set_hook(Box::new(|_| super::end_process(1)));
                // SAFETY: changes only this process's own signals and session.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::setsid();
                }
                block_all();
                if super::parent_process_id() == parent {
                    work();
                }
                super::end_process(0)
            }
            pid => Ok(Beside { pid }),
        }
    }

    /// Returns its pid.
    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Wakes it with SIGURG, and waits for its end.
    pub fn end(self) {
        loop {
            // SAFETY: this is our own child, which was not waited for yet.
            let waited = unsafe {
                libc::kill(self.pid, libc::SIGURG);
                libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE | libc::WNOHANG)
            };
            if waited != 0 {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_can_be_followed_or_the_reason_is_said() {
        match try_following() {
            Ok(()) => {}
            Err(error) => eprintln!("skipped: {error}"),
        }
        // Nothing is left of it either way. Other tests of this program may have children at the same time.
        while crate::children_left() {
            std::thread::sleep(TRIAL_LOOK_EVERY);
        }
    }
}
