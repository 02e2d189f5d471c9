//! Starting programs, waiting for them, ending as they ended; and what this process inherited.
//!
//! Unaware of: what the programs are.

use std::ffi::{CString, c_char};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use super::signals::set_of;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// A process that was started and not yet waited for.
pub struct Child {
    /// Its process id.
    pub pid: i32,
}

/// The resources that a process that has ended and all processes that it waited for used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// CPU time, in µs.
    pub cpu_us: u64,
    /// The largest resident set of any one of these processes, in KiB.
    pub peak_kb: u64,
    /// The number of involuntary context switches.
    pub preempted: u64,
}

/// The resources that processes used, as the kernel reports them when they end (`struct rusage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User CPU time, in microseconds.
    pub user_us: u64,
    /// System CPU time, in microseconds.
    pub system_us: u64,
    /// The largest resident set of any one process, in bytes.
    pub peak_bytes: u64,
    /// The number of page faults without I/O.
    pub minor_faults: u64,
    /// The number of page faults that read from a device.
    pub major_faults: u64,
    /// The number of voluntary context switches.
    pub voluntary_switches: u64,
    /// The number of involuntary context switches.
    pub involuntary_switches: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// It called `exit` with this code.
    Exited(u8),
    /// This signal ended it.
    Signalled(i32),
}

pub(super) fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A null-terminated array of C strings that lives as long as `self`.
pub(super) struct CStrings {
    _strings: Vec<CString>,
    pub(super) pointers: Vec<*const c_char>,
}

impl CStrings {
    pub(super) fn new(items: &[Vec<u8>]) -> io::Result<Self> {
        let strings = items.iter().map(|item| c_string(item)).collect::<io::Result<Vec<_>>>()?;
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(CStrings { _strings: strings, pointers })
    }
}

/// Moves a file to a descriptor from 100 on, which no program or script uses for a file of its own.
/// Its locks are lost, because the old descriptor is closed.
pub fn out_of_the_way(file: File) -> io::Result<File> {
    const HIGH: RawFd = 100;
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, HIGH)?.into())
}

/// Becomes the program at `path`, which inherits this file's descriptor and the locks that this
/// process has on it. Returns only if that fails.
pub fn exec_with(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>], keep: &File) -> io::Error {
    // If this fails, only the locks are lost.
    let _ = rustix::io::fcntl_setfd(keep, rustix::io::FdFlags::empty());
    exec(path, argv, environment)
}

/// Becomes the program at `path`. Returns only if that fails.
pub fn exec(path: &[u8], argv: &[Vec<u8>], environment: &[Vec<u8>]) -> io::Error {
    let all = || -> io::Result<_> { Ok((c_string(path)?, CStrings::new(argv)?, CStrings::new(environment)?)) };
    match all() {
        Ok((path, argv, environment)) => {
            // SAFETY: null-terminated arrays of null-terminated strings, which live during the
            // call.
            unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), environment.pointers.as_ptr()) };
            io::Error::last_os_error()
        }
        Err(error) => error,
    }
}

impl Child {
    /// Waits for it to end.
    pub fn wait(self) -> io::Result<ChildEnd> {
        self.wait_and_measure().map(|(end, _)| end)
    }

    /// Returns true if it has ended. It still has to be waited for.
    pub fn has_ended(&self) -> bool {
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: plain numbers, for which zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: asks about our own child, writes to our own structure.
        let asked = unsafe { libc::waitid(libc::P_PID, self.pid as libc::id_t, &mut info, flags) };
        // SAFETY: the kernel filled the structure, or left zeros.
        asked != 0 || unsafe { info.si_pid() } == self.pid
    }

    /// Waits for it to end. Returns how it ended, and what it used.
    pub fn wait_and_measure(self) -> io::Result<(ChildEnd, Use)> {
        let (end, Usage { user_us, system_us, peak_bytes, involuntary_switches, .. }) = wait_with_usage(self)?;
        Ok((end, Use { cpu_us: user_us + system_us, peak_kb: peak_bytes / 1024, preempted: involuntary_switches }))
    }
}

/// Waits for a child. Returns how it ended, and what it used, together with the children that it
/// waited for.
pub fn wait_with_usage(child: Child) -> io::Result<(ChildEnd, Usage)> {
    wait4(child.pid, 0).map(|(_, status, usage)| (end_of(status), usage))
}

