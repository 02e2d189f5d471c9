//! `cargo xtask bench image`: measures saving and restoring directories, by larder and by tar and
//! zstd.
//!
//! | file | holds |
//! |---|---|
//! | `package.json` | the packages of the tree |
//! | `tree.rs` | the trees, installed by npm without scripts, and changes to them |
//! | `ways.rs` | each way to save and to restore a tree, as commands |
//! | `measured.rs` | runs a way |
//!
//! All files are on one disk, so fetched data comes from the page cache. "Far" means a web server
//! behind a proxy that adds latency.

mod measured;
mod tree;
mod ways;

use super::figure::Figure;
use super::report::Report;
use crate::files::fresh;
use crate::packages::packages;
use crate::place::Place;
use crate::setup;
use crate::table::{NONE, over, seconds, shown};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

use self::measured::{All, Measured};
use self::tree::Tree;
use self::ways::{AGAIN, FIVE_CHANGED, LAZY, SAVED, TAR, UNPACKED, UNTAR, Ways};

/// The options of `cargo xtask bench image`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds. Each way runs once per round
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure only a tree of nine packages and their dependencies, about ten thousand files
    #[arg(long)]
    small: bool,
    /// The round-trip time to the far remote, in milliseconds
    #[arg(long, default_value_t = ROUND_TRIP_MS, value_name = "MS")]
    latency: u64,
}

const ROUND_TRIP_MS: u64 = 20;

/// The number of files that the whole tree must have.
const FILES_MIN: u64 = 100_000;

/// The upper limit for the wall time until a tree from a remote can be used, in seconds, for any
/// size.
const GOAL_USABLE_S: f64 = 0.5;
/// The upper limit for the CPU time of the same, in seconds.
const GOAL_USABLE_CPU_S: f64 = 0.1;
/// The upper limit for the time until nine packages were loaded from it, as a share of the time
/// with tar and zstd.
const GOAL_LOADED: f64 = 1.0 / 8.0;
/// The upper limit for the memory of saving, in MB.
const GOAL_SAVE_MB: f64 = 300.0;
/// The upper limit for the CPU time of saving again without changes ÷ tar and zstd.
const GOAL_WARM: f64 = 1.0;
/// The upper limit for the CPU time of unpacking ÷ tar and zstd.
const GOAL_UNPACK: f64 = 1.0 / 1.5;
/// The upper limit for the new bytes after five packages changed, as a share of all bytes.
const GOAL_AGAIN: f64 = 0.05;
/// The upper limit for the wall time of twenty times as many files from a remote ÷ the smaller
/// tree.
const GOAL_TWENTYFOLD: f64 = 2.0;

/// Measures. The trees are kept for the next run.
pub(crate) fn image(place: &Place, larder: &Path, options: &Options) -> Result<Vec<Report>> {
    with_ways(place, larder, options.latency, |ways| {
        let tree = Tree::installed(place, options.small)?;
        ensure!(options.small || tree.files >= FILES_MIN, "only {} files: is a package missing?", tree.files);
        let all = measured::all(&tree, ways, ways.all(&tree), options.rounds)?;
        let mut reports = vec![of_ways(&tree, &all, options)?];
        if !options.small {
            reports.push(of_sizes(tree, ways, options.rounds)?);
        }
        Ok(reports)
    })
}

/// The wall times until a `node_modules` can be used.
pub(super) struct Usable {
    pub(super) files: u64,
    pub(super) untarred: Duration,
    pub(super) unpacked: Duration,
    /// `None` if this machine cannot mount it.
    pub(super) mounted: Option<Duration>,
}

/// Measures only these ways to get the tree.
pub(super) fn usable(place: &Place, larder: &Path, rounds: u32) -> Result<Usable> {
    with_ways(place, larder, ROUND_TRIP_MS, |ways| {
        let mut tree = Tree::installed(place, false)?;
        let mut chosen = ways.all(&tree);
        chosen.retain(|way| [TAR, SAVED, UNTAR, UNPACKED, LAZY].contains(&way.name));
        // Nothing is loaded from a tree of this kind.
        tree.is_sized = true;
        let all = measured::all(&tree, ways, chosen, rounds)?;
        Ok(Usable {
            files: tree.files,
            untarred: all.needed(UNTAR)?.series.wall_median(),
            unpacked: all.needed(UNPACKED)?.series.wall_median(),
            mounted: all.find(LAZY).map(|one| one.series.wall_median()),
        })
    })
}

fn with_ways<T>(
    place: &Place,
    larder: &Path,
    round_trip_ms: u64,
    measure: impl FnOnce(&Ways) -> Result<T>,
) -> Result<T> {
    packages(setup::PACKAGES_FOR_IMAGES)?;
    let ways = Ways::begin(larder.to_owned(), place.own("bench-image")?, Duration::from_millis(round_trip_ms))?;
    let measured = measure(&ways);
    ways.end();
    measured
}

