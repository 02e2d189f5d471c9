//! Counts the instructions that a program executes outside the kernel, by stepping through it. For machines that give no processor
//! counters away, and for programs whose system calls valgrind does not know. A million instructions take
//! some ten seconds.
//!
//! A repeated instruction (`rep movsq`) counts once, as processors count it. Only the program's first thread is counted.

use anyhow::{Context, Result, bail};
use clap::Parser;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// What executes more is not worth waiting for: this takes ten minutes.
const INSTRUCTIONS_MAX: u64 = 30_000_000;

/// Run a program step by step and write down how many instructions it executed.
#[derive(Parser)]
struct Options {
    /// Where the number goes
    #[arg(long)]
    to: PathBuf,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let (count, code) = stepping::count(&options.command, INSTRUCTIONS_MAX)?;
    fs::write(&options.to, format!("{count}\n")).with_context(|| format!("cannot write {}", options.to.display()))?;
    match u8::try_from(code) {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(_) => bail!("the program ended with {code}"),
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stepping {
    use anyhow::{Context, Result, bail};
    use nix::sys::ptrace;
    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;
    use std::ffi::OsString;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// How many instructions the command executes, and its exit code. An error where there are more than `limit`.
    pub(crate) fn count(words: &[OsString], limit: u64) -> Result<(u64, i32)> {
        let (program, arguments) = words.split_first().context("no program is named")?;
        let mut command = Command::new(program);
        command.args(arguments);
        #[allow(unsafe_code, reason = "the child asks to be traced before it becomes the program")]
        // SAFETY: one system call, which needs nothing of what a forked process lacks.
        unsafe {
            command.pre_exec(|| ptrace::traceme().map_err(io::Error::from));
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        let (mut instructions, mut before) = (0, 0);
        loop {
            let signal = match waitpid(pid, None)? {
                WaitStatus::Exited(_, code) => return Ok((instructions, code)),
                WaitStatus::Stopped(_, Signal::SIGTRAP) => None,
                WaitStatus::Stopped(_, other) => Some(other),
                other => bail!("the program ended otherwise: {other:?}"),
            };
            let at = ptrace::getregs(pid)?.rip;
            // A repeated instruction stops after each time, and is still the same.
            instructions += u64::from(at != before && signal.is_none());
            before = at;
            if instructions > limit {
                child.kill()?;
                child.wait()?;
                bail!("it executes more than {limit} instructions");
            }
            ptrace::step(pid, signal)?;
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_executes_too_much_is_ended() {
            let error = count(&["/bin/true".into()], 500).expect_err("it executes more");
            assert!(error.to_string().contains("more than 500"), "{error}");
            assert!(count(&["/no/such/program".into()], 500).is_err());
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod stepping {
    use anyhow::{Result, bail};
    use std::ffi::OsString;

    /// Not known here.
    pub(crate) fn count(_: &[OsString], _: u64) -> Result<(u64, i32)> {
        bail!("stepping is known on Linux and x86-64 only")
    }
}
