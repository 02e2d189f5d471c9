//! Tracing a program and everything that it starts by `ptrace`: which processes fork, execute and
//! end, and what they used. Only these events stop a process.
//!
//! A process that has executed a program or is about to end stays stopped until it is let go on, so
//! that it can be inspected in `/proc`. This code delays every process of a build: a stop costs two
//! context switches, and the build waits for everything that is done before the process goes on.
//!
//! Unaware of: what the events are used for.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::notify::is_thread_of;
use super::process::{CStrings, Child, ChildEnd, Usage, c_string, end_of, wait4};

/// An event of a traced process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A process was created.
    Forked {
        /// The process that created it.
        parent: i32,
        /// The new process.
        child: i32,
    },
    /// A process now runs another program.
    Executed {
        /// The process.
        pid: i32,
    },
    /// A process is about to end, and can be inspected for the last time. It is only reported for
    /// processes that created other processes.
    Ending {
        /// The process.
        pid: i32,
    },
    /// A process has ended.
    Ended {
        /// The process.
        pid: i32,
        /// The way it ended.
        end: ChildEnd,
        /// What it used, together with the children that it waited for.
        usage: Usage,
        /// The number of threads that it started.
        threads: u32,
    },
}

/// A traced program and its descendants.
pub struct Tracer {
    /// The pid of the program.
    pub pid: i32,
    /// The number of stops of all processes so far.
    pub stops: u64,
    /// The traced threads, each with its process.
    of_thread: HashMap<i32, i32>,
    /// The number of threads that each process started.
    threads: HashMap<i32, u32>,
    /// Threads that stopped before the stop that says which thread created them.
    early: HashSet<i32>,
    /// The process that stays stopped until it is let go on.
    held: Option<i32>,
    /// Threads that stop once more when they end (`PTRACE_O_TRACEEXIT`).
    told: HashSet<i32>,
    /// Threads that inherited `PTRACE_O_TRACEEXIT` from their creator. It is removed when they
    /// begin.
    inherited: HashSet<i32>,
}

/// The events that stop a thread. A thread has the same number from its creation until it has
/// ended.
const FOLLOWED: i32 =
    libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEEXEC;
/// How long `let_go` tries to detach what still runs after the program has ended.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);

/// The program to start, and its environment.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The program's path.
    pub path: &'a [u8],
    /// All arguments, the first of which is the name.
    pub argv: &'a [Vec<u8>],
    /// The variables, as `NAME=value`.
    pub environment: &'a [Vec<u8>],
    /// Pairs of a descriptor of ours and the number that the program gets it as.
    pub descriptors: &'a [(RawFd, RawFd)],
}

