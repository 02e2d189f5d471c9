//! Following a program and everything that it starts: who forks, executes and ends, and what that took. By `ptrace`
//! with events for these alone: nothing else that a process does stops it.
//!
//! A process that executed or is about to end stays stopped until it is let go on, so that it can be looked at in
//! `/proc`. Everything here is on the way of every process of a build: a stop costs two switches of context, and what is
//! done before the process goes on again is time that the build waits.
//!
//! Unaware of: what is made of that.

use std::collections::{HashMap, HashSet};
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::notify::is_thread_of;
use super::process::{CStrings, Child, ChildEnd, c_string};

/// What processes used, as the kernel says when they end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time outside the kernel, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// The most memory that one of them held at once, in bytes.
    pub peak_bytes: u64,
    /// Page faults that read nothing.
    pub minor_faults: u64,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Times that it gave the processor up.
    pub voluntary_switches: u64,
    /// Times that the processor was taken from it.
    pub involuntary_switches: u64,
}

/// Something that a process did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process was made.
    Forked {
        /// Its parent.
        parent: i32,
        /// Itself.
        child: i32,
    },
    /// A process runs another program now.
    Executed {
        /// Which one.
        pid: i32,
    },
    /// A process is about to end, and can be looked at for the last time. Said of those that started others.
    Ending {
        /// Which one.
        pid: i32,
    },
    /// A process has ended.
    Ended {
        /// Which one.
        pid: i32,
        /// How.
        end: ChildEnd,
        /// What it used, with those of its children that it waited for.
        usage: Usage,
        /// How many threads it started.
        threads: u32,
    },
}

/// A program that is followed.
pub struct Tracer {
    /// The program itself.
    pub pid: i32,
    /// How often any process was stopped.
    pub stops: u64,
    /// Thread → process.
    of_thread: HashMap<i32, i32>,
    /// How many threads each process started.
    threads: HashMap<i32, u32>,
    /// Stopped before its parent said that it made it.
    early: HashSet<i32>,
    /// Stopped until it is let go on.
    held: Option<i32>,
    /// Threads that stop once more when they end.
    told: HashSet<i32>,
    /// What was made by one of these, and is to stop no more than others.
    inherited: HashSet<i32>,
}

/// A thread is known by its number, and stays so until it has ended.
const FOLLOWED: i32 =
    libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
/// What goes on when the program has ended is let go within this.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);

/// What a program is started with.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The program's path.
    pub path: &'a [u8],
    /// All arguments.
    pub argv: &'a [Vec<u8>],
    /// `NAME=value`.
    pub environment: &'a [Vec<u8>],
    /// (ours, its).
    pub descriptors: &'a [(RawFd, RawFd)],
}

/// Start a program, followed. It gets the signal mask from before `mask` was prepared. An error also where following is
/// not allowed: then the program was not started.
pub fn spawn_traced(start: Start, mask: &crate::SignalForwarding) -> io::Result<Tracer> {
    let Gated { child: Child { pid }, go, told } = gated(start, mask)?;
    if let Err(error) = control(libc::PTRACE_SEIZE as _, pid, 0, FOLLOWED as usize) {
        // Its gate closes: it ends without having begun.
        drop(go);
        let _ = Child { pid }.wait();
        return Err(error);
    }
    rustix::io::write(&go, b"g")?;
    let tracer = Tracer {
        pid,
        stops: 0,
        of_thread: HashMap::from([(pid, pid)]),
        threads: HashMap::new(),
        early: HashSet::new(),
        held: None,
        told: HashSet::new(),
        inherited: HashSet::new(),
    };
    tracer.begun(told)
}

/// Start a program in the same way, not followed: what it inherits is the same.
pub fn spawn_untraced(start: Start, mask: &crate::SignalForwarding) -> io::Result<Child> {
    let Gated { child, go, told } = gated(start, mask)?;
    rustix::io::write(&go, b"g")?;
    match failure(&told) {
        None => Ok(child),
        Some(error) => {
            let _ = child.wait();
            Err(error)
        }
    }
}

/// A child that waits to be let through its gate before it executes.
struct Gated {
    child: Child,
    go: OwnedFd,
    /// The number of the error for which it could not; closed when it could.
    told: OwnedFd,
}