/// Waits for a process, which may be -1 for any. Returns its pid, its status and what it used.
pub(super) fn wait4(pid: i32, flags: libc::c_int) -> io::Result<(i32, i32, Usage)> {
    loop {
        let mut status = 0;
        // SAFETY: writes to our own structures, for which zeros are valid.
        let (found, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid, &mut status, flags, &mut usage), usage)
        };
        if found >= 0 {
            return Ok((found, status, usage_of(&usage)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns what all children that were waited for have used so far, together with their own
/// children.
pub fn usage_of_children() -> Usage {
    usage_by(libc::RUSAGE_CHILDREN)
}

/// Returns what this process has used so far.
pub fn usage_of_ourselves() -> Usage {
    usage_by(libc::RUSAGE_SELF)
}

fn usage_by(whose: libc::c_int) -> Usage {
    // SAFETY: writes to our own structure; the call cannot fail for these two arguments.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
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

pub(super) fn end_of(status: i32) -> ChildEnd {
    if libc::WIFSIGNALED(status) {
        return ChildEnd::Signalled(libc::WTERMSIG(status));
    }
    ChildEnd::Exited(libc::WEXITSTATUS(status) as u8)
}

/// Makes orphans below this process its children, so that `children_left` sees them.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: no pointers.
    let done = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if a child has not ended, including adopted orphans. Collects the children that
/// have ended.
pub fn children_left() -> bool {
    collect().left
}

/// The children that were collected.
pub(super) struct Collected {
    /// True if a child has not ended.
    pub(super) left: bool,
    /// True if a child that has ended was killed by a signal.
    pub(super) killed: bool,
}

/// Collects the children that have ended, including adopted orphans.
pub(super) fn collect() -> Collected {
    let mut killed = false;
    loop {
        let mut status = 0;
        // SAFETY: writes to our own integer.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            0 => return Collected { left: true, killed },
            pid if pid > 0 => killed |= libc::WIFSIGNALED(status),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Collected { left: false, killed },
        }
    }
}

/// Ends this process by `signal`, as a child of it was ended, but without a second core file.
pub fn die_by(signal: i32) -> ! {
    // SAFETY: sets this process's own limits, handlers and mask; all structures are initialised.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set_of(&[signal]), std::ptr::null_mut());
        libc::kill(libc::getpid(), signal);
    }
    end_process((128 + signal) as u8)
}

/// Ends this process at once, without running destructors.
pub fn end_process(code: u8) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code.into()) }
}

/// Returns the entries of the environment that are no variables, because they have no `=` after
/// their first byte.
pub fn environment_oddities() -> Vec<Vec<u8>> {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    let mut odd = Vec::new();
    // SAFETY: the C runtime's null-terminated array of strings. Nothing changes it meanwhile,
    // because there is one thread.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let bytes = std::ffi::CStr::from_ptr(*entry).to_bytes();
            if bytes.is_empty() || !bytes[1..].contains(&b'=') {
                odd.push(bytes.to_vec());
            }
            entry = entry.add(1);
        }
    }
    odd
}

/// Returns the pid of the process that started this one.
pub fn parent_process_id() -> u32 {
    std::os::unix::process::parent_id()
}

/// Returns whether a process is stopped, and its parent's pid. Returns `None` if the process has
/// ended or is not visible. The parent's pid is 0 if the parent is not visible.
pub fn process_state(pid: u32) -> Option<(bool, u32)> {
    stat_of(pid).map(|stat| (matches!(stat.state, b'T' | b't'), stat.parent))
}

/// Forks. There is no signal for the child's end, so that waiting for the tool's processes does not
/// find it. Returns its pid, and 0 in the child.
///
/// # Safety
///
/// As for `fork`: in the child of a process with more threads, only system calls are allowed.
pub(super) unsafe fn fork_unseen() -> io::Result<libc::pid_t> {
    const NO_SIGNAL: libc::c_ulong = 0;
    // SAFETY: the caller sees to what the child does.
    match unsafe { libc::syscall(libc::SYS_clone, NO_SIGNAL, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as libc::pid_t),
    }
}

/// Returns the process ids of the visible ancestors of this process, the parent first.
pub fn ancestors() -> impl Iterator<Item = u32> {
    let visible = |pid: &u32| *pid != 0;
    let above = move |pid: &u32| process_state(*pid).map(|(_, parent)| parent).filter(visible);
    std::iter::successors(Some(parent_process_id()).filter(visible), above)
}

