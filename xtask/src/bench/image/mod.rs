//! `cargo xtask bench image`: a `node_modules` saved and had again, by larder and by what people use today.
//!
//! | file | holds |
//! |---|---|
//! | `app/` | the packages of the tree, and their lock file |
//! | `tree.rs` | the tree, installed by npm with scripts off, and changes to it |
//! | `ways.rs` | each way to save it and to have it again, as commands |
//! | `jobs.rs` | what is done with it then |
//!
//! Everything is on one disk, so what is fetched comes from its cache. What is called "far" comes from a web server behind
//! a proxy that adds latency.

mod jobs;
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
use std::time::{Duration, Instant};

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
/// To have the tree from a remote: seconds at most, whatever its size.
const GOAL_USABLE_S: f64 = 0.5;
/// And to have loaded nine packages then, as a share of the same after tar and zstd.
const GOAL_USED: f64 = 1.0 / 8.0;
/// Reading all of a mounted tree: CPU at most, as a multiple of plain files.
const GOAL_READ: f64 = 2.0;
/// Memory at most while it is saved, MB.
const GOAL_SAVE_MB: f64 = 300.0;
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
    /// What was written to the disk for it, bytes.
    written: Vec<u64>,
    /// The most memory that the process itself had, kB.
    peak_kb: u64,
    /// Programs that use the tree then.
    used: Vec<Usage>,
    /// Each of `jobs::JOBS`, where they are done.
    jobs: Vec<Option<Usage>>,
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
    let mut measured: Vec<Measured> = all.into_iter().map(Measured::nothing).collect();
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
    let reports = report(&measured, &names, &tree, options, &ways).and_then(|report| {
        let jobs = report_of_jobs(&measured)?;
        Ok(vec![report, jobs])
    });
    ways.end();
    reports
}

impl Measured {
    fn nothing(way: Way) -> Measured {
        let (samples, written, used, jobs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Measured { way, samples, bytes: None, written, peak_kb: 0, used, jobs, why_not: None }
    }

    fn run(&mut self, tree: &Tree, ways: &Ways) -> Result<()> {
        (self.way.prepare)(ways, tree).with_context(|| format!("before {}", self.way.name))?;
        let mut command = (self.way.command)(ways, tree);
        command.stdout(std::fs::File::create(ways.said_in())?);
        let before = written_to_disks()?;
        let (status, usage, peak_kb) = watched(&mut command)?;
        ensure!(status.success(), "{}: {} ended with {status}", self.way.name, run::shown(&command));
        self.written.push(written_to_disks()?.saturating_sub(before));
        self.samples.push(usage);
        self.peak_kb = self.peak_kb.max(peak_kb);
        self.bytes = (self.way.bytes)(ways)?;
        if let Some(place) = (self.way.place)(ways) {
            self.used.extend(tree.used(&place)?);
            if self.way.has_jobs() {
                self.jobs = jobs::JOBS.iter().map(|job| job.done(tree, &place)).collect::<Result<_>>()?;
            }
            (self.way.after)(ways)?;
        }
        Ok(())
    }

    /// Seconds until nine packages were loaded, from nothing: of each round.
    fn until_used(&self) -> Vec<f64> {
        let both = self.samples.iter().zip(&self.used);
        both.map(|(had, used)| (had.wall + used.wall).as_secs_f64()).collect()
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
            "{} files in {} directories, {:.0} MB. Medians of {} rounds, interleaved; the disk's cache is warm. \
             far: 20 ms there and back. {} {left_out}\
             \"Used\" is `require()` of nine packages in node, directly after.",
            tree.files,
            tree.directories,
            tree.bytes as f64 / 1e6,
            options.rounds,
            ways.notes()
        )],
        table: Table::new(1, HEADER),
        ..Report::default()
    };
    for one in measured {
        let base = measured.iter().find(|other| other.way.saves == one.way.saves).context("tar is among them")?;
        let (wall, cpu) = (one.median(|usage| usage.wall.as_secs_f64()), one.cpu());
        let megabytes = one.bytes.map_or("–".to_owned(), |bytes| format!("{:.2}", bytes as f64 / 1e6));
        let used = |of: fn(&Usage) -> f64| match one.used.is_empty() {
            true => "–".to_owned(),
            false => format!("{:.2}", quantile(one.used.iter().map(of).collect(), 1, 2)),
        };
        let speed = if wall > 0.0 { tree.bytes as f64 / 1e6 / wall } else { 0.0 };
        let written = quantile(one.written.clone(), 1, 2);
        report.table.rows.push(vec![
            one.way.name.to_owned(),
            megabytes,
            format!("{wall:.2}"),
            format!("{speed:.0}"),
            format!("{cpu:.2}"),
            format!("{:.2}", cpu / base.cpu()),
            format!("{:.0}", written as f64 / 1e6),
            used(|usage| usage.wall.as_secs_f64()),
            used(|usage| usage.cpu.as_secs_f64()),
        ]);
        let samples: Vec<_> = one.samples.iter().map(|u| json!([u.wall.as_secs_f64(), u.cpu.as_secs_f64()])).collect();
        report.rows.push(json!({
            "way": one.way.name, "bytes": one.bytes, "wall_cpu_s": samples, "written_bytes": one.written,
            "until_used_s": one.until_used(), "peak_kb": one.peak_kb,
        }));
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
    let find = |name: &str| measured.iter().find(|one| one.way.name == name);
    if let Some(lazy) = find(LAZY) {
        let usable = median(&lazy.samples.iter().map(|usage| usage.wall.as_secs_f64()).collect::<Vec<_>>());
        let found = usable.context("it was measured")?;
        let name = format!("{LAZY}: usable, s");
        report.figures.push(Figure { name, kind: Kind::Count, found, goal: Some(GOAL_USABLE_S) });
        let tar = find("zstd -d | tar").context("is among them")?;
        let name = format!("{LAZY}, nine packages loaded: wall ÷ tar");
        report.figures.extend(Figure::ratio(name, &lazy.until_used(), &tar.until_used(), Some(GOAL_USED)));
    }
    let saved = find("larder, saved").context("is among them")?;
    report.figures.push(Figure::peak("larder, saved: peak MB", saved.peak_kb, Some(GOAL_SAVE_MB)));
    Ok(report)
}

