//! `cargo xtask bench …`: a file or a folder for each benchmark, and what they share.
//!
//! | file | holds |
//! |---|---|
//! | `hit`, `miss`, `build`, `record`, `scale`, `image`, `remote` | the benchmarks |
//! | `all` | runs all benchmarks and writes one report |
//! | `measure` | runs commands in turn and keeps samples |
//! | `count` | counts system calls, instructions and memory |
//! | `inputs`, `subjects` | what is compiled, and how |
//! | `rivals`, `server`, `replay` | other caches, their servers, and a compiler that only copies |
//! | `report`, `saved` | shows a report; writes it to `target/bench` and reads it |
//! | `compare` | compares two reports; keeps one as the accepted report |
//! | `machine` | describes the machine in a report |
//!
//! `benches/samples` computes medians and intervals. A new benchmark is a file that builds subjects
//! and fills a report. docs/performance.md has the results of benchmarks that were removed because
//! their question was answered.

mod all;
mod build;
mod compare;
mod count;
mod hit;
mod image;
mod inputs;
mod machine;
mod measure;
mod miss;
mod record;
mod remote;
mod replay;
mod report;
mod rivals;
mod saved;
mod scale;
mod server;
mod subjects;

use crate::place::Place;
use anyhow::Result;
use report::Report;
use std::path::PathBuf;

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

/// The benchmarks.
#[derive(clap::Subcommand)]
enum Word {
    /// Measure one warm hit beside other caches: CPU time, system calls, instructions
    Hit(hit::Options),
    /// Measure what one miss adds to compiles of 10 ms, 60 ms and 2 s, with known and with unknown
    /// inputs, and its memory
    Miss(miss::Options),
    /// Measure whole builds: plain, cold and warm, beside other caches and a compiler that copies
    Build(build::Options),
    /// Measure parallel builds and large stores: make with many jobs, two builds at once, stores of
    /// many records
    Scale(scale::Options),
    /// Measure what recording adds to a build, and how often verdicts about builds are wrong
    Record(record::Options),
    /// Measure a build from a remote at several latencies, beside one from the local store;
    /// larderd's memory
    Remote(remote::Options),
    /// Measure images of a node_modules with 100,000 files and of a Maven repository, beside
    /// archives
    Image(image::Options),
    /// Compare two reports, and exit with 1 if a figure got worse
    Compare(compare::Options),
    /// Keep a report in benches/results as the one to compare others with
    Accept(compare::AcceptOptions),
}

/// Runs one benchmark, or all that `all` lists. Returns `false` if a comparison failed.
pub(crate) fn bench(place: &Place, options: &Options) -> Result<bool> {
    let Some(word) = &options.word else {
        return all::all(place, options.quick, options.larder.as_deref());
    };
    match word {
        Word::Remote(options) => remote::remote(place, options),
        Word::Compare(options) => compare::compare(place, options),
        Word::Accept(options) => compare::accept(place, options).map(|()| true),
        word => {
            let reports = reports(place, word)?.unwrap_or_default();
            reports.iter().try_for_each(|report| report.publish(place)).map(|()| true)
        }
    }
}

/// Runs a benchmark that returns its reports. Returns `None` for subcommands that write their
/// reports themselves.
fn reports(place: &Place, word: &Word) -> Result<Option<Vec<Report>>> {
    Ok(Some(match word {
        Word::Hit(options) => vec![hit::hit(place, options)?],
        Word::Miss(options) => vec![miss::miss(place, options)?],
        Word::Build(options) => vec![build::build(place, options)?],
        Word::Scale(options) => vec![scale::scale(place, options)?],
        Word::Record(options) => record::record(place, options)?,
        Word::Image(options) => image::image(place, options)?,
        _ => return Ok(None),
    }))
}
