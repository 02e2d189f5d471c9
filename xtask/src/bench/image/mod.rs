//! `cargo xtask bench image`: directories saved and had again, by larder and by what people use today.
//!
//! | file | holds |
//! |---|---|
//! | `app/` | the packages of the trees: npm's with their lock file, Maven's |
//! | `tree.rs` | the trees, installed by npm with scripts off and by Maven, and changes to them |
//! | `ways.rs` | each way to save a tree and to have it again, as commands |
//! | `jobs.rs` | what is done with it then |
//! | `measured.rs` | a way, run |
//! | `report.rs` | tables and figures |
//!
//! Everything is on one disk, so what is fetched comes from its cache. What is called "far" comes from a web server behind
//! a proxy that adds latency.

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
use self::ways::Ways;

/// What `cargo xtask bench image` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each way once in each
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure this only; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Measure this directory instead of the node_modules of the committed lock file; it is copied first
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Measure a tree of nine packages and what they need instead, some ten thousand files, and that only
    #[arg(long, conflicts_with = "tree")]
    small: bool,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A node_modules, by all ways
    Packages,
    /// A Maven repository, by all ways: few large files
    Maven,
    /// The node_modules in three sizes
    Sizes,
}

/// Files of the tree at least, where npm made it.
const FILES_MIN: u64 = 100_000;

impl Options {
    fn has(&self, part: Part) -> bool {
        match &*self.only {
            [] => part == Part::Packages || (!self.small && self.tree.is_none()),
            only => only.contains(&part),
        }
    }
}

/// Measures. The trees stay for the next time.
pub(crate) fn image(place: &Place, options: &Options) -> Result<Vec<Report>> {
    setup::for_bench_image(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let ways = Ways::begin(larder, place.own("bench-image")?)?;
    let reports = reports(place, options, &ways);
    ways.end();
    reports
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
            "{} files only: is the lock file whole?",
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

/// A tenth of the tree, all of it, and two of it.
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