fn gated(start: Start, mask: &crate::SignalForwarding) -> io::Result<Gated> {
    let Start { path, argv, environment, descriptors } = start;
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    let (go, wait) = gate()?;
    let (failure, told) = gate()?;
    // SAFETY: everything that the child needs was made before; it makes system calls only and never returns.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: as above.
        0 => unsafe {
            let mut byte = 0u8;
            libc::close(go.as_raw_fd());
            if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                super::end_process(127);
            }
            for (ours, its) in descriptors {
                libc::dup2(*ours, *its);
            }
            // Rust's start had us ignore it, which the program would inherit.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_SETMASK, mask.original(), std::ptr::null_mut());
            libc::execve(path.as_ptr(), argv.pointers.as_ptr(), environment.pointers.as_ptr());
            let number = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO).to_ne_bytes();
            libc::write(failure.as_raw_fd(), number.as_ptr().cast(), number.len());
            super::end_process(127)
        },
        pid => pid,
    };
    Ok(Gated { child: Child { pid }, go, told })
}

/// Why the program did not begin. Waits until that is known.
fn failure(told: &OwnedFd) -> Option<io::Error> {
    let mut number = [0; 4];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(told, &mut number)).unwrap_or(0);
    (count == 4).then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
}

/// A pipe that no program keeps: (what is written to, what is read from).
fn gate() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((writer, reader))
}

