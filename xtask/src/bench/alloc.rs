//! `cargo xtask bench alloc`: larderd taking what the compiles of a build hand over, with every allocator that there
//! is.
//!
//! Each is larderd itself, built with a feature; `benches/fill` hands over. In each round all take their turn, from an
//! empty store.

use super::measure::Series;
use super::report::{Figure, Report, millis};
use super::server::Server;
use crate::binaries::cargo;
use crate::place::{Place, fresh, remove};
use crate::progress::Bar;
use crate::run::{self, Usage};
use crate::setup::STATIC_TARGET;
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::{Context, Result, ensure};
use larder_samples::quantile;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What `cargo xtask bench alloc` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each larderd takes the load once in each
    #[arg(long, default_value_t = 7, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Compiles that hand over
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    compiles: u32,
    /// How many of them at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Only these allocators, beside the one that is installed
    #[arg(long, value_name = "ALLOCATOR", value_parser = BUILDS.map(|build| build.name))]
    only: Vec<String>,
    /// Measure the larderd beside this larder, instead of building one, where it is as it is installed
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

const HEADER: &[&str] = &[
    "allocator",
    "huge pages",
    "CPU ms",
    "CPU ÷ musl",
    "wall ms",
    "wall ÷ musl",
    "peak MB",
    "after MB",
    "in huge pages MB",
    "runs",
];
const GLIBC_TARGET: &str = "x86_64-unknown-linux-gnu";

/// A way to build larderd, and the variable by which its allocator asks for huge pages.
struct Build {
    name: &'static str,
    target: &'static str,
    feature: Option<&'static str>,
    /// What its C code wants of the compiler.
    flags: Option<(&'static str, &'static str)>,
    huge: Option<(&'static str, &'static str)>,
}

const BUILD: Build = Build { name: "musl", target: STATIC_TARGET, feature: None, flags: None, huge: None };

/// The first is what is installed. musl's and hardened_malloc have no word for huge pages.
const BUILDS: [Build; 5] = [
    BUILD,
    Build { name: "glibc", target: GLIBC_TARGET, huge: Some(("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")), ..BUILD },
    Build { name: "mimalloc", feature: Some("mimalloc"), huge: Some(("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1")), ..BUILD },
    Build {
        name: "jemalloc",
        feature: Some("jemalloc"),
        huge: Some(("_RJEM_MALLOC_CONF", "thp:always,metadata_thp:always")),
        ..BUILD
    },
    Build {
        name: "hardened_malloc",
        feature: Some("hardened_malloc"),
        // It is written in C23, in which `alignas` is a word; gcc 12 has it in a header.
        flags: Some(("CFLAGS_x86_64_unknown_linux_musl", "-include stdalign.h")),
        ..BUILD
    },
];

/// One larderd that is measured.
struct Lane {
    name: &'static str,
    program: PathBuf,
    setting: Option<(&'static str, &'static str)>,
    series: Series,
    peak_kb: Vec<u64>,
    after_kb: Vec<u64>,
    huge_kb: Vec<u64>,
}

/// Measures all that can be built.
pub(crate) fn alloc(place: &Place, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let fill = binaries::bench(place, "larder-fill", "fill", None)?;
    let work = place.own("bench-alloc")?;
    fresh(&work)?;
    let mut report = Report {
        name: "alloc",
        title: "larderd's allocator".to_owned(),
        notes: notes(options),
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    let mut lanes = Vec::new();
    let is_wanted = |build: &Build| options.only.is_empty() || options.only.iter().any(|name| name == build.name);
    for (at, build) in BUILDS.iter().enumerate().filter(|(at, build)| *at == 0 || is_wanted(build)) {
        let program = match at {
            0 => Ok(larder.with_file_name("larderd")),
            _ => build.program(place, &work),
        };
        match program {
            Ok(program) => lanes.extend(build.lanes(&program)),
            Err(error) => {
                println!("skipped: {}: {error:#}", build.name);
                report.notes.push(format!("Skipped: {}: {error}.", build.name));
            }
        }
    }
    let bar = Bar::new("alloc", u64::from(options.rounds) * lanes.len() as u64);
    for round in 0..options.rounds {
        for at in 0..lanes.len() {
            lanes[at].run(&fill, &work, options).with_context(|| lanes[at].name)?;
            bar.at(u64::from(round) * lanes.len() as u64 + at as u64 + 1);
        }
    }
    bar.end(&format!("alloc: {} rounds", options.rounds));
    for lane in &lanes {
        report.table.rows.push(lane.row(&lanes[0].series));
        report.rows.push(lane.json());
    }
    report.figures = figures(&lanes);
    remove(&work)?;
    Ok(report)
}

impl Build {
    /// Builds it and puts it aside, since the next build has the same name.
    fn program(&self, place: &Place, work: &Path) -> Result<PathBuf> {
        let mut command = cargo(place);
        command.args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--package",
            "larder-daemon",
            "--target",
            self.target,
        ]);
        command.args(self.feature.map(|feature| ["--features", feature]).into_iter().flatten()).envs(self.flags);
        run::output(&mut command).context("it does not build")?;
        let built = place.target.join(self.target).join("release/larderd");
        let program = work.join(format!("larderd-{}", self.name));
        fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display()))?;
        Ok(program)
    }

    fn lanes(&self, program: &Path) -> Vec<Lane> {
        let lane = |setting| Lane {
            name: self.name,
            program: program.to_owned(),
            setting,
            series: Series::default(),
            peak_kb: Vec::new(),
            after_kb: Vec::new(),
            huge_kb: Vec::new(),
        };
        std::iter::once(lane(None)).chain(self.huge.map(|setting| lane(Some(setting)))).collect()
    }
}

