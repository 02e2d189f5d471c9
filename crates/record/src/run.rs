//! One run of the command: starts it, traces it if requested, watches the load, and writes down how
//! it ended.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::{Instant, SystemTime};

use larder_sys::{
    ChildEnd, SignalForwarding, Start, spawn_traced, spawn_untraced, usage_of_children, usage_of_ourselves,
};
use rustix::io::Errno;

use crate::command::Command;
use crate::directory::RunFiles;
use crate::error::RecordError;
use crate::load::{self, Others, Watch};
use crate::process_tracer::{Followed, exit_code, follow};
use crate::schema::{Run, RunEnd, Usage};
use crate::spans::{self, Wanted};
use crate::{Redact, stacks};

/// The variable with the file to which wrappers append a line for each action.
const ACTIONS_VARIABLE: &str = "LARDER_RECORD";

/// The destination of the command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The caller's standard output and standard error.
    Shown,
    /// The record.
    Kept,
    /// Nowhere.
    Dropped,
}

/// The options of a run.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) redact: &'a Redact,
    pub(crate) output: Output,
    /// The rate at which stacks are sampled, per second.
    pub(crate) sample_hz: Option<u32>,
    /// Files that are taken into the record after the run.
    pub(crate) attach: &'a [std::path::PathBuf],
    /// True if the command reads the recorder's standard input. Otherwise its input is empty.
    pub(crate) reads_input: bool,
}

/// Runs the command, and writes the result to `files` and `run`. Calls `count` with the number of
/// processes if they are traced. After the command has started, an error does not stop the run:
/// `run` then has an end too.
pub(crate) fn run(
    command: &Command,
    how: How,
    run: &mut Run,
    files: &RunFiles,
    count: &mut dyn FnMut(u64),
) -> Result<(), RecordError> {
    run.before = load::now();
    let sampled = how.sample_hz.map(|hz| stacks::sampled(command, hz, files)).transpose()?;
    let command = sampled.as_ref().unwrap_or(command);
    let outputs = redirected(how.output, files)?;
    let input = if how.reads_input { None } else { Some(null()?) };
    let outputs_fds = outputs.iter().flat_map(|file| [(file.as_raw_fd(), 1), (file.as_raw_fd(), 2)]);
    let descriptors: Vec<_> = outputs_fds.chain(input.iter().map(|file| (file.as_raw_fd(), 0))).collect();
    let not_started = |error| RecordError::NotStarted { command: shown(&command.argv[0]), error };
    let (children, ourselves) = (Usage::from(usage_of_children()), Usage::from(usage_of_ourselves()));
    let events = if run.traced { Some(files.events()?) } else { None };
    let (load, others) = (files.load()?, Others::now());
    // Reads both clocks at the same moment, because wrappers use the one and event lines the other.
    let began = Instant::now();
    run.began_ns = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    files.run(run)?;
    let watch = Watch::begin(others, load, began);
    let started = Instant::now();
    let ran = start(command, files, &descriptors, events, began, how.redact, count).map_err(not_started)?;
    let wall_ns = started.elapsed().as_nanos() as u64;
    // The kernel's peak of all children includes children before this run, so the tracer's peak is
    // used.
    let usage = Usage { peak_bytes: ran.peak_bytes, ..Usage::from(usage_of_children()).since(&children) };
    let own = Usage::from(usage_of_ourselves()).since(&ourselves);
    let watched = watch.end(&usage.and(&own));
    run.traced &= ran.not_traced.is_none();
    run.end = Some(RunEnd {
        wall_ns,
        exit_code: exit_code(ran.end),
        usage,
        recorder_us: own.cpu_us(),
        stops: ran.stops,
        not_traced: ran.not_traced,
        interrupted: SignalForwarding::seen(),
        left: ran.left,
        foreign_share: watched.foreign_share,
        busy_share: watched.busy_share,
        busiest: watched.busiest,
        after: load::now(),
        ..RunEnd::default()
    });
    let redact = |line: &[u8]| (how.redact.argument)(b"", line).into_bytes();
    let output = if how.output == Output::Kept { files.redact_output(redact) } else { Ok(()) };
    let stacks = if sampled.is_some() { stacks::fold(files) } else { Ok(()) };
    let events = ran.unwritten.map_or(Ok(()), |error| Err(RecordError::io(files.events_path())(error)));
    let wanted = Wanted { attach: how.attach, environment: &command.environment, redact: how.redact };
    let spans = spans::collect(run, files, &wanted);
    // Writes as much as possible, even if some of it failed.
    files.run(run).and(events).and(output).and(stacks).and(spans)
}

