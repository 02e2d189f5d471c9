//! `cargo xtask bench miss`: measures what a miss adds to compiles of about 10 ms, 60 ms and 2 s:
//! CPU time, wall time and memory, beside other caches.
//!
//! Each run is of a new command: a macro has another value, and the object has other bytes. larder
//! is measured in three states:
//!
//! 1. Its stamps have the content of every input.
//! 2. It has no stamps, as in a container that was just started.
//! 3. It has no store at all, so both observers also judge the compiler's programs for the first
//!    time.

use super::count::{self, Own};
use super::figure::Figure;
use super::inputs::{self, Case};
use super::measure::{self, Series, Subject};
use super::report::Report;
use super::rivals;
use super::scene::Scene;
use super::subjects::{Caches, Compile};
use crate::fetch::Build;
use crate::files::fresh;
use crate::launcher::{Counts, Launcher};
use crate::place::Place;
use crate::setup;
use crate::table::{millis, over, shown};
use anyhow::{Context, Result, ensure};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The options of `cargo xtask bench miss`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds. Each subject runs once per round, compiles of 2 s only in every third
    #[arg(long, default_value_t = 21, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measure only the compiles of 10 ms and 60 ms, and no cache that must be built first
    #[arg(long)]
    quick: bool,
}

/// Compiles that take longer than this run in every third round.
const LONG: Duration = Duration::from_millis(500);
const LONG_EVERY: usize = 3;
/// The upper limit for the peak memory that a miss needs beside the tool.
const PEAK_MB_GOAL: f64 = 10.0;
/// The upper limits for CPU ÷ plain of a miss: for C, and for C++.
const GOALS: [(&str, f64); 2] = [("gcc", 1.08), ("g++", 1.03)];

/// A compile that is new in each run.
struct Miss<'a> {
    compile: Compile<'a>,
    /// True if larder's store is removed before each run.
    begins_empty: bool,
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
        if let (true, Some(store)) = (self.begins_empty, self.compile.launcher.store()) {
            fresh(&store)?;
        }
        self.compile.prepare()
    }

    /// Checks that the plain compiler makes the same outputs.
    fn check(&self) -> Result<()> {
        if self.is_plain() {
            return Ok(());
        }
        let made = self.compile.case.outputs()?;
        let plain = Compile::plain(self.compile.case, self.compile.home);
        plain.prepare()?;
        let mut command = plain.command();
        crate::run::output(command.arg(self.number()))?;
        ensure!(self.compile.case.outputs()? == made, "its outputs differ from the plain compile's");
        Ok(())
    }

    fn server_cpu(&self) -> Result<Duration> {
        self.compile.server_cpu()
    }

    fn every(&self) -> usize {
        self.compile.every
    }
}

impl<'a> Miss<'a> {
    fn of(compile: Compile<'a>) -> Self {
        Self { compile, begins_empty: false, run: Cell::new(0) }
    }

    fn is_plain(&self) -> bool {
        self.compile.launcher.program.is_none()
    }

    fn is_larder(&self) -> bool {
        self.compile.launcher.store().is_some()
    }

    fn number(&self) -> String {
        format!("-DRUN={}", FIRST_RUN + self.run.get())
    }

    fn once(&self) -> Result<()> {
        self.prepare()?;
        let mut command = self.command();
        crate::run::output(&mut command).map(drop)
    }

    /// Runs once without measuring. It must be one more miss.
    fn counted(&self) -> Result<()> {
        let before = self.compile.counts()?;
        self.once()?;
        let found = self.compile.counts()? - before;
        ensure!(found.miss == 1 && found.hit == 0, "expected one miss: {found:?}");
        Ok(())
    }

    /// Runs larder twice, so that it judges the compiler's programs. Checks of other caches that
    /// they miss.
    fn warm_up(&self) -> Result<()> {
        if self.is_larder() {
            self.once()?;
            self.once()
        } else if self.is_plain() {
            self.once()
        } else {
            let name = self.name();
            self.counted().with_context(|| format!("{}: {name} does not miss a new compile", self.compile.case.name))
        }
    }

    fn counts(&self) -> Result<Option<Counts>> {
        self.compile.launcher.counts(self.compile.home)
    }
}

/// All run numbers have the same number of digits, so that the compiler has the same work.
const FIRST_RUN: u64 = 100_000;