impl Lane {
    /// One load, from an empty store.
    fn run(&mut self, fill: &Path, work: &Path, options: &Options) -> Result<()> {
        let store = work.join("store");
        fresh(&store)?;
        let command = |words: &[&str]| {
            let mut command = Command::new(&self.program);
            command.args(words).env_clear().env("LARDER_DIR", &store).env("HOME", work).envs(self.setting);
            command
        };
        let listens = || run::output(&mut command(&["daemon", "status"])).is_ok();
        let server = Server::start(command(&["serve", "--idle", "600"]), listens)?;
        let before = server.cpu()?;
        let mut load = Command::new(fill);
        load.arg("hand").arg("--store").arg(&store);
        load.args(["--records", &options.compiles.to_string(), "--jobs", &options.jobs.to_string()]);
        let text = run::output(&mut load)?;
        let said: Value = serde_json::from_str(&text).with_context(|| format!("`fill` printed: {text}"))?;
        let wall = said["recorded_s"].as_f64().context("`fill` says no time")?;
        let cpu = server.cpu()?.saturating_sub(before);
        self.peak_kb.push(server.kb("status", "VmHWM")?);
        self.after_kb.push(server.kb("status", "VmRSS")?);
        self.huge_kb.push(server.kb("smaps_rollup", "AnonHugePages")?);
        ensure!(cpu > Duration::ZERO, "larderd did nothing");
        self.series.samples.push(Usage { wall: Duration::from_secs_f64(wall), cpu });
        run::output(&mut command(&["daemon", "stop"])).map(drop)
    }

    fn row(&self, base: &Series) -> Vec<String> {
        let over =
            |of: fn(&Series) -> Duration| format!("{:.3}", of(&self.series).as_secs_f64() / of(base).as_secs_f64());
        let mb = |kb: &[u64]| format!("{:.1}", quantile(kb.to_vec(), 1, 2) as f64 / 1000.0);
        vec![
            self.name.to_owned(),
            if self.setting.is_some() { "asked for" } else { "not asked for" }.to_owned(),
            millis(self.series.cpu_median()),
            over(Series::cpu_median),
            millis(self.series.wall_median()),
            over(Series::wall_median),
            mb(&self.peak_kb),
            mb(&self.after_kb),
            mb(&self.huge_kb),
            self.series.samples.len().to_string(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "allocator": self.name,
            "setting": self.setting.map(|(name, value)| format!("{name}={value}")),
            "peak_kb": self.peak_kb,
            "after_kb": self.after_kb,
            "huge_kb": self.huge_kb,
            "samples": self.series.json(),
        })
    }
}

/// The installed one beside the one that most programs have, and its memory.
fn figures(lanes: &[Lane]) -> Vec<Figure> {
    let [installed, others @ ..] = lanes else { return Vec::new() };
    let glibc = others.iter().find(|lane| lane.name == "glibc" && lane.setting.is_none());
    let ratio = glibc.and_then(|glibc| {
        Figure::ratio("larderd with musl's, CPU ÷ with glibc's", &installed.series.cpu_s(), &glibc.series.cpu_s(), None)
    });
    let peak = Figure::peak("larderd, peak MB", quantile(installed.peak_kb.clone(), 1, 2), None);
    ratio.into_iter().chain([peak]).collect()
}

fn notes(options: &Options) -> Vec<String> {
    vec![
        format!(
            "{} hand-overs, {} at once, each with a set of 230 files and an object of 6 kB to 1.5 MB, from an empty \
             store. CPU is that of all of \
             larderd's threads; wall time until the last was recorded. Medians of interleaved rounds.",
            options.compiles, options.jobs
        ),
        "Each is larderd with nothing but its allocator changed: glibc's in a dynamic program, all others in the \
         static one. after: what is resident once \
         all is recorded. Huge pages are on request here \
         (`/sys/kernel/mm/transparent_hugepage/enabled`), and asked for by the allocator's own variable."
            .to_owned(),
    ]
}
