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
    let (count, code) = stepping::count(&options.command)?;
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

    /// How many instructions the command executes, and its exit code.
    pub(crate) fn count(words: &[OsString]) -> Result<(u64, i32)> {
        let (program, arguments) = words.split_first().context("no program is named")?;
        let mut command = Command::new(program);
        command.args(arguments);
        #[allow(unsafe_code, reason = "the child asks to be traced before it becomes the program")]
        // SAFETY: one system call, which needs nothing of what a forked process lacks.
        unsafe {
            command.pre_exec(|| ptrace::traceme().map_err(io::Error::from));
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", program.to_string_lossy()))?;
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
            ptrace::step(pid, signal)?;
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn counted(words: &[&str]) -> (u64, i32) {
            count(&words.iter().map(OsString::from).collect::<Vec<_>>()).expect("can be traced")
        }

        #[test]
        fn a_program_is_counted_and_ends_as_it_would() {
            let (instructions, code) = counted(&["/bin/false"]);
            assert_eq!(code, 1);
            assert!(instructions > 1000, "{instructions}");
        }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod stepping {
    use anyhow::{Result, bail};
    use std::ffi::OsString;

    /// Not known here.
    pub(crate) fn count(_: &[OsString]) -> Result<(u64, i32)> {
        bail!("stepping is known on Linux and x86-64 only")
    }
}
