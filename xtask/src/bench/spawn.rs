//! `cargo xtask bench spawn`: what it costs to start a program from a process that has grown, by every way.
//!
//! The program in `benches/spawn` grows and starts; here is for which sizes, and the table.

use super::floor;
use super::report::{Figure, Report};
use crate::place::Place;
use crate::progress::Bar;
use crate::table::Table;
use crate::{binaries, run, setup};
use anyhow::{Context, Result};
use larder_samples::{median, quantile};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What `cargo xtask bench spawn` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each way is run from the smallest process; from a large one less often
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// Megabytes, and how many times less often ways are run from there.
const SIZES_MB: &[(u64, u32)] = &[(10, 1), (500, 2), (4096, 10)];
/// What must stay free beside, in MB: others use the machine.
const SPARE_MB: u64 = 1024;
/// What `crates/spawn` starts tools by, in each class.
const LARDERS_WAYS: &[&str] = &["larder, inherit", "larder, utility", "larder, background"];
/// What they are compared with: nothing starts a program for less.
const BARE: &str = "vfork, exec";
/// What they may cost more than that, in µs until the child has ended.
const MORE_US_MAX: f64 = 60.0;
const HEADER: &[&str] = &[
    "size MB",
    "huge pages MB",
    "way",
    "call µs",
    "lower quartile",
    "p99",
    "until ended µs",
    "CPU µs",
    "faults after",
    "touching all after ms",
    "runs",
];

/// Measures every size, with and without huge pages.
pub(crate) fn spawn(place: &Place, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let program = binaries::bench(place, "larder-spawn-cost", "spawn-cost", None)?;
    // Without a plan the floor ends at once: the smallest program that there is here.
    let child = floor::program(place)?;
    let mut report = Report {
        name: "spawn",
        title: "Starting a program from a process that has grown".to_owned(),
        notes: notes(),
        table: Table::new(3, HEADER),
        ..Report::default()
    };
    let bar = Bar::new("spawn", SIZES_MB.len() as u64 * 2);
    for &(size_mb, less_often) in SIZES_MB {
        let free_mb = free_mb()?;
        if free_mb < size_mb + SPARE_MB {
            let reason = format!("skipped: {size_mb} MB, of which {free_mb} MB are free, {SPARE_MB} MB to be spared");
            println!("{reason}");
            report.notes.push(reason);
            continue;
        }
        for huge in [false, true] {
            let rounds = options.runs.div_ceil(less_often);
            let text = measured(&program, &child, size_mb, huge, rounds)?;
            text.lines().try_for_each(|line| add(&mut report, line))?;
            bar.at(report.rows.len() as u64 / 7);
        }
    }
    bar.end(&format!("spawn: {} rows", report.rows.len()));
    report.figures = figures(&report.rows);
    over_bare(&mut report);
    Ok(report)
}

