//! Runs one command to its end. Returns its output, its exit code and its times.
//!
//! Unaware of: caches, and what is expected.

use crate::spawn::{self, spawn};
use crate::step::Whom;
use crate::terminal::Terminal;
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, OFlags, access, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use rustix::time::{ClockId, clock_gettime};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A command that has not ended after this time is killed and counts as hanging.
const LIMIT: Duration = Duration::from_secs(60);
/// How often to check whether it is time to send the signal of a step.
const GLANCE: Duration = Duration::from_millis(5);
/// How long to wait between the sign that a command is at work and the signal.
const INTO_WORK: Duration = Duration::from_millis(50);

/// A command and all of its environment.
pub struct Order {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// The working directory.
    pub cwd: PathBuf,
    /// All environment variables.
    pub env: Vec<(OsString, OsString)>,
    /// The text of standard input, or `None` for `/dev/null`.
    pub stdin: Option<Vec<u8>>,
    /// The rows and columns of a terminal that is used for all three streams.
    pub tty: Option<(u16, u16)>,
    /// A signal to send when this file exists.
    pub kill: Option<(Signal, Whom, PathBuf)>,
}

/// The result of a command, as its caller sees it.
pub struct Ran {
    /// How it ended: "exit 1", "signal 9" or "hangs".
    pub end: String,
    /// Standard output. On a terminal it is the output of both streams.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: Vec<u8>,
    /// When it was started, by the clock of file times (`CLOCK_REALTIME_COARSE`), which lags behind
    /// the others.
    pub started: SystemTime,
    /// When it had ended.
    pub ended: SystemTime,
}

/// Runs a command to its end.
pub fn run(order: &Order) -> Result<Ran> {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let started = SystemTime::UNIX_EPOCH + Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32);
    // Without a search along a changed `PATH`, `Command` need not fork this large process.
    let mut command = Command::new(found(&order.argv[0], order));
    command.arg0(&order.argv[0]).args(&order.argv[1..]);
    command.current_dir(&order.cwd).env_clear().process_group(0);
    command.envs(order.env.iter().map(|(name, value)| (name, value)));
    let (end, streams) = match order.tty {
        Some(size) => on_terminal(order, command, size)?,
        None => on_pipes(order, command)?,
    };
    let [out, err] = streams;
    Ok(Ran { end, out, err, started, ended: SystemTime::now() })
}

/// Returns the program's path, or the name as it is if no directory of the order's `PATH` has it.
fn found(program: &OsStr, order: &Order) -> PathBuf {
    let path = order.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let may_run = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.as_bytes().contains(&b'/') {
        return program.into();
    }
    let mut candidates =
        std::env::split_paths(path.unwrap_or_default()).map(|directory| order.cwd.join(directory).join(program));
    candidates.find(may_run).unwrap_or_else(|| program.into())
}

fn on_pipes(order: &Order, mut command: Command) -> Result<(String, [Vec<u8>; 2])> {
    let stdin = match &order.stdin {
        Some(text) => filled_pipe(text)?,
        None => Stdio::null(),
    };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).with_context(|| format!("cannot start {:?}", order.argv))?;
    // `Command` holds the child's end of the pipe, so it is dropped.
    drop(command);
    let out = child.stdout.take().context("standard output is piped")?;
    let err = child.stderr.take().context("standard error is piped")?;
    listen(order, child, [Some(out.into()), Some(err.into())])
}

/// Writes all of the text into a pipe before the command is started. The text is smaller than a
/// pipe's capacity.
fn filled_pipe(text: &[u8]) -> Result<Stdio> {
    let (ours, mut theirs) = std::io::pipe()?;
    theirs.write_all(text)?;
    Ok(ours.into())
}

fn on_terminal(order: &Order, mut command: Command, size: (u16, u16)) -> Result<(String, [Vec<u8>; 2])> {
    let terminal = Terminal::open(size)?;
    let theirs = || -> Result<Stdio> { Ok(terminal.theirs.try_clone()?.into()) };
    command.stdin(theirs()?).stdout(theirs()?).stderr(theirs()?);
    let child = spawn(&mut command).with_context(|| format!("cannot start {:?}", order.argv))?;
    // The command has copies of the terminal. Reading only ends after ours is closed.
    drop((command, terminal.theirs));
    listen(order, child, [Some(terminal.ours), None])
}

