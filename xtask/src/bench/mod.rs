//! `cargo xtask bench …`: a file or a folder per benchmark, and what they share.
//!
//! `measure` runs commands in turn and keeps samples, `count` counts system calls and instructions, `calls` tells what a build
//! called, `floor` is what a hit cannot do without, `report` shows a result and writes it to `target/bench`. A new benchmark is a file that builds subjects and fills a report.

mod bazel;
mod build;
mod calls;
mod copy;
mod count;
mod floor;
mod hit;
mod inputs;
mod measure;
mod remote;
mod report;
mod scale;
mod sccache;
mod spawn;
mod subjects;
mod whole;

use crate::place::Place;
use anyhow::Result;

/// The benchmarks.
#[derive(clap::Subcommand)]
pub(crate) enum Word {
    /// One warm hit: CPU time, system calls, instructions, beside other caches
    Hit(hit::Options),
    /// Whole builds: plain, cold and warm, beside other caches
    Build(build::Options),
    /// One file put in place: every way, by size and file system
    Copy(copy::Options),
    /// One program started from a process that has grown: every way, by size, with and without huge pages
    Spawn(spawn::Options),
    /// Many at once, and much in the store: make with many jobs, two builds at once, large stores, eviction meanwhile
    Scale(scale::Options),
    /// A build from a remote, at several latencies, beside the same from the local store; larderd's memory
    Remote(remote::Options),
    /// Packages with ./configure and make in Bazel's sandboxes: plain, cold and in fresh sandboxes, beside other caches
    Bazel(bazel::Options),
    /// Configure alone, of autotools, CMake and Meson: plain, ccache, the compiler through larder, the whole command through larder
    Configure(whole::Options),
    /// Configure and make, at the same grains
    Whole(whole::Options),
}

/// Runs one benchmark. `false` where what it compared is not as it must be.
pub(crate) fn bench(place: &Place, word: &Word) -> Result<bool> {
    match word {
        Word::Hit(options) => hit::hit(place, options).map(|()| true),
        Word::Build(options) => build::build(place, options).map(|()| true),
        Word::Copy(options) => copy::copy(place, options).map(|()| true),
        Word::Spawn(options) => spawn::spawn(place, options).map(|()| true),
        Word::Scale(options) => scale::scale(place, options).map(|()| true),
        Word::Remote(options) => remote::remote(place, options),
        Word::Bazel(options) => bazel::bazel(place, options).map(|()| true),
        Word::Configure(options) => whole::configure(place, options),
        Word::Whole(options) => whole::whole(place, options),
    }
}
