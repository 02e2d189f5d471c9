//! Builds by `make` with 1, 2, 8 and 32 jobs.

use super::options::Bench;
use super::project::Project;
use super::rows::Row;
use crate::bench::measure::{SETTLING, Series};
use crate::bench::report::Report;
use crate::launcher::{Counts, Launcher};
use crate::place::fresh;
use crate::progress::Bar;
use anyhow::{Context, Result, ensure};
use std::thread;

const JOBS: &[usize] = &[1, 2, 8, 32];
const KINDS: &[&str] = &["plain", "all misses", "all hits", "half and half"];
/// The number of builds with hits in a round. They take little time, so a disturbance affects them
/// more.
const HITS: u32 = 5;

/// The builds of one kind with one number of jobs.
#[derive(Default)]
struct Cell {
    series: Series,
    counts: Option<Counts>,
}

pub(super) fn jobs(bench: &Bench, report: &mut Report) -> Result<()> {
    let project = Project::write(bench.work.join("jobs"), bench.options.sources)?;
    let store = bench.work.join("store/jobs");
    let larder = Launcher::larder(&bench.larder, &store)?;
    let plain = Launcher::plain();
    // Sources must be clearly older than their objects.
    thread::sleep(SETTLING);
    project.build(&plain, &bench.home, (2, "all"), &[])?;
    let expected = project.objects()?;
    let mut cells: Vec<Vec<Cell>> = JOBS.iter().map(|_| KINDS.iter().map(|_| Cell::default()).collect()).collect();
    let bar = Bar::new("jobs", (JOBS.len() * KINDS.len()) as u64 * u64::from(bench.options.rounds));
    for round in 0..bench.options.rounds {
        for (at, &jobs) in JOBS.iter().enumerate() {
            let build =
                |launcher: &Launcher, target, expected| project.build(launcher, &bench.home, (jobs, target), expected);
            let empty = || -> Result<()> {
                fresh(&store)?;
                build(&larder, "first.o", &[]).map(|_| ())
            };
            let mut keep = |kind: usize, (usage, counts): (crate::run::Usage, Option<Counts>)| {
                cells[at][kind].series.samples.push(usage);
                cells[at][kind].counts = counts;
                bar.at(((round as usize * JOBS.len() + at) * KINDS.len() + kind) as u64);
            };
            keep(0, build(&plain, "all", &expected)?);
            empty()?;
            keep(1, build(&larder, "all", &expected)?);
            for _ in 0..HITS {
                keep(2, build(&larder, "all", &expected)?);
            }
            empty()?;
            build(&larder, "half", &[])?;
            keep(3, build(&larder, "all", &expected)?);
        }
    }
    bar.end(&format!("jobs: {} rounds", bench.options.rounds));
    let sources = u64::from(bench.options.sources);
    for (at, jobs) in JOBS.iter().enumerate() {
        for (kind, name) in KINDS.iter().enumerate() {
            let what = format!("{name}, -j{jobs}");
            let Cell { series, counts } = &cells[at][kind];
            if let Some(counts) = counts {
                let hits = [0, 0, sources, sources / 2][kind];
                ensure!(
                    (counts.hit, counts.runs()) == (hits, sources - hits),
                    "{what}: expected {hits} hits of {sources}: {counts:?}"
                );
            }
            let row = Row {
                part: "jobs",
                what,
                series: series.clone(),
                plain: Some(&cells[at][0].series),
                base: Some(&cells[0][kind].series),
                counts: counts.clone(),
                // CPU ÷ plain of these rows, and its growth over one job, are compared between
                // reports.
                figure: kind > 0 && *jobs > 1,
                ..Row::default()
            };
            row.add_to(report);
        }
    }
    project.clean().context("the project cannot be cleaned")
}