/// Runs the `--prepare` command in a shell. Its standard output is shown if the run's own is. Its
/// standard error is always shown.
pub(crate) fn prepare(words: &str, command: &Command, output: Output) -> Result<(), RecordError> {
    let mut shell = Process::new("/bin/sh");
    if output != Output::Shown {
        shell.stdout(Stdio::null());
    }
    shell.args(["-c", words]).env_clear().envs(environment(command)).stdin(Stdio::null());
    let status = shell.status().map_err(|error| RecordError::NotStarted { command: "/bin/sh".into(), error })?;
    match status.code() {
        Some(0) => Ok(()),
        code => Err(RecordError::Prepare { command: words.to_owned(), code: code.unwrap_or(-1) }),
    }
}

fn environment(command: &Command) -> impl Iterator<Item = (&std::ffi::OsStr, &std::ffi::OsStr)> {
    use std::ffi::OsStr;
    command.environment.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value)))
}

fn null() -> Result<File, RecordError> {
    fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(RecordError::io("/dev/null"))
}

fn redirected(output: Output, files: &RunFiles) -> Result<Option<File>, RecordError> {
    match output {
        Output::Shown => Ok(None),
        Output::Kept => files.output().map(Some),
        Output::Dropped => null().map(Some),
    }
}

struct Ran {
    end: ChildEnd,
    peak_bytes: u64,
    stops: u64,
    left: u64,
    not_traced: Option<String>,
    /// Why not all events were written.
    unwritten: Option<io::Error>,
}

fn start(
    command: &Command,
    files: &RunFiles,
    descriptors: &[(i32, i32)],
    events: Option<File>,
    began: Instant,
    redact: &Redact,
    count: &mut dyn FnMut(u64),
) -> io::Result<Ran> {
    let environment = block(command, &files.actions());
    let start = Start { path: &command.program, argv: &command.argv, environment: &environment, descriptors };
    // Orphaned processes become children of this process, so that their usage is counted after they
    // end.
    larder_sys::become_subreaper()?;
    let forwarding = SignalForwarding::prepare()?;
    let mut not_traced = None;
    if let Some(events) = events {
        match spawn_traced(start, &forwarding) {
            Ok(mut tracer) => {
                forwarding.begin(tracer.pid);
                // From here on, each process of the build waits for this thread whenever it is
                // stopped.
                larder_sys::answer_promptly();
                let followed = follow(&mut tracer, events, began, redact, count);
                let left = tracer.let_go() as u64;
                SignalForwarding::end();
                let Followed { end, peak_bytes, unwritten } = followed?;
                return Ok(Ran { end, peak_bytes, stops: tracer.stops, left, not_traced, unwritten });
            }
            Err(error) if is_refused(&error) => {
                not_traced = Some(format!("processes cannot be traced here (ptrace: {error})"));
            }
            Err(error) => {
                forwarding.unblock();
                return Err(error);
            }
        }
    }
    let child = spawn_untraced(start, &forwarding).inspect_err(|_| forwarding.unblock())?;
    forwarding.begin(child.pid);
    let ended = larder_sys::wait_with_usage(child);
    SignalForwarding::end();
    let left = u64::from(larder_sys::children_left());
    let (end, usage) = ended?;
    Ok(Ran { end, peak_bytes: usage.peak_bytes, stops: 0, left, not_traced, unwritten: None })
}

/// Returns true for the errors of a sandbox that forbids ptrace. The same error can also mean that
/// the program itself must not be executed; then the untraced start fails as well.
fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied || Errno::from_io_error(error) == Some(Errno::NOSYS)
}

fn block(command: &Command, actions: &Path) -> Vec<Vec<u8>> {
    let others = command.environment.iter().filter(|(name, _)| name != ACTIONS_VARIABLE.as_bytes());
    let variable = |name: &[u8], value: &[u8]| [name, b"=", value].concat();
    let own = variable(ACTIONS_VARIABLE.as_bytes(), actions.as_os_str().as_bytes());
    others.map(|(name, value)| variable(name, value)).chain([own]).collect()
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
