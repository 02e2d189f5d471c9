//! `cargo xtask bench hit`: what one warm hit costs, beside the compile itself, a program that does nothing, and other caches.
//!
//! Every measured run of a cache was a hit: its counters say so, and the object is compared with the plain compile's.

use super::count;
use super::floor::{self, Floor};
use super::inputs::{self, Case, OUTPUTS};
use super::measure::{self, Series, Subject};
use super::report::{Report, millis};
use super::sccache::Server;
use super::subjects::{Compile, True};
use crate::launcher::Launcher;
use crate::place::{Place, fresh, on_path};
use crate::table::{NONE, Table};
use crate::{binaries, fetch, setup};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// What `cargo xtask bench hit` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: every subject runs once in each, the plain compile in every tenth
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

const HEADER: &[&str] = &[
    "case",
    "subject",
    "CPU ms",
    "lower quartile",
    "÷ true",
    "÷ floor",
    "wall ms",
    "system calls",
    "instructions M",
    "runs",
];
/// The plain compile takes part in every n-th round: it takes a thousand times as long.
const PLAIN_EVERY: usize = 10;

/// The directories and programs of one benchmark.
struct Bench<'a> {
    work: PathBuf,
    home: PathBuf,
    launchers: Vec<Launcher>,
    sccache: Option<(Launcher, &'a Server)>,
    floor: PathBuf,
    stepping: PathBuf,
    rounds: usize,
}

/// Measures both cases and publishes the report.
pub(crate) fn hit(place: &Place, options: &Options) -> Result<()> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-hit")?;
    fresh(&work)?;
    let home = work.join("home");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let launchers = launchers(place, &larder, &work)?;
    let sccache = on_path("sccache").map(|program| Launcher::sccache(&program, &work.join("store/sccache")));
    let server = sccache.as_ref().map(|launcher| Server::start(launcher, &home)).transpose()?;
    let rounds = options.runs as usize;
    let floor = floor::program(place)?;
    let stepping = count::stepping(place)?;
    let bench = Bench { work, home, launchers, sccache: sccache.zip(server.as_ref()), floor, stepping, rounds };
    let mut report =
        Report { title: "One warm hit".to_owned(), notes: notes(), table: Table::new(2, HEADER), rows: Vec::new() };
    for case in [inputs::c(&bench.work)?, inputs::cpp(&bench.work)?] {
        bench.case(&case, &mut report).with_context(|| format!("the {} case", case.name))?;
    }
    report.publish(place, "hit")
}

fn launchers(place: &Place, larder: &Path, work: &Path) -> Result<Vec<Launcher>> {
    let ccache = fetch::ccache(place)?;
    let default = Launcher::ccache(&ccache, &work.join("store/ccache"))?;
    let loosened = Launcher::ccache_loosened(&ccache, &work.join("store/ccache-loosened"))?;
    Ok(vec![Launcher::larder(larder, &work.join("store/larder"))?, default, loosened])
}