/// Returns a number for the build that this process is part of. It is made from the topmost
/// ancestor that is a build tool, or else from the session.
///
/// Two builds may have the same number by chance. The number is 0 if no build tool is above this
/// process and it is not in the initial pid namespace.
pub fn build_of_ours() -> u64 {
    const ANCESTORS_MAX: usize = 128;
    use std::os::unix::fs::MetadataExt;
    let mut above = stat_of(process_id());
    let session = above.as_ref().map_or(0, |own| own.session);
    let mut tool = None;
    for _ in 0..ANCESTORS_MAX {
        let Some(parent) = above.map(|stat| stat.parent).filter(|parent| *parent != 0) else { break };
        above = stat_of(parent);
        tool = if above.as_ref().is_some_and(|stat| stat.is_build_tool(parent)) { Some(parent) } else { tool };
    }
    // The pid namespace is part of the number, because containers that share job slots have
    // different processes with the same pid. Without a build tool it is 0, because a sandbox that
    // is created for each tool is no build.
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(FIRST_NAMESPACE, |look| look.ino());
    match tool {
        Some(tool) => namespace << 32 | u64::from(tool),
        None if namespace == FIRST_NAMESPACE => u64::from(session),
        None => 0,
    }
}

/// Returns true if a CPU of this process is idle now: no more threads want to run, ours included,
/// than there are CPUs. Returns false if that cannot be determined.
pub fn processor_is_free() -> bool {
    wanting_to_run().is_some_and(|running| running <= allowed_processors())
}

/// Returns on how many CPUs this process may run, whatever its quota is.
pub fn allowed_processors() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

/// Returns how many threads of the machine run or wait for a CPU, ours included. It is the fourth
/// field of `/proc/loadavg`.
pub fn wanting_to_run() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let (running, _) = text.split(' ').nth(3)?.split_once('/')?;
    running.parse().ok()
}

/// The fields of a process's `stat` file that are used here (`proc(5)`). The name is in parentheses
/// and may contain any byte. The fields after it contain no parenthesis.
pub(super) struct ProcessStat {
    name: Vec<u8>,
    session: u32,
    pub(super) state: u8,
    pub(super) parent: u32,
    /// User and system time of all its threads, in clock ticks of 10 ms.
    ticks: u64,
    started_ticks: u64,
    /// The number of resident pages.
    pub(super) pages: u64,
}

/// The names of build tools. A build tool starts the compilers of a build, and runs once for the
/// whole build.
const BUILD_TOOLS: &[&[u8]] =
    &[b"make", b"gmake", b"remake", b"ninja", b"ninja-build", b"samu", b"cargo", b"scons", b"buck2d"];
/// The initial pid namespace (`PROC_PID_INIT_INO` of the kernel).
const FIRST_NAMESPACE: u64 = 0xefff_fffc;

impl ProcessStat {
    /// Returns true if this process, with this pid, is a build tool. Bazel's server is a Java
    /// process whose command line begins with `bazel(NAME)`.
    fn is_build_tool(&self, pid: u32) -> bool {
        let called = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        BUILD_TOOLS.contains(&self.name.as_slice()) || self.name == b"java" && called().starts_with(b"bazel(")
    }
}

pub(super) fn stat_of(pid: u32) -> Option<ProcessStat> {
    const PARENT: usize = 1;
    const SESSION: usize = 3;
    const USER: usize = 11;
    const KERNEL: usize = 12;
    const STARTED: usize = 19;
    const RESIDENT: usize = 21;
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (open, close) = (text.iter().position(|&b| b == b'(')?, text.iter().rposition(|&b| b == b')')?);
    let fields = std::str::from_utf8(&text[close + 1..]).ok()?.split_ascii_whitespace().collect::<Vec<_>>();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(ProcessStat {
        name: text[open + 1..close].to_owned(),
        session: u32::try_from(number(SESSION)?).ok()?,
        state: *fields.first()?.as_bytes().first()?,
        parent: u32::try_from(number(PARENT)?).ok()?,
        ticks: number(USER)? + number(KERNEL)?,
        started_ticks: number(STARTED)?,
        pages: number(RESIDENT)?,
    })
}

