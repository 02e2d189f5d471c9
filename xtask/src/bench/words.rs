//! The subcommands of `cargo xtask bench`, and the benchmark behind each.

use super::report::Report;
use super::{build, caches, compare, corpus, hit, image, miss, record, remote, rust};
use crate::place::Place;
use anyhow::{Result, bail};
use std::path::Path;

/// The benchmarks.
#[derive(clap::Subcommand)]
pub(super) enum Word {
    /// Measure one warm hit beside other caches: CPU time, system calls, instructions
    Hit(hit::Options),
    /// Measure what one miss adds to compiles of 10 ms, 60 ms and 2 s, with known and with unknown
    /// inputs, and its memory
    Miss(miss::Options),
    /// Measure whole builds: plain, cold and warm, beside other caches and a compiler that copies
    Build(build::Options),
    /// Build packages of Debian's in several places, with compilers and whole commands through
    /// larder, and compare every file
    Corpus(corpus::Options),
    /// Measure builds of Rust programs by cargo: cold, in a fresh target directory, in another
    /// checkout, beside other caches
    Rust(rust::Options),
    /// Measure what recording adds to a build
    Record(record::Options),
    /// Measure a build from a remote at several latencies, beside one from the local store
    Remote(remote::Options),
    /// Measure images of a node_modules with 100,000 files, beside archives
    Image(image::Options),
    /// Measure what README.md's table compares, and write the table there. Takes about 15 minutes
    Caches(caches::Options),
    /// Write the lists of src/hot.ld: the functions that a hit and a miss execute. Takes some minutes
    LinkOrder,
    /// Compare two reports, and exit with 1 if a figure got worse
    Compare(compare::Options),
    /// Keep a report in benches/results as the one to compare others with
    Accept(compare::AcceptOptions),
}

/// Runs a benchmark with the program `larder`, and returns its reports.
pub(super) fn reports(place: &Place, larder: &Path, word: &Word) -> Result<Vec<Report>> {
    Ok(match word {
        Word::Hit(options) => vec![hit::hit(place, larder, options)?],
        Word::Miss(options) => vec![miss::miss(place, larder, options)?],
        Word::Build(options) => vec![build::build(place, larder, options)?],
        Word::Corpus(options) => vec![corpus::corpus(place, larder, options)?],
        Word::Rust(options) => vec![rust::rust(place, larder, options)?],
        Word::Record(options) => vec![record::record(place, larder, options)?],
        Word::Remote(options) => vec![remote::remote(place, larder, options)?],
        Word::Image(options) => image::image(place, larder, options)?,
        Word::Caches(_) | Word::LinkOrder | Word::Compare(_) | Word::Accept(_) => {
            bail!("this subcommand makes no report")
        }
    })
}
