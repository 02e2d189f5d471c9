//! `cargo xtask bench …`: a file or a folder for each benchmark, and what they share.
//!
//! | file | holds |
//! |---|---|
//! | `hit`, `miss`, `build`, `corpus`, `rust`, `record`, `scale`, `image`, `remote` | the benchmarks |
//! | `words` | the subcommands |
//! | `all` | runs all benchmarks and writes one report |
//! | `measure` | runs commands in turn and keeps samples |
//! | `count` | counts system calls, instructions and memory |
//! | `inputs`, `subjects` | what is compiled, and how |
//! | `rivals`, `server`, `replay` | other caches, their servers, and a compiler that only copies |
//! | `figure` | the numbers by which reports are compared |
//! | `report`, `saved` | shows a report; writes it to `target/bench` and reads it |
//! | `caches` | measures what README.md's table compares, and writes the table there |
//! | `compare` | compares two reports; keeps one as the accepted report |
//! | `machine` | describes the machine in a report |
//!
//! `benches/samples` computes medians and intervals. A new benchmark is a file that builds subjects
//! and fills a report. docs/performance.md has the results of benchmarks that were removed because
//! their question was answered.

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
pub(crate) mod machine;
mod measure;
mod miss;
mod record;
mod remote;
mod replay;
mod report;
mod rivals;
mod rust;
mod saved;
mod scale;
mod server;
mod subjects;
mod words;

use crate::place::Place;
use anyhow::Result;
use std::path::PathBuf;
use words::{Word, reports};

/// The options of `cargo xtask bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    word: Option<Word>,
    /// Run fewer rounds with smaller stores and one project. Takes some minutes; the intervals say
    /// little
    #[arg(long)]
    quick: bool,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// Runs one benchmark, or all that `all` lists. Returns `false` if a comparison failed.
pub(crate) fn bench(place: &Place, options: &Options) -> Result<bool> {
    let Some(word) = &options.word else {
        return all::all(place, options.quick, options.larder.as_deref());
    };
    match word {
        Word::Remote(options) => remote::remote(place, options),
        Word::Caches(options) => caches::caches(place, options),
        Word::Compare(options) => compare::compare(place, options),
        Word::Accept(options) => compare::accept(place, options).map(|()| true),
        word => {
            let reports = reports(place, word)?.unwrap_or_default();
            reports.iter().try_for_each(|report| report.publish(place)).map(|()| true)
        }
    }
}