/// Returns the report of all ways to save and restore a tree.
fn of_ways(tree: &Tree, all: &All, options: &Options) -> Result<Report> {
    let left_out = match &*all.left_out {
        [] => String::new(),
        names => format!("Left out, because it failed: {}. ", names.join("; ")),
    };
    let note = format!(
        "{}. Medians of {} rounds, interleaved; the page cache is warm. far: {} ms round trip, 200 MB/s per \
         connection. {left_out}\"Loaded\" is `require()` of nine packages in node directly afterwards.",
        tree.shown(),
        options.rounds,
        options.latency
    );
    let mut report = Report::new("image", "Images of directories", 1, &[&note]);
    for one in &all.measured {
        let base = &all.needed(if one.way.saves { TAR } else { UNTAR })?.series;
        let loading = |time: fn(&Measured) -> Duration| match one.loading.samples.is_empty() {
            true => NONE.to_owned(),
            false => seconds(time(one)),
        };
        report.table.add([
            ("what", one.way.name.to_owned()),
            ("MB", shown(one.bytes.map(|bytes| format!("{:.2}", bytes as f64 / 1e6)))),
            ("wall s", seconds(one.series.wall_median())),
            ("CPU s", seconds(one.series.cpu_median())),
            ("CPU ÷ tar + zstd", over(one.series.cpu_median(), base.cpu_median())),
            ("loaded, wall s", loading(|one| one.loading.wall_median())),
            ("loaded, CPU s", loading(|one| one.loading.cpu_median())),
        ]);
    }
    report.figures = figures(all)?;
    Ok(report)
}

/// Returns the figures that are compared between reports.
fn figures(all: &All) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (these, those, most) in [(AGAIN, TAR, GOAL_WARM), (UNPACKED, UNTAR, GOAL_UNPACK)] {
        figures.extend(cpu_over(&format!("{these}: CPU ÷ tar"), all.needed(these)?, all.needed(those)?, most));
    }
    if let (Some(changed), Some(whole)) = (all.needed(FIVE_CHANGED)?.bytes, all.needed(SAVED)?.bytes) {
        let name = "larder, five packages changed: new ÷ all";
        figures.push(Figure::count(name, changed as f64 / whole as f64, Some(GOAL_AGAIN)));
    }
    if let Some(lazy) = all.find(LAZY) {
        figures.extend(usable_figures(lazy, LAZY));
        let name = format!("{LAZY}, nine packages loaded: wall ÷ tar");
        let tar = all.needed(UNTAR)?.until_loaded();
        figures.extend(Figure::ratio(name, &lazy.until_loaded(), &tar, Some(GOAL_LOADED)));
    }
    figures.push(Figure::peak("larder, saved: peak MB", all.needed(SAVED)?.peak_kb, Some(GOAL_SAVE_MB)));
    Ok(figures)
}

fn cpu_over(name: &str, these: &Measured, those: &Measured, goal: f64) -> Option<Figure> {
    Figure::ratio(name, &these.series.cpu_s(), &those.series.cpu_s(), Some(goal))
}

/// Returns the figures of the time until a tree from a remote can be used.
fn usable_figures(lazy: &Measured, name: &str) -> impl Iterator<Item = Figure> {
    let wall = Figure::median(format!("{name}: usable, s"), &lazy.series.wall_s(), Some(GOAL_USABLE_S));
    let cpu = Figure::median(format!("{name}: usable, CPU s"), &lazy.series.cpu_s(), Some(GOAL_USABLE_CPU_S));
    wall.into_iter().chain(cpu)
}

/// Measures a tenth of the tree, the whole tree, and two copies of it.
fn of_sizes(tree: Tree, ways: &Ways, rounds: u32) -> Result<Report> {
    let work = ways.work.join("sizes");
    fresh(&work)?;
    let (tenth, twice) = (tree.tenth(&work.join("tenth"))?, tree.twice(&work.join("twice"))?);
    let note = format!(
        "Packages of the tree, all of it, and two copies of it. Medians of {rounds} rounds; the page cache is warm."
    );
    let mut report = Report::new("image-sizes", "Images of trees of several sizes", 2, &[&note]);
    let mut sizes = Vec::new();
    for tree in [tenth, Tree { is_sized: true, ..tree }, twice] {
        let all = measured::all(&tree, ways, ways.all(&tree), rounds)?;
        for one in &all.measured {
            let base = &all.needed(if one.way.saves { TAR } else { UNTAR })?.series;
            report.table.add([
                ("files", tree.files.to_string()),
                ("what", one.way.name.to_owned()),
                ("wall s", format!("{:.3}", one.series.wall_median().as_secs_f64())),
                ("CPU s", format!("{:.3}", one.series.cpu_median().as_secs_f64())),
                ("CPU ÷ tar + zstd", over(one.series.cpu_median(), base.cpu_median())),
                ("peak MB", format!("{:.0}", one.peak_kb as f64 / 1e3)),
            ]);
        }
        sizes.push((tree.files, all));
    }
    let ((few, of_few), (many, of_many)) = sizes.first().zip(sizes.last()).context("there are several")?;
    if let (Some(few_lazy), Some(many_lazy)) = (of_few.find(LAZY), of_many.find(LAZY)) {
        report.figures.extend(usable_figures(many_lazy, &format!("{LAZY}, {many} files")));
        let name = format!("{LAZY}: wall, {many} ÷ {few} files");
        let (these, those) = (many_lazy.series.wall_s(), few_lazy.series.wall_s());
        report.figures.extend(Figure::ratio(name, &these, &those, Some(GOAL_TWENTYFOLD)));
    }
    let peak = of_many.needed(SAVED)?.peak_kb;
    report.figures.push(Figure::peak(format!("larder, {many} files saved: peak MB"), peak, Some(GOAL_SAVE_MB)));
    let (again, tar) = (of_many.needed(AGAIN)?, of_many.needed(TAR)?);
    report.figures.extend(cpu_over(&format!("{AGAIN}, {many} files: CPU ÷ tar"), again, tar, GOAL_WARM));
    Ok(report)
}