/// A request to the kernel about a stopped thread.
pub(super) fn control(request: i32, pid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests that write to our memory are `message`'s and `follow.rs`'s, which say where there is room.
    let done = unsafe { libc::ptrace(request as _, pid, address as *mut libc::c_void, data as *mut libc::c_void) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Tracer {
    /// The program began, or the error for which it did not.
    fn begun(mut self, told: OwnedFd) -> io::Result<Tracer> {
        // Its first step is that it executes, or that it ends because it cannot.
        match self.step()? {
            Some(Step::Ended { .. }) => Err(failure(&told).unwrap_or(io::Error::from_raw_os_error(libc::EIO))),
            _ => Ok(self),
        }
    }

    /// Let go on what the last step was about.
    pub fn go_on(&mut self) {
        if let Some(held) = self.held.take() {
            go_on(held, 0);
        }
    }

    /// What happens next, after letting go on what the last step was about. `None` when nothing is followed any more.
    pub fn step(&mut self) -> io::Result<Option<Step>> {
        self.go_on();
        loop {
            let mut status = 0;
            // SAFETY: writes to our own structures.
            let (pid, usage) = unsafe {
                let mut usage: libc::rusage = zeroed();
                (libc::wait4(-1, &mut status, libc::__WALL, &mut usage), usage)
            };
            if pid < 0 {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                    error => return Err(error),
                }
            }
            let step = if libc::WIFSTOPPED(status) {
                self.stops += 1;
                self.stopped(pid, status)
            } else {
                self.ended(pid, status, &usage)
            };
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    fn ended(&mut self, pid: i32, status: i32, usage: &libc::rusage) -> Option<Step> {
        self.early.remove(&pid);
        self.told.remove(&pid);
        self.inherited.remove(&pid);
        let process = self.of_thread.remove(&pid);
        self.free_orphans();
        let process = process?;
        if process != pid {
            return None;
        }
        let threads = self.threads.remove(&pid).unwrap_or(0);
        Some(Step::Ended { pid, end: super::process::end_of(status), usage: usage_of(usage), threads })
    }

    /// A parent that was killed as it forked never says whom it made: nobody else would let these go on.
    fn free_orphans(&mut self) {
        let has_parent = |child: &i32| makers(*child).iter().any(|maker| self.of_thread.contains_key(maker));
        let (left, orphans): (HashSet<i32>, HashSet<i32>) = self.early.iter().partition(|child| has_parent(child));
        self.early = left;
        for child in orphans {
            self.of_thread.insert(child, child);
            go_on(child, 0);
        }
    }

    /// What a stop is about: a step, or nothing that anybody wants to know, and then the thread goes on.
    fn stopped(&mut self, pid: i32, status: i32) -> Option<Step> {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => self.forked(pid),
            libc::PTRACE_EVENT_EXEC => {
                // Whichever thread executes gets the number of its process.
                let process = *self.of_thread.entry(pid).or_insert(pid);
                self.of_thread.retain(|thread, of| *of != process || *thread == process);
                self.held = Some(pid);
                Some(Step::Executed { pid })
            }
            libc::PTRACE_EVENT_EXIT if self.of_thread.get(&pid) == Some(&pid) => {
                self.held = Some(pid);
                Some(Step::Ending { pid })
            }
            libc::PTRACE_EVENT_STOP if is_stopping(signal) => {
                let _ = control(libc::PTRACE_LISTEN as _, pid, 0, 0);
                None
            }
            libc::PTRACE_EVENT_STOP if !self.of_thread.contains_key(&pid) => {
                self.early.insert(pid);
                None
            }
            0 => {
                go_on(pid, signal);
                None
            }
            _ => {
                self.begin(pid);
                None
            }
        }
    }

    /// Let what was made go on. Its parent's wish to be told of its end is none of its own.
    fn begin(&mut self, pid: i32) {
        if self.inherited.remove(&pid) {
            let _ = control(libc::PTRACE_SETOPTIONS as _, pid, 0, FOLLOWED as usize);
        }
        go_on(pid, 0);
    }

    fn forked(&mut self, pid: i32) -> Option<Step> {
        let parent = *self.of_thread.get(&pid).unwrap_or(&pid);
        let Ok(child) = message(pid) else {
            go_on(pid, 0);
            return None;
        };
        let is_thread = is_thread_of(child as u32, parent as u32);
        self.of_thread.insert(child, if is_thread { parent } else { child });
        if self.told.contains(&pid) {
            self.inherited.insert(child);
        }
        if self.early.remove(&child) {
            self.begin(child);
        }
        // What its peak was cannot be told from its children's once they are added up.
        if !is_thread && self.told.insert(pid) {
            let _ = control(libc::PTRACE_SETOPTIONS as _, pid, 0, (FOLLOWED | libc::PTRACE_O_TRACEEXIT) as usize);
        }
        go_on(pid, 0);
        if is_thread {
            *self.threads.entry(parent).or_default() += 1;
            return None;
        }
        Some(Step::Forked { parent, child })
    }

    /// Let go of all that is still there: it goes on by itself. Returns how many processes that were.
    pub fn let_go(&mut self) -> usize {
        self.go_on();
        for child in self.early.drain() {
            let _ = control(libc::PTRACE_DETACH as _, child, 0, 0);
        }
        let left = self.of_thread.iter().filter(|(thread, process)| thread == process).count();
        for &thread in self.of_thread.keys() {
            let _ = control(libc::PTRACE_INTERRUPT as _, thread, 0, 0);
        }
        let began = Instant::now();
        while !self.of_thread.is_empty() && began.elapsed() < LET_GO_WITHIN {
            let mut status = 0;
            // SAFETY: writes to our own integer.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::WNOHANG) };
            match pid {
                0 => std::thread::sleep(Duration::from_millis(1)),
                pid if pid < 0 => break,
                pid => {
                    self.of_thread.remove(&pid);
                    if libc::WIFSTOPPED(status) {
                        let event = status >> 16;
                        let signal = if event == 0 { libc::WSTOPSIG(status) } else { 0 };
                        if (libc::PTRACE_EVENT_FORK..=libc::PTRACE_EVENT_CLONE).contains(&event)
                            && let Ok(child) = message(pid)
                        {
                            self.of_thread.insert(child, child);
                        }
                        let _ = control(libc::PTRACE_DETACH as _, pid, 0, signal as usize);
                    }
                }
            }
        }
        left
    }
}

/// Who may have made a stopped process or thread: its parent, or the process that it is a thread of.
pub(super) fn makers(child: i32) -> Vec<i32> {
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    let of = |line: &str| line.strip_prefix("Tgid:").or(line.strip_prefix("PPid:"))?.trim().parse().ok();
    status.lines().filter_map(of).filter(|maker| *maker != child).collect()
}

/// Signals that stop a process until another lets it go on.
pub(super) fn is_stopping(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// A thread that was killed meanwhile cannot go on, and its end is told.
fn go_on(pid: i32, signal: i32) {
    let _ = control(libc::PTRACE_CONT as _, pid, 0, signal as usize);
}

/// Whom a stop for a new process or thread is about.
pub(super) fn message(pid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    control(libc::PTRACE_GETEVENTMSG as _, pid, 0, (&raw mut message) as usize)?;
    i32::try_from(message).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// Wait for a child. Also what it used, with those of its children that it waited for.
pub fn wait_with_usage(child: Child) -> io::Result<(ChildEnd, Usage)> {
    loop {
        let mut status = 0;
        // SAFETY: waits for our own child, writes to our own structures.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = zeroed();
            (libc::wait4(child.pid, &mut status, 0, &mut usage), usage)
        };
        if pid == child.pid {
            return Ok((super::process::end_of(status), usage_of(&usage)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What all children that were waited for have used so far, with theirs.
pub fn usage_of_children() -> Usage {
    usage_by(libc::RUSAGE_CHILDREN)
}

/// What this process has used so far.
pub fn usage_of_ourselves() -> Usage {
    usage_by(libc::RUSAGE_SELF)
}

fn usage_by(whose: libc::c_int) -> Usage {
    // SAFETY: writes to our own structure; it cannot fail for these two.
    let usage = unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(whose as _, &mut usage);
        usage
    };
    usage_of(&usage)
}

fn usage_of(usage: &libc::rusage) -> Usage {
    let count = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    let us = |time: libc::timeval| count(time.tv_sec as _) * 1_000_000 + count(time.tv_usec as _);
    Usage {
        user_us: us(usage.ru_utime),
        system_us: us(usage.ru_stime),
        peak_bytes: count(usage.ru_maxrss) * 1024,
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shell does with `script`: (processes made, programs executed, how it ended).
    fn follow(script: &str) -> Option<(usize, usize, ChildEnd)> {
        let argv = [b"sh".to_vec(), b"-c".to_vec(), script.as_bytes().to_vec()];
        let mask = crate::SignalForwarding::prepare().expect("masks");
        let environment = [b"PATH=/usr/bin:/bin".to_vec()];
        let start = Start { path: b"/bin/sh", argv: &argv, environment: &environment, descriptors: &[] };
        let tracer = spawn_traced(start, &mask);
        mask.unblock();
        let mut tracer = match tracer {
            Ok(tracer) => tracer,
            Err(error) => {
                eprintln!("skipped: nothing can be followed here: {error}");
                return None;
            }
        };
        let (mut forked, mut executed) = (0, 1);
        while let Some(step) = tracer.step().expect("steps") {
            match step {
                Step::Forked { .. } => forked += 1,
                Step::Executed { .. } => executed += 1,
                Step::Ending { .. } => {}
                Step::Ended { pid, end, .. } if pid == tracer.pid => return Some((forked, executed, end)),
                Step::Ended { .. } => {}
            }
        }
        panic!("the program's end was not told")
    }

    /// One test: whoever waits for any child takes those of other threads.
    #[test]
    fn every_process_is_seen() {
        let check = |script: &str, expected| {
            if let Some(found) = follow(script) {
                assert_eq!(found, expected, "{script}");
            }
        };
        check("exit 3", (0, 1, ChildEnd::Exited(3)));
        check("/bin/true; /bin/true", (2, 3, ChildEnd::Exited(0)));
        check("(/bin/true; (/bin/true; :)) | /bin/cat; :", (4, 4, ChildEnd::Exited(0)));
        check("kill -TERM $$", (0, 1, ChildEnd::Signalled(libc::SIGTERM)));
        check("trap 'exit 7' USR1; kill -USR1 $$", (0, 1, ChildEnd::Exited(7)));
        let mask = crate::SignalForwarding::prepare().expect("masks");
        let nothing = Start { path: b"/nonexistent", argv: &[b"x".to_vec()], environment: &[], descriptors: &[] };
        let (traced, untraced) = (spawn_traced(nothing, &mask).err(), spawn_untraced(nothing, &mask).err());
        mask.unblock();
        assert!(untraced.is_some_and(|error| error.kind() == io::ErrorKind::NotFound));
        assert!(traced.is_some_and(|error| error.kind() != io::ErrorKind::InvalidInput));
    }
}
