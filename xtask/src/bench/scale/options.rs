//! The options of the benchmark, and the values that all its parts use.

use crate::place::Place;
use std::path::PathBuf;

/// The options of `cargo xtask bench scale`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Measure only this part. Can be given several times
    #[arg(long, value_name = "PART")]
    pub(super) only: Vec<Part>,
    /// The number of rounds with one build of each kind
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// The number of rounds of single commands
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
    /// The number of sources of the project
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(super) sources: u32,
    /// The numbers of records in stores. A record takes about 14 kB, and a millisecond to make
    #[arg(long, default_values_t = [1000, 10_000, 100_000], value_delimiter = ',', value_name = "N")]
    pub(super) records: Vec<u64>,
    /// The sizes of more stores, in GB, with blobs of 1 MB. Those of more than 4 GB are sparse
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub(super) gigabytes: Vec<u64>,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    pub(super) larder: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    Jobs,
    Pair,
    Records,
}

/// Values that all parts use.
pub(super) struct Bench<'a> {
    pub(super) larder: PathBuf,
    pub(super) work: PathBuf,
    pub(super) home: PathBuf,
    pub(super) place: &'a Place,
    pub(super) options: &'a Options,
}