/// Values that all cases share.
struct Bench<'a> {
    scene: Scene<'a>,
    caches: Caches,
    /// larder, whose store is removed before each run.
    storeless: Launcher,
    counting: PathBuf,
    rounds: usize,
}

/// Measures every case.
pub(crate) fn miss(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let scene = Scene::begin(place, larder, "miss")?;
    let build = if options.quick { Build::No } else { Build::Yes };
    let (caches, skipped) = Caches::all(&scene, build)?;
    let storeless = storeless(&scene)?;
    let bench = Bench { scene, caches, storeless, counting: count::program(place)?, rounds: options.runs as usize };
    let mut report = Report::new("miss", "One miss", 2, &NOTES);
    report.notes.extend(skipped);
    for case in inputs::of_sizes(&bench.scene.work.join("inputs"), options.quick)? {
        bench.case(&case, &mut report).with_context(|| format!("the case {}", case.name))?;
    }
    Ok(report)
}

impl Bench<'_> {
    fn case(&self, case: &Case, report: &mut Report) -> Result<()> {
        thread::sleep(measure::SETTLING);
        let mut subjects = warm(self.subjects(case), report)?;
        // The first subject is the plain compile.
        let every = if takes_long(&subjects[0])? { LONG_EVERY } else { 1 };
        subjects.iter_mut().for_each(|subject| subject.compile.every = every);
        // Files that were just hashed become old enough for a stamp.
        thread::sleep(measure::SETTLING);
        subjects.iter().try_for_each(Miss::once)?;
        let before = subjects.iter().map(Miss::counts).collect::<Result<Vec<_>>>()?;
        let dyns: Vec<&dyn Subject> = subjects.iter().map(|subject| subject as &dyn Subject).collect();
        let all = measure::interleaved(&format!("{} miss", case.name), &dyns, self.rounds)?;
        for ((subject, series), before) in subjects.iter().zip(&all).zip(before) {
            all_missed(subject, before, series)?;
        }
        let owns: Vec<Option<Own>> =
            dyns.iter().map(|subject| count::own(*subject, &self.counting, &self.scene.work).ok()).collect();
        for (at, subject) in subjects.iter().enumerate() {
            add_to(report, case, subject.name(), [&all[at], &all[0]], [owns[at], owns[0]]);
        }
        Ok(())
    }

    /// Returns the plain compile, larder in its three states, and the other caches.
    fn subjects<'b>(&'b self, case: &'b Case) -> Vec<Miss<'b>> {
        let plain = || Compile::plain(case, &self.scene.home);
        let storeless = Compile { launcher: self.storeless.clone(), ..plain() };
        let compiles = [plain()].into_iter().chain(self.caches.compiles(case, &self.scene.home));
        let mut subjects: Vec<Miss> = compiles.map(Miss::of).collect();
        let larders = subjects.iter().rposition(Miss::is_larder).map_or(subjects.len(), |last| last + 1);
        subjects.insert(larders, Miss { begins_empty: true, ..Miss::of(storeless) });
        subjects
    }
}

/// Warms up the subjects and returns those that worked. Another cache that does not miss is left
/// out with a note.
fn warm<'a>(subjects: Vec<Miss<'a>>, report: &mut Report) -> Result<Vec<Miss<'a>>> {
    let mut warm = Vec::new();
    for subject in subjects {
        match subject.warm_up() {
            Err(error) if !subject.is_plain() && !subject.is_larder() => {
                println!("skipped: {error:#}");
                // Only the outermost words, because the causes may contain paths of this machine.
                report.notes.push(format!("Skipped: {error}."));
            }
            done => done.map(|()| warm.push(subject))?,
        }
    }
    Ok(warm)
}

/// Returns larder with a store that is removed before each run.
fn storeless(scene: &Scene) -> Result<Launcher> {
    Ok(Launcher::larder(&scene.larder, &scene.store("larder-new"))?.called("larder, no store"))
}

fn takes_long(plain: &Miss) -> Result<bool> {
    plain.prepare()?;
    Ok(crate::run::measured(&mut plain.command())?.1.cpu > LONG)
}