impl Bench<'_> {
    fn case(&self, case: &Case, report: &mut Report) -> Result<()> {
        thread::sleep(measure::SETTLING);
        let expected = self.reference(case)?;
        let headers = inputs::headers(case)?;
        let size_bytes = expected.first().map_or(0, Vec::len);
        report.notes.push(format!(
            "{}: {headers} headers, an object of {:.0} kB",
            case.name,
            size_bytes as f64 / 1000.0
        ));
        let compile = |launcher: &Launcher, server, every| Compile {
            case,
            launcher: launcher.clone(),
            home: &self.home,
            expected: &expected,
            server,
            every,
        };
        let plain = compile(&Launcher::plain(), None, PLAIN_EVERY);
        let mut caches: Vec<Compile> = self.launchers.iter().map(|launcher| compile(launcher, None, 1)).collect();
        caches.extend(self.sccache.iter().map(|(launcher, server)| compile(launcher, Some(server), 1)));
        caches.iter().try_for_each(Compile::warm_up)?;
        // What was just stored is too young for a stamp: the next run reads it once more, those after it do not.
        thread::sleep(measure::SETTLING);
        caches.iter().try_for_each(Compile::once)?;
        // The first of the launchers is larder.
        let floor = Floor::of(&self.floor, &caches[0], &self.work.join("floor").join(case.name))?;
        report.notes.push(floor.note.clone());
        let before = caches.iter().map(Compile::counts).collect::<Result<Vec<_>>>()?;
        let mut subjects: Vec<&dyn Subject> = vec![&True, &floor, &plain];
        subjects.extend(caches.iter().map(|cache| cache as &dyn Subject));
        let all = measure::interleaved(&format!("{} hit", case.name), &subjects, self.rounds)?;
        for ((cache, before), series) in caches.iter().zip(before).zip(&all[subjects.len() - caches.len()..]) {
            all_hit(cache, cache.counts()? - before, series)?;
        }
        self.rows(case, &subjects, &all, report)
    }

    /// What the plain compile makes.
    fn reference(&self, case: &Case) -> Result<Vec<Vec<u8>>> {
        let launcher = Launcher::plain();
        Compile { case, launcher, home: &self.home, expected: &[], server: None, every: 1 }.once()?;
        let read = |name: &&str| {
            let path = case.dir.join(name);
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        OUTPUTS.iter().map(read).collect()
    }

    fn rows(&self, case: &Case, subjects: &[&dyn Subject], all: &[Series], report: &mut Report) -> Result<()> {
        let [nothing, floor] = [0, 1].map(|at| all.get(at).map(Series::cpu_median).unwrap_or_default());
        for (subject, series) in subjects.iter().zip(all) {
            let calls = count::system_calls(*subject, &self.work)?;
            let instructions = count::instructions(*subject, &self.stepping, &self.work);
            let over = |least: Duration| series.cpu_median().as_secs_f64() / least.as_secs_f64().max(f64::EPSILON);
            report.table.rows.push(vec![
                case.name.to_owned(),
                subject.name().to_owned(),
                millis(series.cpu_median()),
                millis(series.cpu_lower_quartile()),
                format!("{:.2}", over(nothing)),
                format!("{:.2}", over(floor)),
                millis(series.wall_median()),
                calls.to_string(),
                instructions.map_or(NONE.to_owned(), |count| format!("{:.2}", count as f64 / 1e6)),
                series.samples.len().to_string(),
            ]);
            report.rows.push(json_row(case, *subject, series, calls, instructions));
        }
        Ok(())
    }
}

/// The loosened ccache keeps no statistics while it is measured; the runs before and after it have shown that it hits.
fn all_hit(cache: &Compile, found: crate::launcher::Counts, series: &Series) -> Result<()> {
    if !cache.launcher.counts_while_measured() {
        return cache.warm_up();
    }
    let (hits, runs) = (found.hit, series.samples.len() as u64);
    ensure!(hits == runs && found.miss == 0, "{}: {hits} hits in {runs} runs: {found:?}", cache.launcher.name);
    Ok(())
}

fn json_row(case: &Case, subject: &dyn Subject, series: &Series, calls: u64, instructions: Option<u64>) -> Value {
    let micros = |pick: fn(&crate::run::Usage) -> Duration| -> Vec<u128> {
        series.samples.iter().map(|usage| pick(usage).as_micros()).collect()
    };
    json!({
        "case": case.name,
        "subject": subject.name(),
        "cpu_us_median": series.cpu_median().as_micros(),
        "cpu_us_lower_quartile": series.cpu_lower_quartile().as_micros(),
        "wall_us_median": series.wall_median().as_micros(),
        "system_calls": calls,
        "instructions": instructions,
        "cpu_us": micros(|usage| usage.cpu),
        "wall_us": micros(|usage| usage.wall),
    })
}

fn notes() -> Vec<String> {
    vec![
        "CPU is user and system time of the command and all that it starts, sccache's server included; the median of \
         interleaved runs and their lower quartile. System calls and instructions are counted in runs of their own, \
         without sccache's server."
            .to_owned(),
        "floor: a program that is started as larder is, reads as many bytes of record, makes the same looks as larder's hit and \
         puts the same outputs in place by the same calls, and does nothing else; its numbers are compared with the hit's \
         before anything is measured."
            .to_owned(),
        "ccache loosened: file_stat_matches and every other sloppiness that still notices a changed header, hard links, \
         no statistics."
            .to_owned(),
    ]
}
