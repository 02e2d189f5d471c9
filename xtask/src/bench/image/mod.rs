//! `cargo xtask bench image`: a `node_modules` saved and had again, by larder and by what people use today.
//!
//! | file | holds |
//! |---|---|
//! | `app/` | the packages of the tree, and their lock file |
//! | `tree.rs` | the tree, installed by npm with scripts off, and changes to it |
//! | `ways.rs` | each way to save it and to have it again, as commands |
//!
//! Everything is on one disk, so what is fetched comes from its cache: no network is measured.

mod tree;
mod ways;

use super::report::{Figure, Kind, Report};
use crate::place::Place;
use crate::progress::Bar;
use crate::run::{self, Usage};
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::{Context, Result, ensure};
use larder_samples::{median, quantile, ratio};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::tree::Tree;
use self::ways::{Way, Ways};

/// What `cargo xtask bench image` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each way once in each
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure this directory instead of the node_modules of the committed lock file; it is copied first
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Measure a tree of nine packages and what they need instead: some ten thousand files
    #[arg(long, conflicts_with = "tree")]
    small: bool,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// Files of the tree at least, where npm made it.
const FILES_MIN: u64 = 100_000;
/// Saving again when nothing changed: CPU at most, as a multiple of tar and zstd.
const GOAL_WARM: f64 = 1.0;
/// Unpacking: CPU at most, as a multiple of tar and zstd.
const GOAL_UNPACK: f64 = 1.0 / 1.5;
/// Saving again after five packages changed: new bytes at most, as a share of all.
const GOAL_AGAIN: f64 = 0.05;

/// What a way came to.
struct Measured {
    way: Way,
    samples: Vec<Usage>,
    /// What lies there afterwards, or was new, bytes.
    bytes: Option<u64>,
    /// Programs that use the tree then.
    used: Option<Usage>,
    /// It is not possible here.
    why_not: Option<String>,
}

