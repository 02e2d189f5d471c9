//! `cargo xtask bench hit`: measures one warm hit beside the plain compile, `/bin/true` and other
//! caches.
//!
//! Each measured run of a cache was a hit: the counters of the cache confirm it, and the object is
//! compared with the plain compile's.

use super::count::{self, Own};
use super::figure::{Figure, millis};
use super::inputs::{self, Case};
use super::measure::{self, Series, Subject};
use super::report::Report;
use super::rivals;
use super::subjects::{Caches, Compile, True};
use crate::fetch::Build;
use crate::place::{Place, fresh};
use crate::table::{NONE, Table};
use crate::{binaries, setup};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

/// The options of `cargo xtask bench hit`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds. Each subject runs once per round, the plain compile only in every
    /// tenth
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

impl Options {
    pub(super) fn new(runs: u32, larder: &Path) -> Self {
        Self { runs, larder: Some(larder.to_owned()) }
    }
}

const HEADER: &[&str] = &[
    "case",
    "subject",
    "CPU ms",
    "lower quartile",
    "÷ true",
    "wall ms",
    "system calls",
    "page faults",
    "instructions M",
    "peak MB",
    "runs",
];
/// The plain compile runs in every n-th round, because it takes a thousand times as long.
const PLAIN_EVERY: usize = 10;
/// With fewer rounds than this, caches that take long to build are left out.
const FEW: u32 = 10;
/// The upper limits for the CPU time of a hit ÷ `/bin/true`: for C, and for C++ with its large
/// object.
const GOALS: [f64; 2] = [1.0, 2.0];
const PEAK_MB_GOAL: f64 = 3.0;

/// The directories and programs of one benchmark.
struct Bench {
    work: PathBuf,
    home: PathBuf,
    caches: Caches,
    counting: PathBuf,
    rounds: usize,
}

/// The samples of one subject, and what was counted in runs of their own.
struct Measured<'a> {
    case: &'a Case,
    name: &'a str,
    series: &'a Series,
    calls: u64,
    instructions: Option<u64>,
    own: Option<Own>,
}

/// Measures both cases.
pub(crate) fn hit(place: &Place, options: &Options) -> Result<Report> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-hit")?;
    fresh(&work)?;
    let (home, stores) = (work.join("home"), work.join("store"));
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let build = if options.runs < FEW { Build::No } else { Build::Yes };
    let (caches, skipped) = Caches::all(place, &larder, &stores, &home, build)?;
    let bench = Bench { work, home, caches, counting: count::program(place)?, rounds: options.runs as usize };
    let mut report = Report {
        name: "hit",
        title: "One warm hit".to_owned(),
        notes: notes(),
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    report.notes.extend(skipped);
    for (case, goal) in [inputs::c(&bench.work)?, inputs::cpp(&bench.work)?].iter().zip(GOALS) {
        bench.case(case, goal, &mut report).with_context(|| format!("the {} case", case.name))?;
    }
    Ok(report)
}

impl Bench {
    fn case(&self, case: &Case, goal: f64, report: &mut Report) -> Result<()> {
        thread::sleep(measure::SETTLING);
        let expected = self.reference(case)?;
        let headers = inputs::headers(case)?;
        let size_bytes = expected.first().map_or(0, Vec::len);
        report.notes.push(format!(
            "{}: {headers} headers, an object of {:.0} kB",
            case.name,
            size_bytes as f64 / 1000.0
        ));
        let plain = Compile { every: PLAIN_EVERY, expected: &expected, ..Compile::plain(case, &self.home) };
        // Another cache that does not hit is left out with a note. If larder does not hit, the
        // benchmark fails.
        let mut not_hit = Vec::new();
        let mut warm = Vec::new();
        for cache in self.caches.compiles(case, &self.home) {
            let cache = Compile { expected: &expected, ..cache };
            match cache.warm_up() {
                Err(error) if cache.launcher.store().is_none() => not_hit.push(format!("Skipped: {error}.")),
                done => done.map(|()| warm.push(cache))?,
            }
        }
        let caches = warm;
        report.notes.extend(not_hit);
        // New records are too young for a stamp. The next run hashes the inputs once more, later
        // ones do not.
        thread::sleep(measure::SETTLING);
        caches.iter().try_for_each(Compile::once)?;
        let before = caches.iter().map(Compile::counts).collect::<Result<Vec<_>>>()?;
        let mut subjects: Vec<&dyn Subject> = vec![&True, &plain];
        subjects.extend(caches.iter().map(|cache| cache as &dyn Subject));
        let all = measure::interleaved(&format!("{} hit", case.name), &subjects, self.rounds)?;
        for ((cache, before), series) in caches.iter().zip(before).zip(&all[subjects.len() - caches.len()..]) {
            all_hit(cache, cache.counts()? - before, series)?;
        }
        for (subject, series) in subjects.iter().zip(&all) {
            let calls = count::system_calls(*subject, &self.work)?;
            let instructions = count::instructions(*subject, &self.counting, &self.work);
            let own = count::own(*subject, &self.counting, &self.work).ok();
            let measured = Measured { case, name: subject.name(), series, calls, instructions, own };
            measured.add_to(report, &all[0], goal);
        }
        Ok(())
    }