const HEADER: &[&str] =
    &["what", "MB", "wall s", "MB/s", "CPU s", "CPU ÷ tar + zstd", "written MB", "used, wall s", "used, CPU s"];
const LAZY: &str = "larder, mounted lazily, fetched";

/// What jobs took of the trees that were had by several ways.
fn report_of_jobs(measured: &[Measured]) -> Result<Report> {
    let mut report = Report {
        name: "image-jobs",
        title: "Jobs over a tree that was had".to_owned(),
        notes: vec![
            "Of the last round, one after the other, directly after the tree was there; what a broker does is no child's \
             CPU."
                .to_owned(),
        ],
        table: Table::new(2, &["tree", "job", "wall s", "CPU s", "wall ÷ plain files", "CPU ÷ plain files"]),
        ..Report::default()
    };
    let with_jobs: Vec<&Measured> = measured.iter().filter(|one| !one.jobs.is_empty()).collect();
    let plain = with_jobs.first().context("tar is among them")?;
    for one in &with_jobs {
        for (job, (usage, base)) in jobs::JOBS.iter().zip(one.jobs.iter().zip(&plain.jobs)) {
            let (Some(usage), Some(base)) = (usage, base) else { continue };
            let [wall, cpu] = [usage.wall, usage.cpu].map(|time| time.as_secs_f64());
            let [base_wall, base_cpu] = [base.wall, base.cpu].map(|time| time.as_secs_f64());
            let mut row = vec![one.way.name.to_owned(), job.name.to_owned()];
            row.extend([wall, cpu, wall / base_wall, cpu / base_cpu].map(|number| format!("{number:.2}")));
            report.table.rows.push(row);
            report.rows.push(json!({ "way": one.way.name, "job": job.name, "wall_s": wall, "cpu_s": cpu }));
            if one.way.name == "larder, mounted" && job.name == jobs::READ_ALL {
                let name = "larder, mounted, all read: CPU ÷ plain files";
                report.figures.extend(Figure::ratio(name, &[cpu], &[base_cpu], Some(GOAL_READ)));
            }
        }
    }
    Ok(report)
}

/// What the machine's disks were given so far, bytes, once all of it is there. Disks that are files lie on others.
fn written_to_disks() -> Result<u64> {
    nix::unistd::sync();
    let text = std::fs::read_to_string("/proc/diskstats").context("the kernel does not say what was written")?;
    let disks = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Of a disk, not of its parts; in sectors of 512 bytes whatever the disk has (Documentation/admin-guide/iostats).
    let is_disk = |name: &str| {
        let is_of_file = ["loop", "ram", "zram", "dm-", "md"].iter().any(|kind| name.starts_with(kind));
        !is_of_file && Path::new("/sys/block").join(name).exists()
    };
    let sectors = disks.filter(|words| words.get(2).is_some_and(|name| is_disk(name)));
    Ok(sectors.filter_map(|words| words.get(9)?.parse::<u64>().ok()).sum::<u64>() * 512)
}

/// Run it, and look meanwhile how much memory it had at most itself, in kB: seen up to a few ms before its end.
fn watched(command: &mut Command) -> Result<(std::process::ExitStatus, Usage, u64)> {
    let before = run::cpu_of_children()?;
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", run::shown(command)))?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let text = std::fs::read_to_string(&status_file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak_kb = line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(peak_kb).max(peak_kb);
        std::thread::sleep(LOOK_EVERY);
    };
    let wall = began.elapsed();
    Ok((status, Usage { wall, cpu: run::cpu_of_children()?.saturating_sub(before) }, peak_kb))
}

/// What a time can be longer than it was.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Bytes of a file, or of all files below a directory.
fn bytes_of(path: &Path) -> Result<u64> {
    let found = run::output(Command::new("du").args(["-sb", "--"]).arg(path))?;
    found.split_whitespace().next().and_then(|number| number.parse().ok()).context("du says how much")
}
