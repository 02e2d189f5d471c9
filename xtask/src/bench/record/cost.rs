//! `cargo xtask bench record`: what recording adds to a build, with and without following its processes.
//!
//! A build of many short processes, plainly and with every compile a warm hit, run by itself and in two kinds of
//! record. The time is that of the command alone: what a record says of it, and for the plain run that of the same
//! command.

use super::report::{Figure, Report, millis};
use crate::launcher::Launcher;
use crate::place::{Place, fresh, remove};
use crate::progress::Bar;
use crate::table::Table;
use crate::{binaries, run, setup};
use anyhow::{Context, Result, ensure};
use larder_samples::{Drawn, ratio};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What `cargo xtask bench record` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each way is run
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// Sources of the build: some hundred processes.
const SOURCES: usize = 60;
const JOBS: &str = "-j2";
const MAKEFILE: &str = "\
OBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))
all: $(OBJECTS)
%.o: %.c
\t$(CC) -O0 -c -o $@ $<
";
/// The three ways: by itself, recorded, recorded and followed. With what each is to cost at most, ÷ the first.
const WAYS: [(&str, Option<&str>, f64); 3] =
    [("plain", None, 1.0), ("recorded", Some("never"), 1.01), ("followed", Some("once"), 1.06)];
const HEADER: &[&str] =
    &["build", "way", "wall ms", "÷ plain", "from", "to", "CPU ms", "÷ plain", "stops", "recorder ms", "runs"];
const SEED: u64 = 10;

/// What one run took.
#[derive(Clone, Copy, Default)]
struct Sample {
    wall: Duration,
    /// The build's, and the recorder's beside it.
    cpu: Duration,
    recorder: Duration,
    stops: u64,
}

struct Bench {
    work: PathBuf,
    larder: PathBuf,
    launcher: Launcher,
}

/// Measures both builds.
pub(crate) fn record(place: &Place, options: &Options) -> Result<Report> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-record")?;
    fresh(&work)?;
    let launcher = Launcher::larder(&larder, &work.join("store"))?;
    let bench = Bench { work, larder, launcher };
    bench.make_sources()?;
    let mut report = Report {
        name: "record",
        title: "What recording adds to a build".to_owned(),
        notes: vec![
            format!(
                "{SOURCES} compiles of some lines by make {JOBS}; the three ways in turn, in an order of their own in each round."
            ),
            "Wall and CPU time of the command, the recorder's own CPU time added; ratios of the same rounds."
                .to_owned(),
        ],
        table: Table::new(2, HEADER),
        ..Report::default()
    };
    for (build, compiler) in [("gcc", "gcc".to_owned()), ("warm hits", bench.launcher.compiler("gcc"))] {
        let samples = bench.samples(build, &compiler, options.runs as usize)?;
        add(&mut report, build, &samples);
    }
    remove(&bench.work)?;
    Ok(report)
}

impl Bench {
    fn make_sources(&self) -> Result<()> {
        let dir = self.work.join("project");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        fs::write(dir.join("Makefile"), MAKEFILE)?;
        for at in 0..SOURCES {
            let text = format!("#include <string.h>\nint f{at}(const char *s) {{ return strlen(s) + {at}; }}\n");
            fs::write(dir.join(format!("f{at}.c")), text)?;
        }
        Ok(())
    }

    /// For each way the samples of all rounds. The first round warms, and is not kept.
    fn samples(&self, build: &str, compiler: &str, rounds: usize) -> Result<[Vec<Sample>; 3]> {
        let (mut all, mut drawn) = ([const { Vec::new() }; 3], Drawn::from(SEED));
        let bar = Bar::new(build, rounds as u64);
        for round in 0..=rounds {
            let mut order = [0, 1, 2];
            drawn.shuffle(&mut order);
            for way in order {
                let sample = self.one(compiler, WAYS[way].1)?;
                if round > 0 {
                    all[way].push(sample);
                }
            }
            bar.at(round as u64);
        }
        bar.end(&format!("{build}: {rounds} rounds"));
        Ok(all)
    }

    fn one(&self, compiler: &str, trace: Option<&str>) -> Result<Sample> {
        let project = self.work.join("project");
        for entry in fs::read_dir(&project)?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "o") {
                fs::remove_file(entry.path())?;
            }
        }
        let make = ["make", "-s", JOBS];
        let compiler = format!("CC={compiler}");
        let records = self.work.join("records");
        let mut command = match trace {
            None => Command::new(make[0]),
            Some(trace) => {
                let mut command = Command::new(&self.larder);
                command.args(["record", "--name", "x", "--trace", trace, "--dir"]).arg(&records);
                command.args(["--", make[0]]);
                command
            }
        };
        command.args(&make[1..]).arg(compiler).current_dir(&project);
        self.launcher.apply(&mut command, &self.work.join("home"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (status, usage) = run::measured(&mut command)?;
        ensure!(status.success(), "{} ended with {status}", run::shown(&command));
        if trace.is_none() {
            return Ok(Sample { wall: usage.wall, cpu: usage.cpu, ..Sample::default() });
        }
        let sample = recorded(&records.join("x/runs/1/run.json"))?;
        remove(&records)?;
        Ok(sample)
    }
}

/// What the record says of its run.
fn recorded(path: &Path) -> Result<Sample> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let run: Value = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let end = &run["end"];
    ensure!(end["not_traced"].is_null(), "processes cannot be followed here: {}", end["not_traced"]);
    let number =
        |value: &Value| value.as_u64().with_context(|| format!("{}: no number where one should be", path.display()));
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