/// Reads both streams until all processes have closed them and the command has ended.
fn listen(order: &Order, mut child: Child, mut streams: [Option<OwnedFd>; 2]) -> Result<(String, [Vec<u8>; 2])> {
    let pid = Pid::from_child(&child);
    let life = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a process")?;
    let mut heard = [Vec::new(), Vec::new()];
    let mut trigger = Trigger::new(order, pid);
    let limit = Instant::now() + LIMIT;
    let mut status = None::<ExitStatus>;
    for stream in streams.iter().flatten() {
        fcntl_setfl(stream, OFlags::NONBLOCK)?;
    }
    while status.is_none() || streams.iter().any(Option::is_some) {
        if Instant::now() > limit {
            // An error is ignored. The process group may be empty if a stream is only held by a
            // process that left the group.
            let _ = kill_process_group(pid, Signal::KILL);
            child.wait()?;
            return Ok(("hangs".to_owned(), heard));
        }
        let pause = if trigger.is_armed() { GLANCE } else { Duration::from_secs(1) };
        wait(streams.iter().flatten(), status.is_none().then_some(&life), pause);
        for (stream, heard) in streams.iter_mut().zip(&mut heard) {
            if stream.as_ref().is_some_and(|fd| drain(fd, heard)) {
                *stream = None;
            }
        }
        if status.is_none() {
            status = child.try_wait()?;
            trigger.pull();
        }
    }
    let status = status.context("the loop only ends after the command")?;
    Ok((words_of(status), heard))
}

fn wait<'a>(streams: impl Iterator<Item = &'a OwnedFd>, life: Option<&'a OwnedFd>, pause: Duration) {
    let mut fds: Vec<PollFd<'_>> = streams.chain(life).map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: pause.subsec_nanos().into() };
    // An interrupted wait only means one more round of the loop.
    let _ = poll(&mut fds, Some(&pause));
}

/// Reads what is available. Returns true at the end of the stream, which a terminal reports as an
/// error.
fn drain(fd: &OwnedFd, heard: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 65536];
    loop {
        match rustix::io::read(fd.as_fd(), &mut buffer) {
            Ok(0) => return true,
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return false,
            Err(_) => return true,
        }
    }
}

fn words_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => status.to_string(),
    }
}

/// Sends the signal of a step when it is time.
struct Trigger<'a> {
    kill: Option<&'a (Signal, Whom, PathBuf)>,
    pid: Pid,
    seen: Option<Instant>,
}

impl<'a> Trigger<'a> {
    fn new(order: &'a Order, pid: Pid) -> Self {
        Self { kill: order.kill.as_ref(), pid, seen: None }
    }

    fn is_armed(&self) -> bool {
        self.kill.is_some()
    }

    fn pull(&mut self) {
        let Some((signal, whom, marker)) = self.kill else { return };
        if self.seen.is_none() && marker.exists() {
            self.seen = Some(Instant::now());
        }
        if self.seen.is_some_and(|seen| seen.elapsed() >= INTO_WORK) {
            // The command may have ended by itself, so an error is ignored.
            let _ = match whom {
                Whom::Group => kill_process_group(self.pid, *signal),
                Whom::Leader => kill_process(self.pid, *signal),
            };
            self.kill = None;
        }
    }
}

/// Returns the standard output of a short command that must succeed. It is for auxiliary commands,
/// which are not compared.
pub fn output(argv: &[OsString], env: &[(OsString, OsString)], cwd: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).current_dir(cwd).env_clear().envs(env.iter().map(|(name, value)| (name, value)));
    let output = spawn::output(&mut command).with_context(|| format!("cannot start {argv:?}"))?;
    anyhow::ensure!(output.status.success(), "{argv:?} failed");
    Ok(output.stdout)
}
