//! `cargo xtask bench …`: a file or a folder per benchmark, and what they share.
//!
//! `measure` runs commands in turn and keeps samples, `count` counts system calls, instructions and memory, `calls`
//! tells what a build called, `floor` is what a hit cannot do without, `report` shows a result, `saved` writes it to
//! `target/bench` and reads it, `compare` compares two, `recorded` keeps
//! what numbers have to be believed with, `all` runs every benchmark. What samples say is
//! `benches/samples`. A new benchmark is a file that builds subjects and fills a report.

mod all;
mod alloc;
mod bazel;
mod build;
mod calls;
mod class;
mod compare;
mod copy;
mod count;
mod floor;
mod hit;
mod image;
mod inputs;
mod machine;
mod measure;
mod miss;
mod pages;
mod record;
mod recorded;
mod remote;
mod replay;
mod report;
mod rivals;
mod saved;
mod scale;
mod scale_remote;
mod server;
mod spawn;
mod subjects;
mod whole;

use crate::place::Place;
use anyhow::{Result, ensure};
use report::Report;
use std::path::PathBuf;

/// What `cargo xtask bench` takes.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    word: Option<Word>,
    /// Keep what the numbers have to be believed with, by `larder record`, beside the report
    #[arg(long, global = true)]
    record: bool,
    /// Fewer runs, smaller stores, one project: some minutes, and intervals that say little
    #[arg(long)]
    quick: bool,
    /// Keep what target/bench has of the same larder, by the same options and at least as many runs, and measure the
    /// rest
    #[arg(long, conflicts_with = "larder")]
    resume: bool,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// The benchmarks.
#[derive(clap::Subcommand)]
enum Word {
    /// One warm hit: CPU time, system calls, instructions, beside other caches
    Hit(hit::Options),
    /// One miss: what it adds to compiles of 10 ms, 60 ms and 2 s, with known and with unknown inputs, and its memory
    Miss(miss::Options),
    /// Whole builds: plain, cold and warm, beside other caches and a compiler that copies
    Build(build::Options),
    /// One file put in place: every way, by size and file system
    Copy(copy::Options),
    /// One program started from a process that has grown: every way, by size, with and without huge pages
    Spawn(spawn::Options),
    /// Builds beside a service, a download, frames and a hog: plain, nice make, tokens, classes, one build and two
    Class(class::Options),
    /// Compilers with and without huge pages: time, page faults, memory
    Pages(pages::Options),
    /// Many at once, and much in the store: make with many jobs, two builds at once, large stores, eviction meanwhile
    Scale(scale::Options),
    /// larderd taking what a build hands over, with every allocator that there is, with and without huge pages
    Alloc(alloc::Options),
    /// What recording adds to a build, whether verdicts of real builds can be believed, and records of libX11, compared
    Record(record::Options),
    /// A build from a remote, at several latencies, beside the same from the local store; larderd's memory
    Remote(remote::Options),
    /// What teams of several sizes ask of a remote and pay for it, by simulation: the tables of docs/scale.md
    ScaleRemote(scale_remote::Options),
    /// A node_modules of 100,000 files and a Maven repository, saved and restored: larder's images beside archives
    Image(image::Options),
    /// Packages with ./configure and make in Bazel's sandboxes: plain, cold and in fresh sandboxes, beside other caches
    Bazel(bazel::Options),
    /// Configure alone, of autotools, CMake and Meson: plain, ccache, the compiler through larder, the whole command
    /// through larder
    Configure(whole::Options),
    /// Configure and make, at the same grains
    Whole(whole::Options),
    /// Compare two reports, and exit with 1 where a figure got worse
    Compare(compare::Options),
    /// Keep a report in benches/results, as the one that others are compared with
    Accept(compare::AcceptOptions),
}

/// Runs one benchmark, or all that `all` lists. `false` where what it compared is not as it must be.
pub(crate) fn bench(place: &Place, options: &Options) -> Result<bool> {
    let Options { word, record, quick, resume, larder } = options;
    if *record {
        let typed = std::env::args().skip(2).find(|typed| !typed.starts_with('-')).filter(|_| word.is_some());
        ensure!(
            !matches!(word, Some(Word::Compare(_) | Word::Accept(_))),
            "--record is for what measures: compare and accept read what was recorded"
        );
        return recorded::again(place, typed.as_deref());
    }
    let Some(word) = word else {
        return all::all(place, &all::How { quick: *quick, resume: *resume, larder: larder.as_deref() });
    };
    match word {
        Word::Remote(options) => remote::remote(place, options),
        Word::ScaleRemote(options) => scale_remote::scale_remote(place, options).map(|()| true),
        Word::Bazel(options) => bazel::bazel(place, options).map(|()| true),
        Word::Configure(options) => whole::configure(place, options),
        Word::Whole(options) => whole::whole(place, options),
        Word::Compare(options) => compare::compare(place, options),
        Word::Accept(options) => compare::accept(place, options).map(|()| true),
        word => {
            let reports = reports(place, word)?.unwrap_or_default();
            reports.iter().try_for_each(|report| report.publish(place)).map(|()| true)
        }
    }
}

/// What a benchmark found that leaves its report to us.
fn reports(place: &Place, word: &Word) -> Result<Option<Vec<Report>>> {
    Ok(Some(match word {
        Word::Hit(options) => vec![hit::hit(place, options)?],
        Word::Miss(options) => vec![miss::miss(place, options)?],
        Word::Build(options) => vec![build::build(place, options)?],
        Word::Copy(options) => copy::copy(place, options)?,
        Word::Spawn(options) => vec![spawn::spawn(place, options)?],
        Word::Class(options) => vec![class::class(place, options)?],
        Word::Pages(options) => vec![pages::pages(place, options)?],
        Word::Scale(options) => vec![scale::scale(place, options)?],
        Word::Alloc(options) => vec![alloc::alloc(place, options)?],
        Word::Record(options) => record::record(place, options)?,
        Word::Image(options) => image::image(place, options)?,
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// As it is typed behind `cargo xtask bench`.
    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Typed {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn whatever_measures_can_be_recorded() {
        for words in [&["--record"][..], &["--record", "--quick"], &["hit", "--record"], &["record", "--record"]] {
            let typed = Typed::try_parse_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
            assert!(typed.options.record, "{words:?}");
            assert_eq!(typed.options.word.is_some(), words[0] != "--record", "{words:?}");
        }
        let parts = Typed::try_parse_from(["record", "--only", "cost", "--only", "package"]).expect("is understood");
        assert!(matches!(parts.options.word, Some(Word::Record(_))) && !parts.options.record);
    }
}
