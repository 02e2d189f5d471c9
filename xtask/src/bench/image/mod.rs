//! `cargo xtask bench image`: measures saving and restoring directories, by larder and by the usual
//! archives.
//!
//! | file | holds |
//! |---|---|
//! | `app/` | the package lists of the trees: npm's with its lock file, Maven's |
//! | `tree.rs` | the trees, installed by npm without scripts and by Maven, and changes to them |
//! | `ways.rs` | each way to save and to restore a tree, as commands |
//! | `jobs.rs` | what uses the tree afterwards |
//! | `measured.rs` | runs a way |
//! | `report.rs` | tables and figures |
//!
//! All files are on one disk, so fetched data comes from the page cache. "Far" means a web server
//! behind a proxy that adds latency.

mod jobs;
mod measured;
mod report;
mod tree;
mod ways;

use super::report::Report;
use crate::place::{Place, fresh};
use crate::{binaries, setup};
use anyhow::{Result, ensure};
use std::path::PathBuf;

use self::tree::Tree;
use self::ways::{MOUNTED, SAVED, TAR, UNPACKED, UNTAR, Ways};

/// The options of `cargo xtask bench image`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds. Each way runs once per round
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure only this. Can be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Measure a copy of this directory instead of the node_modules of the committed lock file
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Measure only a tree of nine packages and their dependencies, about ten thousand files
    #[arg(long, conflicts_with = "tree")]
    small: bool,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A node_modules, by all ways
    Packages,
    /// A Maven repository with few large files, by all ways
    Maven,
    /// The node_modules in three sizes
    Sizes,
}

/// The number of files that the tree of npm must have.
const FILES_MIN: u64 = 100_000;

impl Options {
    fn has(&self, part: Part) -> bool {
        match &*self.only {
            [] => part == Part::Packages || (!self.small && self.tree.is_none()),
            only => only.contains(&part),
        }
    }
}

/// Measures. The trees are kept for the next run.
pub(crate) fn image(place: &Place, options: &Options) -> Result<Vec<Report>> {
    setup::for_bench_image(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let ways = Ways::begin(larder, place.own("bench-image")?)?;
    let reports = reports(place, options, &ways);
    ways.end();
    reports
}

/// The wall times in seconds until a `node_modules` can be used.
pub(super) struct Usable {
    pub(super) files: u64,
    pub(super) untarred: f64,
    pub(super) unpacked: f64,
    /// `None` if this machine cannot mount it.
    pub(super) mounted: Option<f64>,
}

/// Measures only these ways to get the tree. `larder` is the program.
pub(super) fn usable(place: &Place, larder: PathBuf, rounds: u32) -> Result<Usable> {
    setup::for_bench_image(place)?;
    let ways = Ways::begin(larder, place.own("bench-image")?)?;
    let measured = measure_usable(place, &ways, rounds);
    ways.end();
    measured
}

fn measure_usable(place: &Place, ways: &Ways, rounds: u32) -> Result<Usable> {
    let tree = Tree::installed(place, None, false)?;
    let mut chosen = ways.all(&tree);
    chosen.retain(|way| [TAR, SAVED, UNTAR, UNPACKED, MOUNTED].contains(&way.name));
    // No jobs run on a tree of this kind.
    let tree = tree.into_sized();
    let all = measured::these(&tree, ways, chosen, rounds)?;
    Ok(Usable {
        files: tree.files,
        untarred: all.needed(UNTAR)?.wall(),
        unpacked: all.needed(UNPACKED)?.wall(),
        mounted: all.find(MOUNTED).map(measured::Measured::wall),
    })
}

fn reports(place: &Place, options: &Options, ways: &Ways) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    let mut of_all_ways = |tree: &Tree| -> Result<()> {
        let all = measured::all(tree, ways, options.rounds)?;
        reports.push(report::of_ways(tree, &all, options.rounds, ways.notes())?);
        reports.push(report::of_jobs(tree, &all)?);
        Ok(())
    };
    if options.has(Part::Maven) {
        of_all_ways(&Tree::of_maven(place)?)?;
    }
    if options.has(Part::Packages) || options.has(Part::Sizes) {
        let tree = Tree::installed(place, options.tree.as_deref(), options.small)?;
        ensure!(
            options.tree.is_some() || options.small || tree.files >= FILES_MIN,
            "only {} files: is the lock file complete?",
            tree.files
        );
        if options.has(Part::Packages) {
            of_all_ways(&tree)?;
        }
        if options.has(Part::Sizes) {
            reports.push(of_sizes(tree, ways, options.rounds)?);
        }
    }
    Ok(reports)
}

/// Measures a tenth of the tree, the whole tree, and two copies of it.
fn of_sizes(tree: Tree, ways: &Ways, rounds: u32) -> Result<Report> {
    let work = ways.work.join("sizes");
    fresh(&work)?;
    let trees = [tree.tenth(&work.join("tenth"))?, tree.twice(&work.join("twice"))?];
    let [tenth, twice] = trees;
    let mut sizes = Vec::new();
    for tree in [tenth, tree.into_sized(), twice] {
        let all = measured::all(&tree, ways, rounds)?;
        sizes.push((tree, all));
    }
    report::of_sizes(&sizes, rounds)
}