    /// Returns the outputs of the plain compile.
    fn reference(&self, case: &Case) -> Result<Vec<Vec<u8>>> {
        Compile::plain(case, &self.home).once()?;
        case.outputs()
    }
}

impl Measured<'_> {
    fn add_to(&self, report: &mut Report, nothing: &Series, goal: f64) {
        let series = self.series;
        let over_true = series.cpu_median().as_secs_f64() / nothing.cpu_median().as_secs_f64().max(f64::EPSILON);
        let peak_mb = self.own.map(|own| own.peak_kb as f64 / 1000.0);
        report.table.rows.push(vec![
            self.case.name.to_owned(),
            self.name.to_owned(),
            millis(series.cpu_median()),
            millis(series.cpu_lower_quartile()),
            format!("{over_true:.2}"),
            millis(series.wall_median()),
            self.calls.to_string(),
            series.faults_median().to_string(),
            self.instructions.map_or(NONE.to_owned(), |count| format!("{:.2}", count as f64 / 1e6)),
            peak_mb.map_or(NONE.to_owned(), |peak| format!("{peak:.1}")),
            series.samples.len().to_string(),
        ]);
        report.rows.push(json!({
            "case": self.case.name,
            "subject": self.name,
            "system_calls": self.calls,
            "page_faults": series.faults_median(),
            "instructions": self.instructions,
            "peak_kb": self.own.map(|own| own.peak_kb),
            "samples": series.json(),
        }));
        if self.name.starts_with("larder") {
            self.figures(report, nothing, goal);
        }
    }

    fn figures(&self, report: &mut Report, nothing: &Series, goal: f64) {
        // There is no goal for a hit that must read every input.
        let wanted = |goal: f64| (self.name == "larder").then_some(goal);
        let named = |what: &str| format!("{}, {}, {what}", self.case.name, self.name);
        let cpu = self.series.cpu_s();
        report.figures.extend(Figure::ratio(named("CPU ÷ /bin/true"), &cpu, &nothing.cpu_s(), wanted(goal)));
        report.figures.push(Figure::count(named("system calls"), self.calls as f64, None));
        report.figures.extend(Figure::counts(named("page faults"), &self.series.faults, None));
        report.figures.extend(self.instructions.map(|count| Figure::count(named("instructions"), count as f64, None)));
        report.figures.extend(self.own.map(|own| Figure::peak(named("peak MB"), own.peak_kb, wanted(PEAK_MB_GOAL))));
    }
}

/// Fails if a measured run was not a hit. The loosened ccache keeps no statistics while it is
/// measured, so another run shows that it hits.
fn all_hit(cache: &Compile, found: crate::launcher::Counts, series: &Series) -> Result<()> {
    if !cache.launcher.counts_while_measured() {
        return cache.warm_up();
    }
    let (hits, runs) = (found.hit, series.samples.len() as u64);
    ensure!(hits == runs && found.miss == 0, "{}: {hits} hits in {runs} runs: {found:?}", cache.launcher.name);
    Ok(())
}

fn notes() -> Vec<String> {
    vec![
        "CPU is user and system time of the command, all its descendants and the cache's server: the median of \
         interleaved runs, and their lower quartile. Page faults are minor faults of the command and the descendants \
         that were waited for: the median of the same runs. System calls and instructions are counted in runs of their \
         own. All three do not include servers. Peak is the memory of the program itself."
            .to_owned(),
        "larder, empty stamps: its stamps are removed before each run, so larder reads and hashes every input, \
         including the compiler's programs, as in a container that was just started."
            .to_owned(),
        rivals::NOTE.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Usage;
    use std::time::Duration;

    #[test]
    fn page_faults_are_a_column_and_larders_a_figure() {
        let case = Case { name: "C", dir: PathBuf::new(), compiler: "gcc", arguments: Vec::new() };
        let usage = Usage { wall: Duration::from_millis(2), cpu: Duration::from_millis(1) };
        let series = Series { samples: vec![usage; 3], faults: vec![58, 57, 90] };
        let mut report = Report { table: Table::new(2, HEADER), ..Report::default() };
        for name in ["ccache", "larder"] {
            let measured = Measured { case: &case, name, series: &series, calls: 400, instructions: None, own: None };
            measured.add_to(&mut report, &series, 1.0);
        }
        let column = HEADER.iter().position(|name| *name == "page faults").expect("there is such a column");
        for (row, json) in report.table.rows.iter().zip(&report.rows) {
            assert_eq!((row.len(), row[column].as_str()), (HEADER.len(), "58"));
            assert_eq!(json["page_faults"], 58);
        }
        let figures: Vec<_> = report.figures.iter().filter(|figure| figure.name.ends_with("page faults")).collect();
        assert_eq!(figures.len(), 1);
        assert_eq!((figures[0].name.as_str(), figures[0].found.value), ("C, larder, page faults", 58.0));
    }
}
