//! `cargo xtask bench record`: measures what recording adds to a build, with and without following
//! its processes.
//!
//! The builds are one of many short processes, plain and with every compile a warm hit, and
//! libX11's `configure` and `make`. Each runs in three ways: plain, recorded, and recorded and
//! followed. The time is that of the command alone: for recorded runs from the record, for the
//! plain run from the same command.

use super::figure::Figure;
use super::measure::Series;
use super::report::Report;
use super::scene::Scene;
use super::statistics::{quantile, ratio};
use crate::files::{self, fresh, remove};
use crate::launcher::Launcher;
use crate::packages::packages;
use crate::place::Place;
use crate::progress::Bar;
use crate::run::{self, Usage};
use crate::table::{millis, shown};
use crate::{fetch, setup};
use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The options of `cargo xtask bench record`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of runs of the small builds in each way
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The number of runs of libX11's configure and make in each way. 0 leaves libX11 out
    #[arg(long, default_value_t = 3, value_name = "N")]
    package_runs: u32,
}

/// The number of sources of the small build, which starts some hundred processes.
const SOURCES: usize = 60;
const MAKEFILE: &str = "\
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
all: $(OBJECTS)
%.o: %.c
\t$(CC) -O0 -c -o $@ $<
";
const CONFIGURE: &str = "../src/configure --disable-shared --enable-static --disable-specs --without-xmlto --without-fop \
     --without-xsltproc";
/// The three ways, and the upper limit of each for wall time ÷ plain.
const WAYS: [(&str, Option<&str>, f64); 3] =
    [("plain", None, 1.0), ("recorded", Some("never"), 1.01), ("followed", Some("once"), 1.06)];
const SEED: u64 = 10;

/// The measurements of one way.
#[derive(Default)]
struct Measured {
    /// The CPU time is that of the build and of the recorder.
    series: Series,
    recorder: Vec<Duration>,
    stops: u64,
}

/// A build that is measured.
struct Build {
    name: &'static str,
    dir: PathBuf,
    /// A shell command that runs before each run.
    prepare: &'static str,
    command: Vec<String>,
}

/// Measures all builds, the small ones `runs` times in each way.
pub(crate) fn record(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let scene = Scene::begin(place, larder, "record")?;
    let launcher = Launcher::larder(larder, &scene.store("larder"))?;
    let dir = scene.work.join("project");
    make_sources(&dir)?;
    let builds = format!(
        "gcc, warm hits: {SOURCES} small compiles by make -j2. libX11: its configure, and make -j2, with gcc. Each round \
         runs the three ways in a random order."
    );
    let times = "Wall time of the command, and CPU time of the command and the recorder; ratios of the same rounds.";
    let mut report = Report::new("record", "What recording adds to a build", 2, &[&builds, times]);
    let small = |name, compiler: String| Build {
        name,
        dir: dir.clone(),
        prepare: "rm -f *.o",
        command: ["make", "-s", "-j2", &format!("CC={compiler}")].map(str::to_owned).to_vec(),
    };
    let mut builds = vec![
        (small("gcc", "gcc".to_owned()), options.runs),
        (small("warm hits", launcher.compiler("gcc")), options.runs),
    ];
    if options.package_runs > 0 {
        builds.push((libx11(&scene)?, options.package_runs));
    }
    for (build, rounds) in builds {
        let measured = measure(&scene, &launcher, &build, rounds)?;
        add(&mut report, build.name, &measured);
    }
    remove(&scene.work)?;
    Ok(report)
}

fn make_sources(dir: &Path) -> Result<()> {
    files::write(dir.join("Makefile"), MAKEFILE)?;
    for at in 0..SOURCES {
        let text = format!("#include <string.h>\nint f{at}(const char *s) {{ return strlen(s) + {at}; }}\n");
        files::write(dir.join(format!("f{at}.c")), text)?;
    }
    Ok(())
}

/// Fetches the sources of libX11 and copies them into a checkout of their own.
fn libx11(scene: &Scene) -> Result<Build> {
    packages(setup::PACKAGES_FOR_SOURCES)?;
    let dir = scene.work.join("libx11");
    fresh(dir.join("build"))?;
    run::output(Command::new("git").args(["init", "--quiet", "--template="]).arg(&dir))?;
    let sources = fetch::debian(scene.place, "bazel-sources", &["libx11"])?.join("libx11");
    run::output(Command::new("cp").arg("-a").arg(sources).arg(dir.join("src")))?;
    let prefix = dir.join("installed");
    let script =
        format!("cd build && CC=gcc {CONFIGURE} --prefix={} >/dev/null && make -s -j2 >/dev/null", prefix.display());
    let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
    Ok(Build { name: "libX11", dir, prepare: "rm -rf build && mkdir build", command })
}

