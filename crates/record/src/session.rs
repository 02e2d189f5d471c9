//! A recording session: which runs there are, in which order, and the records that they produce.
//!
//! Two sides run alternately, in pairs, and the order within each pair is random. So effects that
//! change with time affect both sides equally.

use crate::command::Command;
use crate::context::Surroundings;
use crate::directory::Writing;
use crate::error::RecordError;
use crate::run::{How, Output, prepare, run};
use crate::schema::{FORMAT, Header, Run, Side};
use crate::{Redact, context, reproduce};

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The runs whose processes are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The only run, or after several runs one additional run that explains them.
    Once,
    /// Every run. Their times then include the cost of tracing.
    All,
    /// No run.
    Never,
}

/// A recording session.
pub struct Session<'a> {
    /// The directory of the records.
    pub records: &'a Path,
    /// The name of the record.
    pub name: String,
    /// The sides: one, or two that run alternately.
    pub sides: Vec<SideOfSession>,
    /// A command that a shell runs before each run.
    pub prepare: Option<String>,
    /// The number of timed runs per side.
    pub runs: u32,
    /// The runs whose processes are traced.
    pub trace: Trace,
    /// The destination of the command's output.
    pub output: Output,
    /// The rate at which stacks are sampled in traced runs, per second.
    pub sample_hz: Option<u32>,
    /// Files that are taken into the record after each run.
    pub attach: Vec<PathBuf>,
    /// Continue after a run that failed.
    pub goes_on: bool,
    /// The functions that remove secrets.
    pub redact: Redact,
    /// Further options as they would be typed, for the script that repeats the recording.
    pub options: Vec<String>,
    /// The version of larder.
    pub larder: String,
    /// The time, in seconds since 1970.
    pub now_s: i64,
    /// The seed of the random order.
    pub seed: u64,
}

/// One side of a session.
pub struct SideOfSession {
    /// The command.
    pub command: Command,
    /// Its configuration file, with `--ab`.
    pub configuration: Option<PathBuf>,
    /// The inputs from which the context is made.
    pub surroundings: Surroundings,
}

/// A planned run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The index of its side.
    pub side: usize,
    /// Its number on that side, from 1.
    pub number: u32,
    /// The number of its pair, from 1, if there are two sides and it is timed.
    pub pair: Option<u32>,
    /// True if it runs first in its pair.
    pub first: bool,
    /// True if it is traced.
    pub traced: bool,
}

/// Receives the progress of a session.
pub trait Listener {
    /// Shows that a run begins: number `at` of `of`.
    fn begins(&mut self, planned: &Planned, at: usize, of: usize);
    /// So many processes were created in the run so far.
    fn processes(&mut self, count: u64);
    /// A run has ended.
    fn ended(&mut self, planned: &Planned, run: &Run);
}

/// The result of a session.
pub struct Recorded {
    /// The paths of the records, one per side.
    pub paths: Vec<PathBuf>,
    /// The exit code of the first run that failed, else 0.
    pub exit_code: i32,
    /// The number of planned runs that did not run.
    pub left_out: usize,
    /// An error after at least one run, because of which the records are incomplete.
    pub problem: Option<RecordError>,
}

/// Returns the order of all runs.
pub fn plan(runs: u32, sides: usize, trace: Trace, seed: u64) -> Vec<Planned> {
    let mut random = fastrand::Rng::with_seed(seed);
    // Equal numbers of pairs begin with either side.
    let mut turned: Vec<bool> = (0..runs).map(|pair| pair % 2 == 1).collect();
    random.shuffle(&mut turned);
    let only = runs == 1 && trace == Trace::Once;
    let mut planned = Vec::new();
    for (number, turned) in (1..=runs).zip(turned) {
        let order: Vec<usize> = if turned { (0..sides).rev().collect() } else { (0..sides).collect() };
        for (at, side) in order.into_iter().enumerate() {
            let pair = (sides > 1).then_some(number);
            planned.push(Planned { side, number, pair, first: at == 0, traced: trace == Trace::All || only });
        }
    }
    if trace == Trace::Once && !only {
        planned.extend((0..sides).map(|side| Planned {
            side,
            number: runs + 1,
            pair: None,
            first: true,
            traced: true,
        }));
    }
    planned
}

