//! `cargo xtask bench record`: measures what recording adds to a build (`cost`), and how often
//! verdicts about builds are wrong (`verdicts`).

mod builds;
mod cost;
mod package;
mod verdicts;

use super::report::Report;
use crate::launcher::Launcher;
use crate::place::{Place, fresh, remove};
use crate::{binaries, setup};
use anyhow::Result;
use builds::Bench;
use std::fs;
use std::path::PathBuf;

/// The options of `cargo xtask bench record`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measure only this part. Can be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// The number of runs of the small builds in each way
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The number of runs of libX11's configure and make in each way. 0 leaves libX11 out
    #[arg(long, default_value_t = 3, value_name = "N")]
    package_runs: u32,
    /// The number of sessions of two equal builds, and of two builds of which one was made slower
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// What recording adds
    Cost,
    /// The verdicts on two equal builds, and on builds of which one takes 3 % more
    Verdicts,
}

/// Measures the chosen parts.
pub(crate) fn record(place: &Place, options: &Options) -> Result<Vec<Report>> {
    let is_wanted = |part| options.only.is_empty() || options.only.contains(&part);
    if options.package_runs > 0 {
        setup::for_bench_package(place)?;
    } else {
        setup::for_bench(place)?;
    }
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-record")?;
    fresh(&work)?;
    fs::create_dir_all(work.join("home"))?;
    let launcher = Launcher::larder(&larder, &work.join("store"))?;
    let bench = Bench { place, work, larder, launcher };
    let mut reports = Vec::new();
    if is_wanted(Part::Cost) {
        reports.push(cost::cost(&bench, options.runs as usize, options.package_runs as usize)?);
    }
    if is_wanted(Part::Verdicts) {
        reports.push(verdicts::verdicts(&bench, options.sessions as usize)?);
    }
    remove(&bench.work)?;
    Ok(reports)
}
