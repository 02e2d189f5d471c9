//! `cargo xtask bench …`: a file per benchmark, and what they share.
//!
//! `measure` runs commands in turn and keeps samples, `count` counts system calls and instructions, `report` shows a
//! result and writes it to `target/bench`. A new benchmark is a file that builds subjects and fills a report.

mod bazel;
mod build;
mod count;
mod hit;
mod inputs;
mod measure;
mod report;
mod sccache;
mod subjects;

use crate::place::Place;
use anyhow::Result;

/// The benchmarks.
#[derive(clap::Subcommand)]
pub(crate) enum Word {
    /// One warm hit: CPU time, system calls, instructions, beside other caches
    Hit(hit::Options),
    /// Whole builds: plain, cold and warm, beside other caches
    Build(build::Options),
    /// Packages with ./configure and make in Bazel's sandboxes: plain, cold and in fresh sandboxes, beside other caches
    Bazel(bazel::Options),
}

/// Runs one benchmark.
pub(crate) fn bench(place: &Place, word: &Word) -> Result<()> {
    match word {
        Word::Hit(options) => hit::hit(place, options),
        Word::Build(options) => build::build(place, options),
        Word::Bazel(options) => bazel::bazel(place, options),
    }
}
