//! `cargo xtask bench …`: a file or a folder for each benchmark, and what they share.
//!
//! | file | holds |
//! |---|---|
//! | `hit`, `miss`, `build`, `corpus`, `rust`, `record`, `image`, `remote` | the benchmarks |
//! | `words` | the subcommands |
//! | `all` | runs the benchmarks that guard a goal, and writes one report |
//! | `scene` | the program and the directories of a benchmark |
//! | `measure` | runs commands in turn and keeps samples |
//! | `count` | counts system calls, instructions and memory |
//! | `inputs`, `subjects`, `project` | what is compiled, and how |
//! | `rivals`, `server`, `replay` | other caches, their servers, and a compiler that only copies |
//! | `statistics`, `figure` | medians with intervals; the numbers by which reports are compared |
//! | `report` | shows a report, and writes it to `target/bench` |
//! | `caches` | measures what README.md's table compares, and writes the table there |
//! | `link_order` | writes the lists of `src/hot.ld` |
//! | `compare` | compares two reports; keeps one as the accepted report |
//!
//! A new benchmark is a file that fills a report. docs/performance.md has the results of benchmarks
//! that were removed because their question was answered.

mod all;
mod build;
mod caches;
mod compare;
pub(crate) mod corpus;
mod count;
mod figure;
mod hit;
mod image;
mod inputs;
mod link_order;
mod measure;
mod miss;
mod project;
mod record;
mod remote;
mod replay;
mod report;
mod rivals;
mod rust;
mod scene;
mod server;
mod statistics;
mod subjects;
mod words;

use crate::binaries;
use crate::place::Place;
use anyhow::Result;
use std::path::PathBuf;
use words::{Word, reports};

/// The options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    word: Option<Word>,
    /// Run fewer rounds, with one project. Takes some minutes; the intervals say little
    #[arg(long)]
    quick: bool,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM", global = true)]
    larder: Option<PathBuf>,
}

/// Runs one benchmark, or all that `all` lists. Returns `false` if a comparison failed.
pub(crate) fn bench(place: &Place, options: &Options) -> Result<bool> {
    let larder = || binaries::larder(place, options.larder.as_deref());
    match &options.word {
        None => all::all(place, &larder()?, options.quick, options.larder.is_some()),
        Some(Word::Caches(options)) => caches::caches(place, &larder()?, options),
        Some(Word::LinkOrder) => link_order::link_order(place, &larder()?).map(|()| true),
        Some(Word::Compare(options)) => compare::compare(place, options),
        Some(Word::Accept(options)) => compare::accept(place, options).map(|()| true),
        Some(word) => {
            let reports = reports(place, &larder()?, word)?;
            reports.into_iter().try_for_each(|report| report.publish(place)).map(|()| true)
        }
    }
}
