//! `cargo xtask bench miss`: what a miss adds to compiles of about 10 ms, 60 ms and 2 s, in CPU and wall time and in
//! memory.
//!
//! Each run is of a command that nobody has run before: a macro has another value, and the object other bytes. Three
//! states of larder: its stamps say what the inputs hold; they do not, as in a container that was just started; and
//! there is no store at all, so that also the compiler's programs are seen for the first time, by both observers.

mod stages;

use super::count::{self, Own};
use super::inputs::{self, Case, OUTPUTS};
use super::measure::{self, Series, Subject};
use super::report::{Figure, Report, millis};
use super::rivals::{self, Rival};
use super::subjects::Compile;
use crate::fetch::Build;
use crate::launcher::{Counts, Launcher};
use crate::place::{Place, fresh};
use crate::table::{NONE, Table};
use crate::{binaries, setup};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use stages::Stages;
use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// What `cargo xtask bench miss` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: every subject runs once in each; of the compiles of 2 s every third round
    #[arg(long, default_value_t = 21, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only the compiles of 10 ms and 60 ms, and no cache that would have to be built first
    #[arg(long)]
    quick: bool,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

const HEADER: &[&str] = &[
    "case",
    "subject",
    "CPU ms",
    "CPU ÷ plain",
    "wall ms",
    "wall ÷ plain",
    "own CPU ms",
    "own peak MB",
    "largest MB",
    "before ms",
    "after ms",
    "runs",
];
/// Compiles that take longer than this take part in every third round.
const LONG: Duration = Duration::from_millis(500);
const LONG_EVERY: usize = 3;
/// What a miss is to have at the peak beside the tool.
const PEAK_MB_GOAL: f64 = 10.0;
/// What a miss of small C files and of C++ is to cost at most, ÷ plain.
const GOALS: [(&str, f64); 2] = [("gcc", 1.08), ("g++", 1.03)];
const RIVALS: &[&str] = &["ccache", "sccache"];

/// What larder knows when a command misses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knows {
    Everything,
    /// Its stamps were taken away.
    NoInputs,
    /// Its store was.
    Nothing,
}

/// A compile that nobody has run before, each time.
struct Miss<'a> {
    compile: Compile<'a>,
    knows: Knows,
    run: Cell<u64>,
}

impl Subject for Miss<'_> {
    fn name(&self) -> &str {
        self.compile.name()
    }

    fn command(&self) -> Command {
        let mut command = self.compile.command();
        command.arg(self.number());
        command
    }

    fn prepare(&self) -> Result<()> {
        self.run.set(self.run.get() + 1);
        if let (Knows::Nothing, Some(store)) = (self.knows, self.compile.launcher.store()) {
            fresh(&store)?;
        }
        self.compile.prepare()
    }

    /// Whether the plain compiler makes the same.
    fn check(&self) -> Result<()> {
        let made = outputs(self.compile.case)?;
        let plain = Compile::plain(self.compile.case, self.compile.home);
        plain.prepare()?;
        let mut command = plain.command();
        crate::run::output(command.arg(self.number()))?;
        ensure!(outputs(self.compile.case)? == made, "its outputs are not what the plain compile makes");
        Ok(())
    }

    fn server_cpu(&self) -> Result<Duration> {
        self.compile.server_cpu()
    }

    fn every(&self) -> usize {
        self.compile.every
    }
}

impl Miss<'_> {
    fn number(&self) -> String {
        format!("-DRUN={}", FIRST_RUN + self.run.get())
    }

    fn once(&self) -> Result<()> {
        self.prepare()?;
        let mut command = self.command();
        crate::run::output(&mut command).map(drop)
    }

    fn counts(&self) -> Result<Option<Counts>> {
        self.compile.launcher.counts(self.compile.home)
    }
}

/// So that all numbers have as many digits, and the compiler the same work.
const FIRST_RUN: u64 = 100_000;

