//! `cargo xtask bench scale`: measures parallel builds and large stores.
//!
//! | file | part |
//! |---|---|
//! | `jobs.rs` | `make` with more and more jobs: plain, all misses, all hits, half and half |
//! | `pair.rs` | two builds of one project at once, from an empty store |
//! | `records.rs` | one hit and one record, in stores with more and more records |
//! | `project.rs` | the project that is built |
//! | `rows.rs` | the table |

mod jobs;
mod pair;
pub(super) mod project;
mod records;
mod rows;

use crate::bench::report::Report;
use crate::place::{Place, fresh, remove};
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// The options of `cargo xtask bench scale`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measure only this part. Can be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// The number of rounds with one build of each kind
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The number of rounds of single commands
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The number of sources of the project
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    sources: u32,
    /// The numbers of records in stores. A record takes about 14 kB, and a millisecond to make
    #[arg(long, default_values_t = [1000, 10_000, 100_000], value_delimiter = ',', value_name = "N")]
    records: Vec<u64>,
    /// The sizes of more stores, in GB, with blobs of 1 MB. Those of more than 4 GB are sparse
    #[arg(long, value_delimiter = ',', value_name = "N")]
    gigabytes: Vec<u64>,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Jobs,
    Pair,
    Records,
}

/// Values that all parts use.
struct Bench<'a> {
    larder: PathBuf,
    work: PathBuf,
    home: PathBuf,
    place: &'a Place,
    options: &'a Options,
}

/// Measures the chosen parts.
pub(crate) fn scale(place: &Place, options: &Options) -> Result<Report> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-scale")?;
    fresh(&work)?;
    let home = work.join("home");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let bench = Bench { larder, work, home, place, options };
    let mut report = Report {
        name: "scale",
        title: "Many at once, and much in the store".to_owned(),
        notes: rows::notes(options),
        table: Table::new(2, rows::HEADER),
        ..Report::default()
    };
    let chosen = |part| options.only.is_empty() || options.only.contains(&part);
    if chosen(Part::Jobs) {
        jobs::jobs(&bench, &mut report).context("builds with many jobs")?;
    }
    if chosen(Part::Pair) {
        pair::pair(&bench, &mut report).context("two builds at once")?;
    }
    if chosen(Part::Records) {
        records::records(&bench, &mut report).context("stores of many records")?;
    }
    remove(&bench.work)?;
    Ok(report)
}
