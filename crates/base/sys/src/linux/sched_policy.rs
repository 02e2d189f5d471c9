//! The scheduling of a program. A program gets less than its parent, never more. It is set by the
//! child itself before its `execve`.
//!
//! What is inherited is read before the child exists. The child only makes system calls, because it
//! may share our memory.
//!
//! Unaware of: why a class was chosen.

use std::ffi::{CString, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Class;

/// The niceness of `utility` and `background`. docs/scheduling.md says what nice 10 does to a ping
/// beside sixteen compilers, and what it costs.
const UTILITY_NICE: c_int = 10;
/// Added to a tool's `oom_score_adj`. A tool can be run again, so it is killed before programs that
/// people use. The highest score is 1000.
const OOM_MORE: i32 = 300;
const OOM_MAX: i32 = 1000;
/// The first argument of `ioprio_set` for one process, and the position of the I/O class in its
/// value.
const IOPRIO_WHO_PROCESS: c_int = 1;
const IOPRIO_CLASS_SHIFT: c_int = 13;
const IOPRIO_CLASS_IDLE: c_int = 3;

/// The scheduling that a child sets for itself. A field that is `None` or false stays as inherited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedPolicy {
    nice: Option<c_int>,
    idle: bool,
    idle_io: bool,
    oom_score_adj: Option<Vec<u8>>,
    cgroup: Option<CString>,
}

impl SchedPolicy {
    /// Returns the scheduling for a class. A tool in the background is moved to `cgroup`, which is
    /// the directory of a cgroup.
    pub fn of(class: Class, cgroup: Option<&Path>) -> SchedPolicy {
        if class == Class::Inherit {
            return SchedPolicy::default();
        }
        let background = class == Class::Background;
        let procs = |directory: &Path| CString::new(directory.join("cgroup.procs").as_os_str().as_bytes()).ok();
        SchedPolicy {
            nice: (inherited_nice() < UTILITY_NICE).then_some(UTILITY_NICE),
            idle: background && is_ordinary(),
            idle_io: background && inherited_io_class() != IOPRIO_CLASS_IDLE,
            oom_score_adj: more_expendable(),
            cgroup: cgroup.filter(|_| background).and_then(procs),
        }
    }

    /// Returns true if a child has nothing to set.
    pub fn is_inherited(&self) -> bool {
        *self == SchedPolicy::default()
    }

    /// Applies it to this process, which is about to become the program. A setting that fails is
    /// skipped, because it is better to run the tool with its inherited scheduling than not at all.
    pub fn take_on(&self) {
        // SAFETY: numbers, null-terminated paths and bytes of ours that live during each call;
        // nothing allocates.
        unsafe {
            if let Some(path) = &self.cgroup {
                write_to(path.as_ptr(), b"0");
            }
            if let Some(score) = &self.oom_score_adj {
                write_to(c"/proc/self/oom_score_adj".as_ptr(), score);
            }
            if let Some(nice) = self.nice {
                libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS as c_long, 0, nice);
            }
            if self.idle {
                // musl's own function only says that there is none.
                let parameters = libc::sched_param { ..std::mem::zeroed() };
                libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const parameters);
            }
            if self.idle_io {
                let idle = IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT;
                libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, idle);
            }
        }
    }
}

/// Lowers the calling thread for the rest of its life, and threads that it starts. Settings of the
/// whole process stay as they are.
pub fn lower_thread(class: Class) {
    SchedPolicy { oom_score_adj: None, cgroup: None, ..SchedPolicy::of(class, None) }.take_on();
}

/// The first version of `struct sched_attr` (`linux/sched/types.h`).
#[repr(C)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The shortest time slice that the kernel grants, in nanoseconds.
const SHORT_SLICE_NS: u64 = 100_000;

/// Asks the kernel to run this thread as soon as it is woken, for short times, because others wait
/// for it. It gets no more CPU time than before. This needs Linux 6.12; otherwise it changes
/// nothing.
pub fn answer_promptly() {
    let nice = inherited_nice();
    if !is_ordinary() || nice == c_int::MAX {
        return;
    }
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice,
        priority: 0,
        runtime_ns: SHORT_SLICE_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the structure is ours and contains its size; only this thread is changed.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// How much CPU time `would_starve` tries to get.
const ASKED: Duration = Duration::from_millis(10);
/// A thread that gets one part in this many does not starve. Beside interactive programs it gets
/// about half, and beside a program that uses a whole CPU a tenth.
const ENOUGH: u32 = 3;
/// How long `would_starve` tries at most.
const WAITED_MAX: Duration = Duration::from_millis(40);
const STACK_BYTES: usize = 64 << 10;

/// Returns true if a program in `utility` would now get less than a third of a CPU. A program in
/// `background` would get no more.
///
/// A thread in that class measures it. On a CPU that no other program wants, that takes 10 ms.
/// Returns false if the thread cannot be started.
pub fn would_starve() -> bool {
    let ask = || {
        lower_thread(Class::Utility);
        let began = Instant::now();
        loop {
            let (had, waited) = (thread_time(), began.elapsed());
            if had >= ASKED || waited >= WAITED_MAX {
                return had < waited / ENOUGH;
            }
        }
    };
    let asked = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(ask);
    asked.ok().and_then(|asked| asked.join().ok()).unwrap_or(false)
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn inherited_nice() -> c_int {
    // SAFETY: only numbers are passed. Unlike the C library's function, the system call returns 20
    // minus the niceness.
    let raw = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS as c_long, 0) };
    if raw < 0 { c_int::MAX } else { 20 - raw as c_int }
}

/// Returns true if this thread has the normal policy (`SCHED_OTHER`). Any other policy was set on
/// purpose.
fn is_ordinary() -> bool {
    // SAFETY: only numbers are passed.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::SCHED_OTHER as c_long }
}

fn inherited_io_class() -> c_int {
    // SAFETY: only numbers are passed.
    let raw = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
    (raw as c_int) >> IOPRIO_CLASS_SHIFT
}

fn oom_score_adj() -> Option<i32> {
    std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()
}

/// Returns the raised `oom_score_adj` for a tool. Returns `None` if this process is already below a
/// lowered tool, because then the score was raised once.
fn more_expendable() -> Option<Vec<u8>> {
    let inherited = oom_score_adj().filter(|_| !is_lowered())?;
    (inherited < OOM_MAX).then(|| inherited.saturating_add(OOM_MORE).min(OOM_MAX).to_string().into_bytes())
}

/// Returns true if this process is below a tool that was lowered, so that all settings of
/// [`SchedPolicy::of`] are inherited. A high niceness alone is not enough.
pub fn is_lowered() -> bool {
    let is_nice = || inherited_nice() >= UTILITY_NICE || !is_ordinary();
    oom_score_adj().is_some_and(|score| score >= OOM_MORE) && is_nice()
}

/// Writes without waiting, and ignores errors.
///
/// # Safety
/// `path` is null-terminated.
unsafe fn write_to(path: *const libc::c_char, bytes: &[u8]) {
    // SAFETY: the caller's path is null-terminated, and the length of the bytes is passed.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
        if fd >= 0 {
            libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len());
            libc::syscall(libc::SYS_close, fd);
        }
    }
}