/// Runs each way in each round. The first round warms up and is dropped.
fn measure(scene: &Scene, launcher: &Launcher, build: &Build, rounds: u32) -> Result<[Measured; 3]> {
    let mut all: [Measured; 3] = Default::default();
    let (mut order, mut drawn) = ([0, 1, 2], Rng::with_seed(SEED));
    let bar = Bar::new(build.name, rounds.into());
    for round in 0..=rounds {
        drawn.shuffle(&mut order);
        for way in order {
            let (usage, recorder, stops) = one(scene, launcher, build, WAYS[way].1)?;
            if round > 0 {
                all[way].series.samples.push(usage);
                all[way].recorder.push(recorder);
                all[way].stops = stops;
            }
        }
        bar.at(round.into());
    }
    bar.end(&format!("{}: {rounds} rounds", build.name));
    Ok(all)
}

/// Builds once. Returns the cost, the CPU time of the recorder, and how often it stopped a process.
fn one(scene: &Scene, launcher: &Launcher, build: &Build, trace: Option<&str>) -> Result<(Usage, Duration, u64)> {
    run::silent(Command::new("sh").args(["-c", build.prepare]).current_dir(&build.dir))?;
    let records = scene.work.join("records");
    let mut command = match trace {
        None => Command::new(&build.command[0]),
        Some(trace) => {
            let mut command = Command::new(&scene.larder);
            command.args(["record", "--name", "x", "--output", "dropped", "--trace", trace, "--", &build.command[0]]);
            command
        }
    };
    launcher.apply(&mut command, &scene.home);
    command.args(&build.command[1..]).env("LARDER_RECORD_DIR", &records).current_dir(&build.dir);
    let usage = run::silent(&mut command)?;
    if trace.is_none() {
        return Ok((usage, Duration::ZERO, 0));
    }
    let recorded = recorded(&records.join("x/runs/1/run.json"))?;
    remove(&records)?;
    Ok(recorded)
}

/// Reads the cost of a run from its record.
fn recorded(path: &Path) -> Result<(Usage, Duration, u64)> {
    let text = files::bytes(path)?;
    let run: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let end = &run["end"];
    ensure!(end["not_traced"].is_null(), "processes cannot be followed here: {}", end["not_traced"]);
    let number = |value: &Value| value.as_u64().with_context(|| format!("{}: a field is not a number", path.display()));
    let recorder = Duration::from_micros(number(&end["recorder_us"])?);
    let used = number(&end["usage"]["user_us"])? + number(&end["usage"]["system_us"])?;
    let wall = Duration::from_nanos(number(&end["wall_ns"])?);
    Ok((Usage { wall, cpu: Duration::from_micros(used) + recorder }, recorder, number(&end["stops"])?))
}

fn add(report: &mut Report, build: &str, all: &[Measured; 3]) {
    let plain = &all[0].series;
    for ((way, trace, goal), Measured { series, recorder, stops }) in WAYS.into_iter().zip(all) {
        let wall = ratio(&series.wall_s(), &plain.wall_s()).filter(|_| trace.is_some());
        let cpu = ratio(&series.cpu_s(), &plain.cpu_s()).filter(|_| trace.is_some());
        let three = |number: Option<f64>| shown(number.map(|number| format!("{number:.3}")));
        report.table.add([
            ("build", build.to_owned()),
            ("way", way.to_owned()),
            ("wall ms", millis(series.wall_median())),
            ("÷ plain", three(wall.map(|wall| wall.value))),
            ("from", three(wall.map(|wall| wall.low))),
            ("to", three(wall.map(|wall| wall.high))),
            ("CPU ms", millis(series.cpu_median())),
            ("CPU ÷ plain", three(cpu.map(|cpu| cpu.value))),
            ("stops", stops.to_string()),
            ("recorder ms", millis(quantile(recorder.clone(), 1, 2))),
            ("runs", series.samples.len().to_string()),
        ]);
        let figure = |found, what, goal| Figure { name: format!("{build}, {way} ÷ plain, {what}"), found, goal };
        report.figures.extend(wall.map(|found| figure(found, "wall", Some(goal))));
        report.figures.extend(cpu.map(|found| figure(found, "CPU", None)));
    }
}
