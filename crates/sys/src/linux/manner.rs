//! How a program is scheduled: less than its parent, never more, set between the child's first instruction and its
//! `execve`.
//!
//! What is inherited is read before the child is there. The child only makes system calls: it may share our memory.

use std::ffi::{CString, c_int, c_long};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Class;

/// Of `utility`, and of `background` where the system has no idle policy. What nice 10 does to a ping beside sixteen
/// compilers, and what it costs, is in `docs/scheduling.md`.
const UTILITY_NICE: c_int = 10;
/// Added for a tool, which can be run again, so that it is killed before what people look at. The highest is 1000.
const OOM_MORE: i32 = 300;
const OOM_MAX: i32 = 1000;
/// `ioprio_set`: of one process; the class is above these bits.
const IOPRIO_WHO_PROCESS: c_int = 1;
const IOPRIO_CLASS_SHIFT: c_int = 13;
const IOPRIO_CLASS_IDLE: c_int = 3;

/// What a child sets of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    nice: Option<c_int>,
    idle: bool,
    idle_io: bool,
    oom_score_adj: Option<Vec<u8>>,
    cgroup: Option<CString>,
}

impl Manner {
    /// Of a class; `cgroup` is a directory of cgroups that a tool in the background is moved to.
    pub fn of(class: Class, cgroup: Option<&Path>) -> Manner {
        if class == Class::Inherit {
            return Manner::default();
        }
        let background = class == Class::Background;
        let procs = |directory: &Path| CString::new(directory.join("cgroup.procs").as_os_str().as_bytes()).ok();
        Manner {
            nice: (inherited_nice() < UTILITY_NICE).then_some(UTILITY_NICE),
            idle: background && is_ordinary(),
            idle_io: background && inherited_io_class() != IOPRIO_CLASS_IDLE,
            oom_score_adj: more_expendable(),
            cgroup: cgroup.filter(|_| background).and_then(procs),
        }
    }

    /// Whether a child has nothing to set.
    pub fn is_inherited(&self) -> bool {
        *self == Manner::default()
    }

    /// Set it for this process, which is about to become the program. What cannot be set stays as it is: a tool that
    /// runs unlowered is better than none.
    pub fn take_on(&self) {
        // SAFETY: numbers, null-terminated paths and bytes of ours that live during each call; nothing allocates.
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
                // musl's own function says that there is none.
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

/// Lower this thread alone for the rest of its life, and threads that it starts: what belongs to the whole process stays
/// as it is.
pub fn lower_thread(class: Class) {
    Manner { oom_score_adj: None, cgroup: None, ..Manner::of(class, None) }.take_on();
}

/// `struct sched_attr`, as far as its first version has it (`linux/sched/types.h`).
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

/// The shortest slice that the kernel gives.
const SHORT_SLICE_NS: u64 = 100_000;

/// Have this thread run as soon as it is woken, for short times: others wait for it. It gets no more of a processor than
/// before. Linux 6.12; where it cannot be it stays as it is.
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
    // SAFETY: a structure of ours, whose size it says; of this thread alone.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Asked for by `would_starve`, of a processor's time.
const ASKED: Duration = Duration::from_millis(10);
/// One part in so many is enough: beside what people have it is half, beside a hog a tenth.
const ENOUGH: u32 = 3;
/// It waits no longer than this for that.
const WAITED_MAX: Duration = Duration::from_millis(40);
const STACK_BYTES: usize = 64 << 10;

/// Whether a program in `utility` would get less than a third of a processor at this moment: asked for by a thread that is
/// in it, with 10 ms of a processor where nobody else wants it. What is `background` would get no more. False where it
/// cannot be asked.
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
    // SAFETY: numbers only. The system call, other than the C library's function, says 20 less the value.
    let raw = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS as c_long, 0) };
    if raw < 0 { c_int::MAX } else { 20 - raw as c_int }
}

/// Whether this process has the usual policy: who has another was given it by somebody.
fn is_ordinary() -> bool {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::SCHED_OTHER as c_long }
}

fn inherited_io_class() -> c_int {
    // SAFETY: numbers only.
    let raw = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
    (raw as c_int) >> IOPRIO_CLASS_SHIFT
}

fn oom_score_adj() -> Option<i32> {
    std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()
}

/// Once: a tool that starts another one behind larder was made so itself.
fn more_expendable() -> Option<Vec<u8>> {
    let inherited = oom_score_adj().filter(|_| !is_lowered())?;
    (inherited < OOM_MAX).then(|| inherited.saturating_add(OOM_MORE).min(OOM_MAX).to_string().into_bytes())
}

/// Whether this process is below a tool that was lowered: all that [`Manner::of`] sets is as that would be. `nice` alone
/// does not make it so.
pub fn is_lowered() -> bool {
    let is_nice = || inherited_nice() >= UTILITY_NICE || !is_ordinary();
    oom_score_adj().is_some_and(|score| score >= OOM_MORE) && is_nice()
}

/// Write without waiting, and without minding whether that can be done.
///
/// # Safety
/// `path` is null-terminated.
unsafe fn write_to(path: *const libc::c_char, bytes: &[u8]) {
    // SAFETY: by the caller; the bytes are as long as said.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
        if fd >= 0 {
            libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len());
            libc::syscall(libc::SYS_close, fd);
        }
    }
}