fn outputs(case: &Case) -> Result<Vec<Vec<u8>>> {
    let read = |name: &&str| {
        let path = case.dir.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    OUTPUTS.iter().map(read).collect()
}

/// What all cases share.
struct Bench {
    work: PathBuf,
    home: PathBuf,
    larder: PathBuf,
    rivals: Vec<Rival>,
    counting: PathBuf,
    rounds: usize,
}

/// Measures every case.
pub(crate) fn miss(place: &Place, options: &Options) -> Result<Report> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-miss")?;
    fresh(&work)?;
    let home = work.join("home");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let build = if options.quick { Build::No } else { Build::Yes };
    let (mut rivals, skipped) = rivals::all(place, &work.join("store"), &home, build)?;
    rivals.retain(|rival| RIVALS.contains(&rival.launcher.name));
    let counting = count::program(place)?;
    let bench = Bench { work, home, larder, rivals, counting, rounds: options.runs as usize };
    let mut report = Report {
        name: "miss",
        title: "One miss".to_owned(),
        notes: notes(),
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    report.notes.extend(skipped);
    for case in inputs::of_sizes(&bench.work.join("inputs"), options.quick)? {
        bench.case(&case, &mut report).with_context(|| format!("the case {}", case.name))?;
    }
    Ok(report)
}

impl Bench {
    fn case(&self, case: &Case, report: &mut Report) -> Result<()> {
        thread::sleep(measure::SETTLING);
        let store = |name: &str| self.work.join("store").join(name);
        let larder = |name: &'static str, dir: &str| -> Result<Launcher> {
            Ok(Launcher::larder(&self.larder, &store(dir))?.called(name))
        };
        let plain = self.subject(case, Launcher::plain(), Knows::Everything);
        plain.once()?;
        let every = if self.takes_long(&plain)? { LONG_EVERY } else { 1 };
        let mut subjects = vec![
            plain,
            self.subject(case, larder("larder", "larder")?, Knows::Everything),
            self.subject(case, larder("larder, empty stamps", "larder-empty")?, Knows::NoInputs),
            self.subject(case, larder("larder, no store", "larder-new")?, Knows::Nothing),
        ];
        for rival in &self.rivals {
            let mut subject = self.subject(case, rival.launcher.clone(), Knows::Everything);
            subject.compile.server = rival.server.as_ref();
            subjects.push(subject);
        }
        subjects.iter_mut().for_each(|subject| subject.compile.every = every);
        // The compiler's programs are judged, and what was just hashed grows old enough for a stamp.
        for subject in &subjects {
            subject.once()?;
            subject.once()?;
        }
        thread::sleep(measure::SETTLING);
        subjects.iter().try_for_each(Miss::once)?;
        let before = subjects.iter().map(Miss::counts).collect::<Result<Vec<_>>>()?;
        let dyns: Vec<&dyn Subject> = subjects.iter().map(|subject| subject as &dyn Subject).collect();
        let all = measure::interleaved(&format!("{} miss", case.name), &dyns, self.rounds)?;
        for ((subject, series), before) in subjects.iter().zip(&all).zip(before) {
            all_missed(subject, before, series)?;
        }
        let owns: Vec<Option<Own>> =
            dyns.iter().map(|subject| count::own(*subject, &self.counting, &self.work).ok()).collect();
        for (at, subject) in subjects.iter().enumerate() {
            // They do not depend on how long the tool runs.
            let stages = match subject.compile.launcher.store() {
                Some(_) if every == 1 => Some(stages::stages(subject, &self.work)?),
                _ => None,
            };
            add_to(report, case, subject.name(), [&all[at], &all[0]], [owns[at], owns[0]], stages);
        }
        Ok(())
    }

    fn subject<'a>(&'a self, case: &'a Case, launcher: Launcher, knows: Knows) -> Miss<'a> {
        let compile = Compile { launcher, forgets: knows == Knows::NoInputs, ..Compile::plain(case, &self.home) };
        Miss { compile, knows, run: Cell::new(0) }
    }

    fn takes_long(&self, plain: &Miss) -> Result<bool> {
        plain.prepare()?;
        Ok(crate::run::measured(&mut plain.command())?.1.cpu > LONG)
    }
}

