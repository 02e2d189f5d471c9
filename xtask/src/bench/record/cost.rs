//! Measures what recording adds to a build, with and without following its processes.
//!
//! The builds are one of many short processes, plain and with every compile a warm hit, and
//! libX11's `configure` and `make`. Each runs in three ways: plain, recorded, and recorded and
//! followed. The time is that of the command alone: for recorded runs from the record, for the
//! plain run from the same command.

use super::builds::{Bench, done};
use super::package;
use crate::bench::figure::{Figure, millis};
use crate::bench::report::Report;
use crate::place::remove;
use crate::progress::Bar;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use larder_samples::{Drawn, ratio};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The number of sources of the small build, which starts some hundred processes.
const SOURCES: usize = 60;
const JOBS: &str = "-j2";
const MAKEFILE: &str = "\
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
all: $(OBJECTS)
%.o: %.c
\t$(CC) -O0 -c -o $@ $<
";
/// The three ways, and the upper limit of each for wall time ÷ plain.
const WAYS: [(&str, Option<&str>, f64); 3] =
    [("plain", None, 1.0), ("recorded", Some("never"), 1.01), ("followed", Some("once"), 1.06)];
const HEADER: &[&str] =
    &["build", "way", "wall ms", "÷ plain", "from", "to", "CPU ms", "÷ plain", "stops", "recorder ms", "runs"];
const SEED: u64 = 10;

/// The cost of one run.
#[derive(Clone, Copy, Default)]
struct Sample {
    wall: Duration,
    /// The CPU time of the build and of the recorder.
    cpu: Duration,
    recorder: Duration,
    stops: u64,
}

/// A build that is measured.
struct Build {
    name: &'static str,
    dir: PathBuf,
    /// A shell command that runs before each run.
    prepare: String,
    command: Vec<String>,
}

/// Measures all builds, the small ones `runs` times in each way.
pub(super) fn cost(bench: &Bench, runs: usize, package_runs: usize) -> Result<Report> {
    let dir = bench.work.join("project");
    make_sources(&dir)?;
    let mut report = Report {
        name: "record",
        title: "What recording adds to a build".to_owned(),
        notes: vec![
            format!(
                "gcc, warm hits: {SOURCES} small compiles by make {JOBS}. libX11: its configure, and make {JOBS}, with \
                 gcc. Each round runs the three ways in a random order."
            ),
            "Wall time of the command, and CPU time of the command and the recorder; ratios of the same rounds."
                .to_owned(),
        ],
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    let small = |name, compiler: String| Build {
        name,
        dir: dir.clone(),
        prepare: "rm -f *.o".to_owned(),
        command: ["make", "-s", JOBS, &format!("CC={compiler}")].map(str::to_owned).to_vec(),
    };
    let mut builds =
        vec![(small("gcc", "gcc".to_owned()), runs), (small("warm hits", bench.launcher.compiler("gcc")), runs)];
    if package_runs > 0 {
        let package::Package { dir, prepare, script } = package::libx11(bench.place, &bench.work)?;
        let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
        builds.push((Build { name: "libX11", dir, prepare, command }, package_runs));
    }
    for (build, rounds) in builds {
        let samples = samples(bench, &build, rounds)?;
        add(&mut report, build.name, &samples);
    }
    Ok(report)
}

fn make_sources(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::write(dir.join("Makefile"), MAKEFILE)?;
    for at in 0..SOURCES {
        let text = format!("#include <string.h>\nint f{at}(const char *s) {{ return strlen(s) + {at}; }}\n");
        fs::write(dir.join(format!("f{at}.c")), text)?;
    }
    Ok(())
}

/// Returns the samples of all rounds for each way. The first round warms up and is dropped.
fn samples(bench: &Bench, build: &Build, rounds: usize) -> Result<[Vec<Sample>; 3]> {
    let (mut all, mut drawn) = ([const { Vec::new() }; 3], Drawn::from(SEED));
    let bar = Bar::new(build.name, rounds as u64);
    for round in 0..=rounds {
        let mut order = [0, 1, 2];
        drawn.shuffle(&mut order);
        for way in order {
            let sample = one(bench, build, WAYS[way].1)?;
            if round > 0 {
                all[way].push(sample);
            }
        }
        bar.at(round as u64);
    }
    bar.end(&format!("{}: {rounds} rounds", build.name));
    Ok(all)
}

fn one(bench: &Bench, build: &Build, trace: Option<&str>) -> Result<Sample> {
    done(Command::new("sh").args(["-c", &build.prepare]).current_dir(&build.dir))?;
    let mut command = match trace {
        None => Command::new(&build.command[0]),
        Some(trace) => {
            let mut command = Command::new(&bench.larder);
            command.args(["record", "--name", "x", "--output", "dropped", "--trace", trace, "--", &build.command[0]]);
            command
        }
    };
    bench.silently(command.args(&build.command[1..]), &bench.launcher, &build.dir);
    let usage = done(&mut command)?;
    if trace.is_none() {
        return Ok(Sample { wall: usage.wall, cpu: usage.cpu, ..Sample::default() });
    }
    let sample = recorded(&bench.records().join("x/runs/1/run.json"))?;
    remove(&bench.records())?;
    Ok(sample)
}

/// Reads the cost of a run from its record.
fn recorded(path: &Path) -> Result<Sample> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let run: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let end = &run["end"];
    ensure!(end["not_traced"].is_null(), "processes cannot be followed here: {}", end["not_traced"]);
    let number = |value: &Value| value.as_u64().with_context(|| format!("{}: a field is not a number", path.display()));
    let recorder = Duration::from_micros(number(&end["recorder_us"])?);
    let used = number(&end["usage"]["user_us"])? + number(&end["usage"]["system_us"])?;
    Ok(Sample {
        wall: Duration::from_nanos(number(&end["wall_ns"])?),
        cpu: Duration::from_micros(used) + recorder,
        recorder,
        stops: number(&end["stops"])?,
    })
}