/// Measures. The tree stays for the next time.
pub(crate) fn image(place: &Place, options: &Options) -> Result<Vec<Report>> {
    setup::for_bench_image(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let tree = Tree::installed(place, options.tree.as_deref(), options.small)?;
    ensure!(
        options.tree.is_some() || options.small || tree.files >= FILES_MIN,
        "{} files only: is the lock file whole?",
        tree.files
    );
    let ways = Ways::begin(larder, place.own("bench-image")?)?;
    let all = ways.all();
    let count = all.len() as u64;
    let bar = Bar::new("image", u64::from(options.rounds) * count);
    let mut measured: Vec<Measured> = all
        .into_iter()
        .map(|way| Measured { way, samples: Vec::new(), bytes: None, used: None, why_not: None })
        .collect();
    for round in 0..options.rounds {
        for (at, one) in measured.iter_mut().enumerate().filter(|(_, one)| one.why_not.is_none()) {
            bar.at(u64::from(round) * count + at as u64);
            match one.run(&tree, &ways) {
                Err(error) if !one.way.is_needed() => one.why_not = Some(format!("{error:#}")),
                done => done?,
            }
        }
    }
    bar.end("image: measured");
    let (measured, left_out): (Vec<_>, Vec<_>) = measured.into_iter().partition(|one| one.why_not.is_none());
    let left_out = left_out.iter().map(|one| (one.way.name, one.why_not.as_deref().unwrap_or_default()));
    let left_out: Vec<_> = left_out.inspect(|(name, why)| println!("image: without `{name}`: {why}")).collect();
    let names: Vec<_> = left_out.iter().map(|(name, _)| *name).collect();
    let report = report(&measured, &names, &tree, options, &ways);
    ways.end();
    Ok(vec![report?])
}

impl Measured {
    fn run(&mut self, tree: &Tree, ways: &Ways) -> Result<()> {
        (self.way.prepare)(ways, tree).with_context(|| format!("before {}", self.way.name))?;
        let mut command = (self.way.command)(ways, tree);
        command.stdout(std::fs::File::create(ways.said_in())?);
        let (status, usage) = run::measured(&mut command)?;
        ensure!(status.success(), "{}: {} ended with {status}", self.way.name, run::shown(&command));
        self.samples.push(usage);
        self.bytes = (self.way.bytes)(ways)?;
        if let Some(place) = (self.way.place)(ways) {
            self.used = Some(tree.used(&place)?);
            (self.way.after)(ways)?;
        }
        Ok(())
    }

    fn median(&self, of: impl Fn(&Usage) -> f64) -> f64 {
        quantile(self.samples.iter().map(of).collect(), 1, 2)
    }

    fn cpu(&self) -> f64 {
        self.median(|usage| usage.cpu.as_secs_f64())
    }
}

fn report(measured: &[Measured], left_out: &[&str], tree: &Tree, options: &Options, ways: &Ways) -> Result<Report> {
    let left_out = match left_out {
        [] => String::new(),
        names => format!("Left out, since it was not possible: {}. ", names.join("; ")),
    };
    let mut report = Report {
        name: "image",
        title: "Images of directories".to_owned(),
        notes: vec![format!(
            "{} files in {} directories, {:.0} MB. Medians of {} rounds, interleaved; the disk's cache is warm, no network. \
             {} {left_out}\
             \"Used\" is `require()` of nine packages in node, directly after.",
            tree.files,
            tree.directories,
            tree.bytes as f64 / 1e6,
            options.rounds,
            ways.notes()
        )],
        table: Table::new(1, &["what", "MB", "wall s", "CPU s", "CPU ÷ tar + zstd", "used, wall s", "used, CPU s"]),
        ..Report::default()
    };
    for one in measured {
        let base = measured.iter().find(|other| other.way.saves == one.way.saves).context("tar is among them")?;
        let (wall, cpu) = (one.median(|usage| usage.wall.as_secs_f64()), one.cpu());
        let megabytes = one.bytes.map_or("–".to_owned(), |bytes| format!("{:.2}", bytes as f64 / 1e6));
        let used =
            |of: fn(&Usage) -> f64| one.used.as_ref().map_or("–".to_owned(), |usage| format!("{:.2}", of(usage)));
        report.table.rows.push(vec![
            one.way.name.to_owned(),
            megabytes,
            format!("{wall:.2}"),
            format!("{cpu:.2}"),
            format!("{:.2}", cpu / base.cpu()),
            used(|usage| usage.wall.as_secs_f64()),
            used(|usage| usage.cpu.as_secs_f64()),
        ]);
        let samples: Vec<_> = one.samples.iter().map(|u| json!([u.wall.as_secs_f64(), u.cpu.as_secs_f64()])).collect();
        report.rows.push(json!({ "way": one.way.name, "bytes": one.bytes, "wall_cpu_s": samples }));
    }
    for (name, under, goal) in [
        ("larder, saved again, nothing changed", "tar | zstd -3", GOAL_WARM),
        ("larder, unpacked", "zstd -d | tar", GOAL_UNPACK),
    ] {
        let find = |name| measured.iter().find(|one| one.way.name == name).context("is among them");
        let (over, under) = (find(name)?, find(under)?);
        let cpu = |one: &Measured| one.samples.iter().map(|usage| usage.cpu.as_secs_f64()).collect::<Vec<_>>();
        let found = ratio(&cpu(over), &cpu(under)).context("both were measured")?;
        let name = format!("{name}: CPU ÷ tar");
        report.figures.push(Figure { name, kind: Kind::Ratio, found, goal: Some(goal) });
    }
    let bytes = |name: &str| measured.iter().find(|one| one.way.name == name).and_then(|one| one.bytes);
    if let (Some(again), Some(all)) = (bytes("larder, saved again, five packages changed"), bytes("larder, saved")) {
        let found = median(&[again as f64 / all as f64]).context("one was measured")?;
        let name = "larder, five packages changed: new ÷ all".to_owned();
        report.figures.push(Figure { name, kind: Kind::Ratio, found, goal: Some(GOAL_AGAIN) });
    }
    Ok(report)
}

/// Bytes of a file, or of all files below a directory.
fn bytes_of(path: &Path) -> Result<u64> {
    let found = run::output(Command::new("du").args(["-sb", "--"]).arg(path))?;
    found.split_whitespace().next().and_then(|number| number.parse().ok()).context("du says how much")
}
