//! Runs other programs: with a log, with limits, and with the CPU time of all their descendants.
//!
//! The CPU time is a difference of `getrusage(RUSAGE_CHILDREN)`, so children that are measured must
//! run one at a time. It includes every descendant that its parent waited for, and so no daemons.

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Add;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The cost of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// From before the start until it was waited for.
    pub(crate) wall: Duration,
    /// User and system time of the command and all its descendants.
    pub(crate) cpu: Duration,
}

impl Add for Usage {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { wall: self.wall + other.wall, cpu: self.cpu + other.cpu }
    }
}

/// The interval at which a progress bar is updated.
const TICK: Duration = Duration::from_millis(300);
/// The time between two looks at processes that end.
const PAUSE: Duration = Duration::from_millis(20);
/// The number of log lines that are shown if a command fails.
const LINES_OF_LOG: usize = 25;

/// Runs `command` to its end.
pub(crate) fn measured(command: &mut Command) -> Result<(ExitStatus, Usage)> {
    let cpu_before = cpu_of_children()?;
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    let wall = start.elapsed();
    Ok((status, Usage { wall, cpu: cpu_of_children()?.saturating_sub(cpu_before) }))
}

/// Gives `command` an empty input, and the file `log` for its output.
pub(crate) fn to_log(command: &mut Command, log: &Path) -> Result<()> {
    let writing = || format!("cannot write {}", log.display());
    let file = File::create(log).with_context(writing)?;
    command.stdin(Stdio::null()).stderr(file.try_clone().with_context(writing)?).stdout(file);
    Ok(())
}

/// Runs `command` with its output in the file `log`, and calls `tick` at intervals. Fails with the
/// end of the log if the command fails.
pub(crate) fn logged(command: &mut Command, log: &Path, tick: impl FnMut() + Send) -> Result<Usage> {
    to_log(command, log)?;
    let (status, usage) = ticking(tick, || measured(command))?;
    if !status.success() {
        bail!("{}\nended with {status}; the end of {}:\n{}", shown(command), log.display(), tail(log));
    }
    Ok(usage)
}

/// How a command with processed output ended.
#[derive(Debug)]
pub(crate) enum Streamed {
    Ended(ExitStatus),
    TimeIsOver,
}

/// Runs `command`, calls `line` with each line of its output, and keeps all output in the file
/// `log`. After `limit`, it kills the command and all its descendants. A standard input that is a
/// pipe stays open until the command has ended.
pub(crate) fn streamed(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    mut line: impl FnMut(&str),
) -> Result<Streamed> {
    let mut kept = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let (reader, writer) = std::io::pipe().context("no pipe")?;
    command.stderr(writer.try_clone().context("no pipe")?).stdout(writer);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", shown(command)))?;
    // The command holds the other end of the pipe. Without its copies, reading ends when the
    // child's end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (pid, input) = (child.id(), child.stdin.take());
    let (over, end) = mpsc::channel::<()>();
    let status = thread::scope(|scope| {
        scope.spawn(move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                end_with_descendants(pid);
            }
        });
        for bytes in BufReader::new(reader).split(b'\n').map_while(|bytes| bytes.ok()) {
            let text = String::from_utf8_lossy(&bytes);
            // If the log cannot be written, the command continues.
            let _ = writeln!(kept, "{text}");
            line(text.trim_end_matches('\r'));
        }
        let status = child.wait();
        drop(over);
        status
    });
    drop(input);
    let status = status.with_context(|| format!("cannot wait for {}", shown(command)))?;
    Ok(if start.elapsed() >= limit { Streamed::TimeIsOver } else { Streamed::Ended(status) })
}

/// Runs `command` with its output in the file `log`, and shows the lines for which `is_shown` returns true. An error if
/// the command fails.
///
/// The output does not go through a pipe, because a process that outlives the command could keep a pipe open.
pub(crate) fn filtered(command: &mut Command, log: &Path, is_shown: impl FnMut(&str) -> bool + Send) -> Result<()> {
    to_log(command, log)?;
    let reading = File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    let mut lines = Lines { log: BufReader::new(reading), begun: Vec::new(), is_shown };
    let result = ticking(|| lines.show(), || measured(command));
    lines.show();
    let (status, _) = result?;
    if !status.success() {
        bail!("{} ended with {status}; all of its output is in {}", shown(command), log.display());
    }
    Ok(())
}

/// The lines of a log that grows.
struct Lines<F> {
    log: BufReader<File>,
    /// A line whose end has not been written yet.
    begun: Vec<u8>,
    is_shown: F,
}