/// Returns how long a thread has run or waited for a CPU so far, in nanoseconds: the first two
/// fields of `/proc/PID/schedstat`. Returns `None` if that is not visible.
pub fn wanted_processor_ns(thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

/// Returns a thread of the process that competes most for the CPU, and how long that thread has run
/// or waited, in nanoseconds.
///
/// Not considered are larder's processes, the processes `ours`, and all descendants of `ours` and
/// of wrappers. A process that runs now comes first, then the one that ran for most of its life. Of
/// that process, the thread that ran or waited longest is returned.
pub fn busiest_stranger(ours: &[u32]) -> Option<(u32, u64)> {
    const ANCESTORS_MAX: usize = 64;
    let all: std::collections::HashMap<u32, ProcessStat> =
        numbers_in("/proc").filter_map(|pid| Some((pid, stat_of(pid)?))).collect();
    let parent = |pid: &u32| all.get(pid).map(|stat| stat.parent).filter(|parent| *parent != 0);
    let is_ours = |pid: u32| {
        let mut line = std::iter::successors(Some(pid), parent).take(ANCESTORS_MAX);
        // A wrapper may run under the tool's name. Descendants of `larderd` do count, because if it
        // records a build, the whole build is below it.
        let is_wrapper = |pid: u32| all.get(&pid).is_some_and(|stat| stat.name == b"larder");
        all.get(&pid).is_some_and(|stat| stat.name.starts_with(b"larder"))
            || line.any(|pid| ours.contains(&pid) || is_wrapper(pid))
    };
    let up_ticks = super::clock::now_ms() / 10;
    let share = |stat: &ProcessStat| stat.ticks * 1000 / up_ticks.saturating_sub(stat.started_ticks).max(1);
    let mut strangers: Vec<_> = all.iter().filter(|(_, stat)| stat.ticks > 0).collect();
    strangers.sort_by_key(|(_, stat)| std::cmp::Reverse((stat.state == b'R', share(stat))));
    let (stranger, _) = strangers.into_iter().find(|(pid, _)| !is_ours(**pid))?;
    let threads = numbers_in(&format!("/proc/{stranger}/task")).filter_map(|it| Some((it, wanted_processor_ns(it)?)));
    threads.max_by_key(|(_, wanted_ns)| *wanted_ns)
}

/// Returns the entries of a directory that are numbers. It returns none if the directory cannot be
/// read.
pub(super) fn numbers_in(directory: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns this process's pid.
pub fn process_id() -> u32 {
    std::process::id()
}

/// Returns the umask. It is set for a moment to be read, so there must be only one thread.
pub fn umask() -> u32 {
    let now = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(now);
    now.bits()
}

/// Returns the umask, also if other threads run. It reads `/proc` (Linux 4.7), and returns `None`
/// if it is not there.
pub fn umask_beside_threads() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

/// Returns a field of the answer of `uname`, by the letter of the option of that program, and `d` for
/// the domain.
pub fn host_field(letter: u8) -> Option<Vec<u8>> {
    let said = rustix::system::uname();
    let field = match letter {
        b's' => said.sysname(),
        b'n' => said.nodename(),
        b'r' => said.release(),
        b'v' => said.version(),
        b'm' => said.machine(),
        b'd' => said.domainname(),
        _ => return None,
    };
    Some(field.to_bytes().to_vec())
}

/// Returns which kinds of network sockets can be created: for each kind a line with the errno, or
/// 0.
///
/// The kinds are stream, datagram and raw sockets of IPv4, the same three of IPv6, and netlink,
/// which lists the network interfaces.
pub fn sockets() -> Vec<u8> {
    let families = [AddressFamily::INET, AddressFamily::INET6];
    let types = [SocketType::STREAM, SocketType::DGRAM, SocketType::RAW];
    let kinds = families.into_iter().flat_map(|family| types.map(|of| (family, of)));
    let kinds = kinds.chain([(AddressFamily::NETLINK, SocketType::RAW)]);
    let asked = kinds.map(|(family, of)| socket_with(family, of, SocketFlags::CLOEXEC, None));
    let errors = asked.map(|got| got.err().map_or(0, |error| error.raw_os_error()));
    errors.map(|error| format!("{error}\n")).collect::<String>().into_bytes()
}

/// Returns the effective user id.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns true if the size of files that this process may write is limited. Exceeding the limit
/// would kill it.
pub fn file_size_is_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some()
}

/// Returns true if the address space of this process and its children is limited. Mapping a log
/// into them could then make them fail.
pub fn address_space_is_limited() -> bool {
    rustix::process::getrlimit(rustix::process::Resource::As).current.is_some()
}

/// Signals that a caller ignores for reasons of its own: `nohup` ignores SIGHUP, and `&` in a
/// script SIGINT and SIGQUIT.
const OF_JOBS: u64 = 1 << (libc::SIGHUP - 1) | 1 << (libc::SIGINT - 1) | 1 << (libc::SIGQUIT - 1);

/// The line of `/proc/PID/status` with the ignored signals.
const IGNORED: &str = "SigIgn:";

/// Returns the set that a line of `/proc/PID/status` holds, such as `SigIgn:` or `CapEff:`
/// (`proc(5)`). Returns `None` if there is no such line.
pub(super) fn set_in(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok())
}