/// What larder does ÷ `fork`, which took its turn in the same rounds, from each size.
fn figures(rows: &[Value]) -> Vec<Figure> {
    let cpu = |row: &Value| -> Vec<f64> {
        row["cpu_us"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let figure = |larders: &Value| {
        let same = |row: &&Value| row["size_mb"] == larders["size_mb"] && row["huge"] == larders["huge"];
        let fork = rows.iter().filter(same).find(|row| row["way"] == "fork, exec")?;
        let pages = if larders["huge"] == true { "huge pages" } else { "small pages" };
        let name = format!("{} from {} MB, {pages}, CPU ÷ fork", larders["way"].as_str()?, larders["size_mb"]);
        Figure::ratio(name, &cpu(larders), &cpu(fork), None)
    };
    rows.iter().filter(|row| is_larders(row)).filter_map(figure).collect()
}

fn is_larders(row: &Value) -> bool {
    row["way"].as_str().is_some_and(|way| LARDERS_WAYS.contains(&way))
}

/// Round by round, what larder's ways took more than the bare one, until the child had ended; and a note of the most.
fn over_bare(report: &mut Report) {
    let ended = |row: &Value| -> Vec<f64> {
        row["ended_ns"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let mut all = Vec::new();
    for larders in report.rows.iter().filter(|row| is_larders(row)) {
        let same = |row: &&Value| row["size_mb"] == larders["size_mb"] && row["huge"] == larders["huge"];
        let Some(bare) = report.rows.iter().filter(same).find(|row| row["way"] == BARE) else { continue };
        let more: Vec<f64> =
            ended(larders).iter().zip(ended(bare)).map(|(these, those)| (these - those) / 1000.0).collect();
        let Some(more) = median(&more) else { continue };
        let pages = if larders["huge"] == true { "huge" } else { "small" };
        let way = larders["way"].as_str().unwrap_or("");
        all.push((more.value, format!("{way} from {} MB, {pages} pages: {:.0} µs", larders["size_mb"], more.value)));
    }
    let worst = all.iter().map(|(more, _)| *more).fold(f64::MIN, f64::max);
    if !all.is_empty() {
        let list: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
        report.notes.push(format!(
            "More than `{BARE}` until the child had ended, median of the differences in a round: {}.",
            list.join("; ")
        ));
        let name = format!("the most that a start costs beyond `{BARE}`, µs");
        report.figures.push(Figure::count(name, worst, Some(MORE_US_MAX)));
    }
}

fn measured(program: &Path, child: &Path, size_mb: u64, huge: bool, rounds: u32) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["--size-mb", &size_mb.to_string(), "--rounds", &rounds.to_string(), "--child"]).arg(child);
    if huge {
        command.arg("--huge");
    }
    run::output(&mut command)
}

fn add(report: &mut Report, line: &str) -> Result<()> {
    let mut json: Value = serde_json::from_str(line).with_context(|| format!("the program printed: {line}"))?;
    let numbers = |name: &str| -> Vec<Duration> {
        let list = json[name].as_array().into_iter().flatten();
        list.filter_map(Value::as_u64).map(Duration::from_nanos).collect()
    };
    let number = |name: &str| json[name].as_u64().with_context(|| format!("the program says nothing of {name}"));
    let micros = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e6);
    let (call, ended) = (numbers("call_ns"), numbers("ended_ns"));
    // In µs there, so a thousand times less than ns.
    let cpu = quantile(numbers("cpu_us"), 1, 2) * 1000;
    let faults = quantile(numbers("faults_after"), 1, 2).as_nanos();
    let touch = quantile(numbers("touch_ns"), 1, 2);
    report.table.rows.push(vec![
        number("size_mb")?.to_string(),
        (number("huge_kb")? / 1024).to_string(),
        json["way"].as_str().context("the program names no way")?.to_owned(),
        micros(quantile(call.clone(), 1, 2)),
        micros(quantile(call.clone(), 1, 4)),
        micros(quantile(call.clone(), 99, 100)),
        micros(quantile(ended.clone(), 1, 2)),
        micros(cpu),
        faults.to_string(),
        format!("{:.2}", touch.as_secs_f64() * 1000.0),
        call.len().to_string(),
    ]);
    json["call_ns_median"] = json!(quantile(call, 1, 2).as_nanos() as u64);
    json["ended_ns_median"] = json!(quantile(ended, 1, 2).as_nanos() as u64);
    json["faults_after_median"] = json!(faults as u64);
    report.rows.push(json);
    Ok(())
}

/// What the system says new programs can have without swapping.
fn free_mb() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("cannot see how much memory is free")?;
    free_mb_in(&text).context("/proc/meminfo does not say how much memory is available")
}

fn free_mb_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().split(' ').next()?.parse::<u64>().ok()? / 1024)
}

fn notes() -> Vec<String> {
    vec![
        "Wall time where not CPU; medians, lower quartiles, and what 99 of 100 runs stay below (the slowest, where \
         there are fewer). call: until the parent \
         goes on, which with fork is before the child runs the program, with the others after. until ended: until the \
         child, a \
         static program that does nothing, was waited for. CPU: of parent and child from the call until then."
            .to_owned(),
        "faults after: page faults of the parent while it writes to each of its pages once afterwards, and how long \
         that takes. \
         huge pages: how much of the parent is in them; off by PR_SET_THP_DISABLE, on by MADV_HUGEPAGE."
            .to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_free() {
        assert_eq!(free_mb_in("MemTotal: 9 kB\nMemAvailable:    2097152 kB\n"), Some(2048));
        assert_eq!(free_mb_in("MemTotal: 9 kB\n"), None);
    }
}