/// Starts a program and traces it. The program gets the signal mask from before `mask` was
/// prepared.
///
/// Fails also if tracing is not allowed. Then the program was not started.
pub fn spawn_traced(start: Start, mask: &crate::SignalForwarding) -> io::Result<Tracer> {
    let Gated { child: Child { pid }, go, told } = gated(start, mask)?;
    if let Err(error) = control(libc::PTRACE_SEIZE as _, pid, 0, FOLLOWED as usize) {
        // The pipe is closed without a byte, so the child ends without having executed the program.
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

/// Starts a program as `spawn_traced` does, with the same inheritance, but does not trace it.
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

/// A child that waits for a byte in a pipe before it executes the program.
struct Gated {
    child: Child,
    go: OwnedFd,
    /// The child writes an errno here if `execve` failed. It is closed if `execve` succeeded.
    told: OwnedFd,
}

fn gated(start: Start, mask: &crate::SignalForwarding) -> io::Result<Gated> {
    let Start { path, argv, environment, descriptors } = start;
    let (path, argv, environment) = (c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?);
    let (go, wait) = gate()?;
    let (failure, told) = gate()?;
    // SAFETY: everything that the child needs was made before; it only makes system calls and never
    // returns.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: the child only makes system calls on what was made before, and never returns.
        0 => unsafe {
            let mut byte = 0u8;
            libc::close(go.as_raw_fd());
            if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                super::end_process(127);
            }
            for (ours, its) in descriptors {
                libc::dup2(*ours, *its);
            }
            // Rust's runtime ignores SIGPIPE, and the program would inherit that.
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

/// Waits until it is known whether the program began. Returns the error if it did not.
fn failure(told: &OwnedFd) -> Option<io::Error> {
    let mut number = [0; 4];
    let count = rustix::io::retry_on_intr(|| rustix::io::read(told, &mut number)).unwrap_or(0);
    (count == 4).then(|| io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
}

/// Creates a pipe that is closed on exec. Returns the write end and the read end.
fn gate() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((writer, reader))
}

/// Makes a `ptrace` request about a stopped thread.
pub(super) fn control(request: i32, pid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: only requests of `message` and of `follow.rs` write to our memory, and these pass a
    // pointer to a large enough variable.
    let done = unsafe { libc::ptrace(request as _, pid, address as *mut libc::c_void, data as *mut libc::c_void) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Tracer {
    /// Waits until the program began. Fails with the error of its `execve` if it did not.
    fn begun(mut self, told: OwnedFd) -> io::Result<Tracer> {
        // The first event is that the program executes, or that the child ends because it could
        // not.
        match self.step()? {
            Some(Step::Ended { .. }) => Err(failure(&told).unwrap_or(io::Error::from_raw_os_error(libc::EIO))),
            _ => Ok(self),
        }
    }

    /// Lets the process of the last event go on.
    pub fn go_on(&mut self) {
        if let Some(held) = self.held.take() {
            go_on(held, 0);
        }
    }

    /// Lets the process of the last event go on, and returns the next event. Returns `None` if no
    /// process is traced any more.
    pub fn step(&mut self) -> io::Result<Option<Step>> {
        self.go_on();
        loop {
            let (pid, status, usage) = match wait4(-1, libc::__WALL) {
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(None),
                waited => waited?,
            };
            let step = if libc::WIFSTOPPED(status) {
                self.stops += 1;
                self.stopped(pid, status)
            } else {
                self.ended(pid, status, usage)
            };
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    fn ended(&mut self, pid: i32, status: i32, usage: Usage) -> Option<Step> {
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
        Some(Step::Ended { pid, end: end_of(status), usage, threads })
    }

    /// Lets new threads go on if their creator was killed in the middle of a fork. The creator's
    /// stop never comes, so no other code would let them go on.
    fn free_orphans(&mut self) {
        let has_parent = |child: &i32| makers(*child).iter().any(|maker| self.of_thread.contains_key(maker));
        let (left, orphans): (HashSet<i32>, HashSet<i32>) = self.early.iter().partition(|child| has_parent(child));
        self.early = left;
        for child in orphans {
            self.of_thread.insert(child, child);
            go_on(child, 0);
        }
    }

    /// Handles a stop. Returns an event, or lets the thread go on if the stop is of no interest.
    fn stopped(&mut self, pid: i32, status: i32) -> Option<Step> {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => self.forked(pid),
            libc::PTRACE_EVENT_EXEC => {
                // The thread that executes gets the ID of its process.
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

    /// Lets a new thread go on. If it inherited `PTRACE_O_TRACEEXIT` from its creator, that is
    /// removed.
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
        // The kernel reports the peak memory of a process and its children as one number. So a
        // process that has children stops at its end, and its own peak is read then.
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

    /// Detaches all processes that still run, so that they go on by themselves. Returns how many
    /// there were.
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

/// Returns which processes may have created a stopped process or thread: its parent, or the process
/// that it is a thread of.
pub(super) fn makers(child: i32) -> Vec<i32> {
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    let of = |line: &str| line.strip_prefix("Tgid:").or(line.strip_prefix("PPid:"))?.trim().parse().ok();
    status.lines().filter_map(of).filter(|maker| *maker != child).collect()
}

/// Returns true if a signal stops a process until another process lets it continue.
pub(super) fn is_stopping(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

/// Lets a thread go on. This fails if the thread was killed meanwhile. Its end is then reported.
fn go_on(pid: i32, signal: i32) {
    let _ = control(libc::PTRACE_CONT as _, pid, 0, signal as usize);
}

/// Returns the new process or thread that a stop is about.
pub(super) fn message(pid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    control(libc::PTRACE_GETEVENTMSG as _, pid, 0, (&raw mut message) as usize)?;
    i32::try_from(message).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `script` in a shell. Returns the number of processes created, the number of programs
    /// executed, and how the shell ended.
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
                eprintln!("skipped: tracing is not allowed here: {error}");
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
        panic!("the program's end was not reported")
    }

    /// This is one test, because code that waits for any child also collects the children of other
    /// threads.
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