fn add(report: &mut Report, build: &str, samples: &[Vec<Sample>; 3]) {
    let walls = samples.each_ref().map(|all| all.iter().map(|sample| sample.wall.as_secs_f64()).collect::<Vec<_>>());
    let cpus = samples.each_ref().map(|all| all.iter().map(|sample| sample.cpu.as_secs_f64()).collect::<Vec<_>>());
    for (at, (way, trace, goal)) in WAYS.into_iter().enumerate() {
        let middle = |values: &[f64]| Duration::from_secs_f64(larder_samples::quantile(values.to_vec(), 1, 2));
        let recorders: Vec<f64> = samples[at].iter().map(|sample| sample.recorder.as_secs_f64()).collect();
        let wall = ratio(&walls[at], &walls[0]).filter(|_| at > 0);
        let cpu = ratio(&cpus[at], &cpus[0]).filter(|_| at > 0);
        let shown = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.3}"));
        report.table.rows.push(vec![
            build.to_owned(),
            way.to_owned(),
            millis(middle(&walls[at])),
            shown(wall.map(|wall| wall.value)),
            shown(wall.map(|wall| wall.low)),
            shown(wall.map(|wall| wall.high)),
            millis(middle(&cpus[at])),
            shown(cpu.map(|cpu| cpu.value)),
            samples[at].first().map_or_else(String::new, |sample| sample.stops.to_string()),
            millis(middle(&recorders)),
            samples[at].len().to_string(),
        ]);
        if trace.is_some() {
            let name = format!("{build}, {way} ÷ plain, wall");
            report.figures.extend(Figure::ratio(name, &walls[at], &walls[0], Some(goal)));
            let name = format!("{build}, {way} ÷ plain, CPU");
            report.figures.extend(Figure::ratio(name, &cpus[at], &cpus[0], None));
        }
        report.rows.push(json!({ "build": build, "way": way, "wall_s": walls[at], "cpu_s": cpus[at] }));
    }
}