impl<F: FnMut(&str) -> bool> Lines<F> {
    /// Shows the lines that were written since the last call.
    fn show(&mut self) {
        while self.log.read_until(b'\n', &mut self.begun).is_ok_and(|length| length > 0) {
            if !self.begun.ends_with(b"\n") {
                return;
            }
            let line = String::from_utf8_lossy(&self.begun);
            if (self.is_shown)(line.trim_end_matches(['\r', '\n'])) {
                print!("{line}");
            }
            self.begun.clear();
        }
    }
}

/// Runs `command` with the standard streams of this process. Fails if the command fails.
pub(crate) fn shown_to_user(command: &mut Command) -> Result<()> {
    succeeded(command).map(drop)
}

/// Runs `command` without input and output. Fails if the command fails.
pub(crate) fn silent(command: &mut Command) -> Result<Usage> {
    succeeded(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

fn succeeded(command: &mut Command) -> Result<Usage> {
    let (status, usage) = measured(command)?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(usage)
}

/// Returns the standard output of `command`. Fails with its standard error if the command fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", shown(command), output.status, errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the command as one line, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn ticking<T>(mut tick: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let ticker = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                tick();
                thread::park_timeout(TICK);
            }
        });
        let result = work();
        done.store(true, Ordering::Release);
        ticker.thread().unpark();
        result
    })
}

/// Kills a process and all its descendants. Parents are stopped first, so that they start no more
/// children. A process group is not used, because an interrupt from the terminal must still reach
/// the children.
fn end_with_descendants(pid: u32) {
    let _ = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGSTOP));
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for child in pids.filter(|child| parent_of(*child) == Some(pid)) {
        end_with_descendants(child);
    }
    let _ = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL));
}

/// Returns the processes whose environment contains `text`, for example the path of a directory.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let is_one = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        memchr::memmem::find(&environment, text.as_bytes()).is_some()
    };
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

/// Ends the processes that `find` returns by SIGTERM, and waits until there are none.
pub(crate) fn end_all(patience: Duration, find: impl Fn() -> Vec<i32>) -> Result<()> {
    let start = Instant::now();
    loop {
        let pids = find();
        let Some(first) = pids.first() else { return Ok(()) };
        if start.elapsed() > patience {
            bail!("process {first} does not exit");
        }
        for pid in pids {
            // It may have exited meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        thread::sleep(PAUSE);
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

pub(crate) fn cpu_of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the CPU time of children")?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_OF_LOG)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_a_command_ended() {
        let error = shown_to_user(Command::new("sh").args(["-c", "exit 3"])).expect_err("exit 3 is no success");
        assert!(error.to_string().contains("exit 3"), "{error}");
    }

    #[test]
    fn lines_are_heard_and_what_hangs_is_ended() {
        let log = std::env::temp_dir().join(format!("xtask-streamed-{}", std::process::id()));
        let run = |words: &str, limit| {
            let mut lines = Vec::new();
            let mut command = Command::new("sh");
            command.args(["-c", words]).stdin(Stdio::piped());
            let ended = streamed(&mut command, &log, limit, |line| lines.push(line.to_owned())).expect("it ran");
            (ended, lines)
        };
        let (ended, lines) = run("echo one; echo two >&2; exit 3", Duration::from_secs(60));
        assert!(matches!(ended, Streamed::Ended(status) if status.code() == Some(3)));
        assert_eq!(lines, ["one", "two"]);
        let (ended, lines) = run("echo begun; cat; echo never", Duration::from_secs(3));
        assert!(matches!(ended, Streamed::TimeIsOver));
        assert_eq!(lines, ["begun"]);
        assert_eq!(fs::read_to_string(&log).expect("readable"), "begun\n");
        fs::remove_file(&log).expect("removable");
    }

    #[test]
    fn lines_of_a_log_are_seen_once_and_whole() {
        let log = std::env::temp_dir().join(format!("xtask-filtered-{}", std::process::id()));
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "printf on; sleep 0.5; echo e; echo two >&2; sleep 60 & exit 3"]);
        let error = filtered(&mut command, &log, |line| {
            lines.push(line.to_owned());
            false
        });
        assert!(error.expect_err("exit 3 is no success").to_string().contains("exit 3"));
        assert_eq!(lines, ["one", "two"]);
        fs::remove_file(&log).expect("removable");
    }

    #[test]
    fn output_is_what_the_command_printed() {
        assert_eq!(output(Command::new("echo").arg("hello")).expect("echo runs"), "hello\n");
    }
}