/// larder must have missed each time and recorded it; others are asked whether they hit.
fn all_missed(subject: &Miss, before: Option<Counts>, series: &Series) -> Result<()> {
    let Some((before, after)) = before.zip(subject.counts()?) else { return Ok(()) };
    // Where the store was taken away, the counters went with it.
    let (runs, found) = match subject.knows {
        Knows::Nothing => (1, after),
        _ => (series.samples.len() as u64, after - before),
    };
    ensure!(
        found.miss == runs && found.hit == 0 && found.unrecorded() == 0,
        "{}: {runs} misses were to be, all recorded: {found:?}",
        subject.name()
    );
    Ok(())
}

fn add_to(
    report: &mut Report,
    case: &Case,
    name: &str,
    [series, plain]: [&Series; 2],
    [own, plain_own]: [Option<Own>; 2],
    stages: Option<Stages>,
) {
    let over = |of: fn(&Series) -> Duration| format!("{:.3}", of(series).as_secs_f64() / of(plain).as_secs_f64());
    let shown =
        |number: Option<f64>, digits: usize| number.map_or(NONE.to_owned(), |number| format!("{number:.digits$}"));
    report.table.rows.push(vec![
        case.name.to_owned(),
        name.to_owned(),
        millis(series.cpu_median()),
        over(Series::cpu_median),
        millis(series.wall_median()),
        over(Series::wall_median),
        shown(own.map(|own| own.cpu.as_secs_f64() * 1e3), 2),
        shown(own.map(|own| own.peak_kb as f64 / 1e3), 1),
        shown(own.map(|own| own.largest_kb as f64 / 1e3), 1),
        shown(stages.map(|stages| stages.before_ms), 2),
        shown(stages.map(|stages| stages.after_ms), 2),
        series.samples.len().to_string(),
    ]);
    report.rows.push(json!({
        "case": case.name,
        "subject": name,
        "own_cpu_ns": own.map(|own| own.cpu.as_nanos() as u64),
        "own_peak_kb": own.map(|own| own.peak_kb),
        "largest_kb": own.map(|own| own.largest_kb),
        "before_ms": stages.map(|stages| stages.before_ms),
        "after_ms": stages.map(|stages| stages.after_ms),
        "samples": series.json(),
    }));
    if !name.starts_with("larder") {
        return;
    }
    let named = |what: &str| format!("{}, {name}, {what}", case.name);
    // Nothing is promised for inputs that nobody knows.
    let wanted = |goal: Option<f64>| goal.filter(|_| name == "larder");
    let cpu_goal = GOALS.iter().find(|(compiler, _)| *compiler == case.compiler).map(|(_, goal)| *goal);
    let cpu = Figure::ratio(named("CPU ÷ plain"), &series.cpu_s(), &plain.cpu_s(), wanted(cpu_goal));
    let wall = Figure::ratio(named("wall ÷ plain"), &series.wall_s(), &plain.wall_s(), None);
    report.figures.extend(cpu.into_iter().chain(wall));
    if let (Some(own), Some(plain)) = (own, plain_own) {
        let beyond_kb = own.peak_kb + own.largest_kb.saturating_sub(plain.largest_kb);
        report.figures.push(Figure::peak(named("peak MB beyond the tool's"), beyond_kb, Some(PEAK_MB_GOAL)));
    }
}

fn notes() -> Vec<String> {
    vec![
        "CPU is user and system time of the command and all that it starts, sccache's server included; medians of \
         interleaved runs. Each \
         run is of a command that was never run before, and its result was recorded; the first and the last of each \
         are compared with \
         the plain compile."
            .to_owned(),
        "own: CPU time and peak memory of the wrapper alone, in a run of its own; largest: peak memory of the largest \
         process, which is the \
         compiler proper. before and after: wall time from the wrapper's start to the tool's and from the tool's end \
         to the wrapper's, by \
         strace, the median of five runs."
            .to_owned(),
        "larder: its stamps tell of every input. empty stamps: taken away before each run, so that every input is \
         read and hashed. no store: \
         taken away as a whole, so that the compiler's programs are judged as well, by a run that both observers see."
            .to_owned(),
    ]
}
