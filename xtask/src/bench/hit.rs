//! `cargo xtask bench hit`: measures one warm hit beside the plain compile, `/bin/true` and other
//! caches.
//!
//! Each measured run of a cache was a hit: the counters of the cache confirm it, and the object is
//! compared with the plain compile's.

use super::figure::Figure;
use super::inputs::{self, Case};
use super::measure::{self, Series, Subject};
use super::report::Report;
use super::scene::Scene;
use super::statistics::quantile;
use super::subjects::{Caches, Compile, True};
use super::{count, rivals};
use crate::fetch::Build;
use crate::place::Place;
use crate::setup;
use crate::table::{millis, shown};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::thread;

/// The options of `cargo xtask bench hit`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds. Each subject runs once per round, the plain compile only in every
    /// tenth
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
}

/// The plain compile runs in every n-th round, because it takes a thousand times as long.
const PLAIN_EVERY: usize = 10;
/// With fewer rounds than this, caches that take long to build are left out.
const FEW: u32 = 10;
/// The upper limits for the CPU time of a hit ÷ `/bin/true`: for C, and for C++ with its large
/// object.
const GOALS: [f64; 2] = [1.0, 2.0];
/// The upper limits for C if the sources are copies, or links to files that are known.
const COPIES_GOAL: f64 = 6.0;
const LINKS_GOAL: f64 = 2.0;
const PEAK_MB_GOAL: f64 = 3.0;

/// The directories and programs of one benchmark.
struct Bench<'a> {
    scene: Scene<'a>,
    caches: Caches,
    counting: PathBuf,
    rounds: usize,
}

/// Measures both cases.
pub(crate) fn hit(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let scene = Scene::begin(place, larder, "hit")?;
    let build = if options.runs < FEW { Build::No } else { Build::Yes };
    let (caches, skipped) = Caches::all(&scene, build)?;
    let bench = Bench { scene, caches, counting: count::program(place)?, rounds: options.runs as usize };
    let mut report = Report::new("hit", "One warm hit", 2, &NOTES);
    report.notes.extend(skipped);
    for (case, goal) in [inputs::c(&bench.scene.work)?, inputs::cpp(&bench.scene.work)?].iter().zip(GOALS) {
        bench.case(case, goal, &mut report).with_context(|| format!("the {} case", case.name))?;
    }
    Ok(report)
}

impl Bench<'_> {
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
        let plain = Compile { every: PLAIN_EVERY, expected: &expected, ..Compile::plain(case, &self.scene.home) };
        // Another cache that does not hit is left out with a note. If larder does not hit, the
        // benchmark fails.
        let mut not_hit = Vec::new();
        let mut warm = Vec::new();
        let mut all = self.caches.compiles(case, &self.scene.home);
        if case.has_own_headers {
            all.extend(self.caches.in_fresh_places(case, &self.scene.home));
        }
        for cache in all {
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
            self.add(report, case, *subject, [series, &all[0]], goal)?;
        }
        Ok(())
    }

    /// Adds the row of a subject, and for larder its figures. `nothing` is the series of `/bin/true`.
    fn add(
        &self,
        report: &mut Report,
        case: &Case,
        subject: &dyn Subject,
        [series, nothing]: [&Series; 2],
        goal: f64,
    ) -> Result<()> {
        let calls = count::system_calls(subject, &self.scene.work)?;
        let instructions = count::instructions(subject, &self.counting, &self.scene.work);
        let own = count::own(subject, &self.counting, &self.scene.work).ok();
        let over_true = series.cpu_median().as_secs_f64() / nothing.cpu_median().as_secs_f64().max(f64::EPSILON);
        report.table.add([
            ("case", case.name.to_owned()),
            ("subject", subject.name().to_owned()),
            ("CPU ms", millis(series.cpu_median())),
            ("÷ true", format!("{over_true:.2}")),
            ("wall ms", millis(series.wall_median())),
            ("system calls", calls.to_string()),
            ("page faults", quantile(series.faults.clone(), 1, 2).to_string()),
            ("instructions M", shown(instructions.map(|count| format!("{:.2}", count as f64 / 1e6)))),
            ("peak MB", shown(own.map(|own| format!("{:.1}", own.peak_kb as f64 / 1000.0)))),
            ("runs", series.samples.len().to_string()),
        ]);
        if !subject.name().starts_with("larder") {
            return Ok(());
        }
        // There is no goal for a hit that must read every input.
        let wanted = |goal: f64| match subject.name() {
            "larder" => Some(goal),
            "larder, copied sources" => Some(COPIES_GOAL),
            "larder, linked sources" => Some(LINKS_GOAL),
            _ => None,
        };
        let named = |what: &str| format!("{}, {}, {what}", case.name, subject.name());
        report.figures.extend(Figure::ratio(named("CPU ÷ /bin/true"), &series.cpu_s(), &nothing.cpu_s(), wanted(goal)));
        report.figures.push(Figure::count(named("system calls"), calls as f64, None));
        report.figures.extend(Figure::median(named("page faults"), &series.faults, None));
        report.figures.extend(instructions.map(|count| Figure::count(named("instructions"), count as f64, None)));
        report.figures.extend(own.map(|own| Figure::peak(named("peak MB"), own.peak_kb, Some(PEAK_MB_GOAL))));
        Ok(())
    }

    /// Returns the outputs of the plain compile.
    fn reference(&self, case: &Case) -> Result<Vec<Vec<u8>>> {
        Compile::plain(case, &self.scene.home).once()?;
        case.outputs()
    }
}

/// Fails if a measured run was not a hit.
fn all_hit(cache: &Compile, found: crate::launcher::Counts, series: &Series) -> Result<()> {
    let (hits, runs) = (found.hit, series.samples.len() as u64);
    ensure!(hits == runs && found.miss == 0, "{}: {hits} hits in {runs} runs: {found:?}", cache.launcher.name);
    Ok(())
}

/// The notes below the table.
const NOTES: [&str; 4] = [
    "CPU is user and system time of the command, all its descendants and the cache's server: the median of \
     interleaved runs. Page faults are minor faults of the command and the descendants \
     that were waited for: the median of the same runs. System calls and instructions are counted in runs of their \
     own. All three do not include servers. Peak is the memory of the program itself.",
    "larder, empty stamps: its stamps are removed before each run, so larder reads and hashes every input, \
     including the compiler's programs, as in a container that was just started.",
    "larder, copied sources, and linked sources: before each run the directory with the sources is made anew, with a \
     copy of each file or a symbolic link to it. The compiler and the system's headers have stamps.",
    rivals::NOTE,
];
