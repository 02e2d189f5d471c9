//! Traces a program: at each instruction, or at its end only.

/// The memory and CPU time of a program without its children.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    /// The peak resident memory.
    pub(crate) peak_kb: u64,
    /// The CPU time of the first thread.
    pub(crate) cpu_ns: u64,
    /// The peak memory of the largest process of all.
    pub(crate) largest_kb: u64,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use linux::{own, steps};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux {
    use super::Own;
    use anyhow::{Context, Result, bail};
    use nix::libc;
    use nix::sys::ptrace::{self, Options};
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;
    use std::ffi::OsString;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::{fs, io};

    /// Returns the number of instructions that the command executes, and its exit code. Calls
    /// `visit` with the address of each. Fails if there are more than `limit`.
    pub(crate) fn steps(words: &[OsString], limit: u64, mut visit: impl FnMut(u64)) -> Result<(u64, i32)> {
        let (mut child, pid) = traced(words)?;
        let (mut instructions, mut before) = (0, 0);
        loop {
            let signal = match waitpid(pid, None)? {
                WaitStatus::Exited(_, code) => return Ok((instructions, code)),
                WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
                WaitStatus::Stopped(_, other) => Some(other),
                other => bail!("the program ended in an unexpected way: {other:?}"),
            };
            let at = ptrace::getregs(pid)?.rip;
            // A repeated instruction stops after each repetition at the same address.
            instructions += u64::from(at != before && signal.is_none());
            before = at;
            visit(at);
            if instructions > limit {
                child.kill()?;
                child.wait()?;
                bail!("the program executes more than {limit} instructions");
            }
            ptrace::step(pid, signal)?;
        }
    }

    /// Returns what the command used itself, and its exit code.
    pub(crate) fn own(words: &[OsString]) -> Result<(Own, i32)> {
        let (_child, pid) = traced(words)?;
        let mut own = Own::default();
        let mut is_known = false;
        loop {
            let signal = match waitpid(pid, None)? {
                WaitStatus::Exited(_, code) => {
                    own.largest_kb = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss().unsigned_abs();
                    return Ok((own, code));
                }
                WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT) => {
                    (own.peak_kb, own.cpu_ns) = (peak_kb(pid)?, cpu_ns(pid)?);
                    None
                }
                // The program has just started.
                WaitStatus::Stopped(_, Signal::SIGTRAP) if !is_known => {
                    ptrace::setoptions(pid, Options::PTRACE_O_TRACEEXIT)?;
                    is_known = true;
                    None
                }
                WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
                WaitStatus::Stopped(_, other) => Some(other),
                other => bail!("the program ended in an unexpected way: {other:?}"),
            };
            ptrace::cont(pid, signal)?;
        }
    }

    fn traced(words: &[OsString]) -> Result<(Child, Pid)> {
        let (program, arguments) = words.split_first().context("no program is given")?;
        let mut command = Command::new(program);
        command.args(arguments);
        #[allow(unsafe_code, reason = "the child asks to be traced before it becomes the program")]
        // SAFETY: it makes one system call, which is allowed in a forked process.
        unsafe {
            command.pre_exec(|| ptrace::traceme().map_err(io::Error::from));
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        Ok((child, pid))
    }

    fn peak_kb(pid: Pid) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
        number.context("cannot read a process's peak memory")
    }

    fn cpu_ns(pid: Pid) -> Result<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        text.split(' ').next().and_then(|first| first.parse().ok()).context("cannot read a process's CPU time")
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_executes_too_much_is_ended() {
            let error = steps(&["/bin/true".into()], 500, |_| {}).expect_err("it executes more");
            assert!(error.to_string().contains("more than 500"), "{error}");
            assert!(steps(&["/no/such/program".into()], 500, |_| {}).is_err());
        }

        #[test]
        fn a_child_is_apart() {
            // dd allocates a buffer of 40 MB and fills it.
            let words = ["sh", "-c", "dd if=/dev/zero of=/dev/null bs=40M count=1 2>/dev/null; exit 3"];
            let (own, code) = own(&words.map(OsString::from)).expect("it runs");
            assert_eq!(code, 3);
            assert!(own.largest_kb > 40_000 && own.peak_kb > 100 && own.peak_kb < 20_000, "{own:?}");
            assert!(own.cpu_ns > 0, "{own:?}");
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn steps(_: &[std::ffi::OsString], _: u64, _: impl FnMut(u64)) -> anyhow::Result<(u64, i32)> {
    anyhow::bail!("stepping works on Linux and x86-64 only")
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn own(_: &[std::ffi::OsString]) -> anyhow::Result<(Own, i32)> {
    anyhow::bail!("this works on Linux and x86-64 only")
}