/// Fails if a measured run was not a miss, or if larder did not record it.
fn all_missed(subject: &Miss, before: Option<Counts>, series: &Series) -> Result<()> {
    let Some((before, after)) = before.zip(subject.counts()?) else { return Ok(()) };
    // If the store was removed, its counters were removed as well.
    let (runs, found) = if subject.begins_empty { (1, after) } else { (series.samples.len() as u64, after - before) };
    ensure!(
        found.miss == runs && found.hit == 0 && found.unrecorded() == 0,
        "{}: expected {runs} misses, all recorded: {found:?}",
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
) {
    let digits = |number: Option<f64>, digits: usize| shown(number.map(|number| format!("{number:.digits$}")));
    report.table.add([
        ("case", case.name.to_owned()),
        ("subject", name.to_owned()),
        ("CPU ms", millis(series.cpu_median())),
        ("CPU ÷ plain", over(series.cpu_median(), plain.cpu_median())),
        ("wall ms", millis(series.wall_median())),
        ("wall ÷ plain", over(series.wall_median(), plain.wall_median())),
        ("own CPU ms", digits(own.map(|own| own.cpu.as_secs_f64() * 1e3), 2)),
        ("own peak MB", digits(own.map(|own| own.peak_kb as f64 / 1e3), 1)),
        ("largest MB", digits(own.map(|own| own.largest_kb as f64 / 1e3), 1)),
        ("runs", series.samples.len().to_string()),
    ]);
    if !name.starts_with("larder") {
        return;
    }
    let named = |what: &str| format!("{}, {name}, {what}", case.name);
    // There is no goal for inputs without a stamp.
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

/// The notes below the table.
const NOTES: [&str; 4] = [
    "CPU is user and system time of the command and all its descendants, and of a server until the command ends; \
     medians of interleaved runs. Each run is of a new command, and its result was recorded. The results of the \
     first and the last run are compared with the plain compile's.",
    "own: CPU time and peak memory of the wrapper alone, in a run of its own. largest: peak memory of the largest \
     process, which is the compiler proper.",
    "larder: there is a stamp for every input. empty stamps: the stamps are removed before each run, so every \
     input is read and hashed. no store: the whole store is removed, so both observers also judge the compiler's \
     programs.",
    rivals::NOTE,
];

#[cfg(test)]
mod tests {
    use super::super::subjects::tests::with_caches;
    use super::*;

    /// Calls `check` with the subjects of a case, whose programs do not exist.
    fn with_subjects(check: impl FnOnce(Vec<Miss>)) {
        with_caches(|scene, caches| {
            let case = Case {
                name: "C, 10 ms",
                dir: scene.work.clone(),
                compiler: "gcc",
                arguments: Vec::new(),
                has_own_headers: false,
            };
            let storeless = storeless(&scene).expect("a path without spaces");
            let bench = Bench { scene, caches, storeless, counting: PathBuf::new(), rounds: 1 };
            check(bench.subjects(&case));
        });
    }

    #[test]
    fn whatever_hits_misses() {
        with_subjects(|subjects| {
            let names: Vec<&str> = subjects.iter().map(|subject| subject.name()).collect();
            let (larders, others) = names.split_at(4);
            assert_eq!(larders, ["plain", "larder", "larder, empty stamps", "larder, no store"]);
            assert_eq!(others, ["ccache", "sccache", "kache"]);
            let empty: Vec<bool> = subjects.iter().map(|subject| subject.begins_empty).collect();
            assert_eq!(empty.iter().position(|&empty| empty), Some(3));
            assert_eq!(empty.iter().filter(|&&empty| empty).count(), 1);
        });
    }

    #[test]
    fn each_run_is_of_another_command() {
        with_subjects(|subjects| {
            let last = || -> Option<String> {
                subjects[0].prepare().expect("there is nothing to take away");
                subjects[0].command().get_args().last().map(|word| word.to_string_lossy().into_owned())
            };
            assert_eq!([last(), last()].map(Option::unwrap_or_default), ["-DRUN=100001", "-DRUN=100002"]);
        });
    }

    #[test]
    fn others_that_do_not_run_are_skipped_and_larder_is_not() {
        with_subjects(|subjects| {
            let mut report = Report::default();
            let (larders, others): (Vec<Miss>, Vec<Miss>) = subjects.into_iter().skip(1).partition(Miss::is_larder);
            let others_len = others.len();
            assert!(warm(others, &mut report).expect("they are skipped").is_empty());
            assert_eq!(report.notes.len(), others_len);
            assert!(report.notes.iter().all(|note| !note.contains("/nonexistent")), "{:?}", report.notes);
            assert!(warm(larders, &mut report).is_err());
        });
    }
}