/// Returns which of SIGHUP, SIGINT and SIGQUIT this process ignores, and its niceness, as text.
pub fn signals_and_niceness() -> Vec<u8> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = set_in(&status, IGNORED).unwrap_or_default() & OF_JOBS;
    // SAFETY: only numbers are passed.
    let niceness = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    format!("{ignored:x} {niceness}").into_bytes()
}

/// Returns what [`limits_and_rights`] returns, and which descriptors are open.
pub fn inherited(without_sigpipe: bool) -> Vec<u8> {
    let mut text = limits_and_rights(without_sigpipe);
    let open: Vec<RawFd> = (3..FEW_DESCRIPTORS).filter(|fd| is_inherited(*fd)).collect();
    text.extend_from_slice(format!("{open:?}").as_bytes());
    text
}

/// Returns other state that a process inherits and can query, as text: limits, scheduler, user and
/// groups, ignored signals, and CPUs. What [`signals_and_niceness`] returns is not part of it.
///
/// With `without_sigpipe`, SIGPIPE counts as not ignored.
pub fn limits_and_rights(without_sigpipe: bool) -> Vec<u8> {
    const LINES: [&str; 6] = ["Uid:", "Gid:", "Groups:", IGNORED, "NoNewPrivs:", "Cpus_allowed:"];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| LINES.iter().any(|start| line.starts_with(start)));
    // The signals that C libraries use internally are ignored or not depending on which program
    // started this one, so they are left out.
    const OF_LIBC: u64 = 0b111 << 31;
    let unsaid = OF_LIBC | OF_JOBS | if without_sigpipe { 1 << (libc::SIGPIPE - 1) } else { 0 };
    let own = |line: &str| match line.starts_with(IGNORED) {
        true => format!("{IGNORED}\t{:016x}", set_in(line, IGNORED).unwrap_or_default() & !unsaid),
        false => line.to_owned(),
    };
    let mut text = lines.map(own).collect::<Vec<_>>().join("\n");
    text += &std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    // SAFETY: only numbers are passed.
    let scheduler = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    text += &format!("{scheduler}");
    text.into_bytes()
}

/// Descriptors below this are reported. Leaked descriptors of a build tool are seldom higher.
const FEW_DESCRIPTORS: RawFd = 256;

fn is_inherited(fd: RawFd) -> bool {
    // SAFETY: only asks for flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Returns true if this process inherited a descriptor from 3 to 9. A script can name these by one
/// digit, and programs that it executes inherit them. Higher ones are usually leaks.
///
/// `/dev/null` does not count. Neither do the pipes of a job server that `MAKEFLAGS` or
/// `CARGO_MAKEFLAGS` names, because their content only decides when something runs.
pub fn more_descriptors_are_open() -> bool {
    let flags = ["MAKEFLAGS", "CARGO_MAKEFLAGS"].map(|name| std::env::var(name).unwrap_or_default()).join(" ");
    let served = |fd: i32| {
        let auth = flags.split(' ').filter_map(|word| word.split_once("-auth=").or(word.split_once("-fds=")));
        auth.flat_map(|(_, fds)| fds.split(',')).any(|number| number.parse() == Ok(fd))
    };
    (3..10).filter(|fd| !served(*fd)).any(|fd| {
        is_inherited(fd)
            && std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|path| path != Path::new("/dev/null"))
    })
}