/// Records a session. A run that fails ends the session, unless `goes_on` is set. If no run took
/// place, no record is left.
pub fn record(session: &Session, listener: &mut dyn Listener) -> Result<Recorded, RecordError> {
    let writings = session.sides.iter().enumerate().map(|(at, side)| begin(session, side, at));
    let writings: Vec<Writing> = writings.collect::<Result<_, _>>()?;
    let planned = plan(session.runs, session.sides.len(), session.trace, session.seed);
    let (mut exit_code, mut done, mut problem) = (0, 0, None);
    for (at, next) in planned.iter().enumerate() {
        let Planned { number, pair, first, traced, .. } = *next;
        let mut of = Run { number, pair, first, traced, ..Run::default() };
        problem = one(session, &writings[next.side], next, (at + 1, planned.len()), &mut of, listener).err();
        let Some(code) = of.end.as_ref().map(|end| end.exit_code) else { break };
        listener.ended(next, &of);
        done += 1;
        exit_code = if exit_code == 0 { code } else { exit_code };
        if problem.is_some() || larder_sys::SignalForwarding::seen() || code != 0 && !session.goes_on {
            break;
        }
    }
    if let Some(problem) = problem.take_if(|_| done == 0) {
        writings.into_iter().for_each(|writing| drop(writing.discard()));
        return Err(problem);
    }
    let paths = writings.iter().map(|writing| writing.top().to_owned()).collect();
    Ok(Recorded { paths, exit_code, left_out: planned.len() - done, problem })
}

/// Executes one run, number `at` of `count`. The result is in `of`, even after an error.
fn one(
    session: &Session,
    writing: &Writing,
    planned: &Planned,
    (at, count): (usize, usize),
    of: &mut Run,
    listener: &mut dyn Listener,
) -> Result<(), RecordError> {
    let command = &session.sides[planned.side].command;
    if let Some(words) = &session.prepare {
        prepare(words, command, session.output)?;
    }
    listener.begins(planned, at, count);
    let how = How {
        redact: &session.redact,
        output: session.output,
        sample_hz: session.sample_hz.filter(|_| planned.traced),
        attach: &session.attach,
        // Input can only be read once, so it is given only to a single run.
        reads_input: session.runs == 1 && session.sides.len() == 1,
    };
    let files = writing.run(planned.number)?;
    run(command, how, of, &files, &mut |count| listener.processes(count))
}

/// Creates a record, and writes everything that is known before the first run.
fn begin(session: &Session, side: &SideOfSession, at: usize) -> Result<Writing, RecordError> {
    let letter = ["a", "b"].get(at).copied().unwrap_or_default();
    let of_two = session.sides.len() > 1;
    let name = if of_two { format!("{}-{letter}", session.name) } else { session.name.clone() };
    let writing = Writing::create(session.records, &name)?;
    let name = writing.name();
    let redact = &session.redact;
    let (environment, environment_digests) = context::environment(&side.command.environment, redact);
    let configuration = side.configuration.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let session_id = format!("{:016x}", session.seed);
    let header = Header {
        format: FORMAT,
        name,
        larder: session.larder.clone(),
        began_s: session.now_s,
        command: redact.arguments(&side.command.argv),
        cwd: side.surroundings.cwd.display().to_string(),
        prepare: session.prepare.as_ref().map(|words| (redact.argument)(b"", words.as_bytes())),
        runs: session.runs,
        traced: session.trace != Trace::Never,
        options: session.options.clone(),
        side: of_two.then(|| Side { session: session_id, letter: letter.to_owned(), configuration }),
        environment,
        environment_digests,
    };
    writing.header(&header)?;
    let (found, diff) = context::collect(&side.surroundings, redact);
    writing.context(&found, &diff)?;
    writing.reproduce(&reproduce::script(&header, &found, std::ffi::OsStr::from_bytes(&side.command.program)))?;
    Ok(writing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_shuffled_and_balanced() {
        let planned = plan(20, 2, Trace::Once, 7);
        assert_eq!(planned.len(), 42);
        let timed = &planned[..40];
        assert!(timed.iter().all(|run| run.pair.is_some() && !run.traced));
        assert!(timed.chunks(2).all(|pair| pair[0].pair == pair[1].pair && pair[0].side != pair[1].side));
        let begins: Vec<usize> = timed.chunks(2).map(|pair| pair[0].side).collect();
        assert_eq!(begins.iter().sum::<usize>(), 10);
        assert_ne!(begins, plan(20, 2, Trace::Once, 8).chunks(2).take(20).map(|pair| pair[0].side).collect::<Vec<_>>());
        assert!(planned[40..].iter().all(|run| run.traced && run.number == 21));
    }

    #[test]
    fn which_runs_are_followed() {
        let traced = |runs, trace| plan(runs, 1, trace, 1).iter().map(|run| run.traced).collect::<Vec<_>>();
        assert_eq!(traced(1, Trace::Once), [true]);
        assert_eq!(traced(2, Trace::Once), [false, false, true]);
        assert_eq!(traced(2, Trace::All), [true, true]);
        assert_eq!(traced(1, Trace::Never), [false]);
    }
}
