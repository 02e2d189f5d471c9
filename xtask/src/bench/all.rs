//! `cargo xtask bench` without a word: every benchmark that says how larder stands, one after the other, and one report
//! of all.

use super::compare::REPORT;
use super::report::Report;
use super::saved::{Saved, figures_table};
use super::{Word, machine};
use crate::place::Place;
use anyhow::{Context, Result};
use clap::Parser;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// What is typed for each, and for a quick one; what takes longest comes last. `--larder` is added where it is
/// understood.
const LINES: &[(&str, &str, bool)] = &[
    ("spawn --runs 60", "spawn --runs 20", false),
    ("alloc", "alloc --rounds 2", true),
    ("copy --runs 15", "copy --runs 3", false),
    ("hit --runs 40", "hit --runs 6", true),
    (
        "record --runs 20 --package-runs 2 --sessions 10 --only cost --only verdicts",
        "record --runs 4 --package-runs 0 --sessions 1 --only cost --only verdicts",
        true,
    ),
    ("miss --runs 12", "miss --runs 3 --quick", true),
    ("scale --runs 40", "scale --sources 12 --runs 6 --records 1000,10000", true),
    ("build --only bzip2 --only zeromq", "build --rounds 1 --only bzip2", true),
];

/// A line as it is typed behind `cargo xtask bench`.
#[derive(clap::Parser)]
#[command(name = "cargo xtask bench", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    word: Word,
}

/// How all are run.
pub(super) struct How<'a> {
    pub(super) quick: bool,
    /// What was measured of the same larder is not measured again.
    pub(super) resume: bool,
    pub(super) larder: Option<&'a Path>,
}

/// Runs all of them, and writes `target/bench/report.json` and `report.md`, after each of them anew. `false` where one
/// failed: the others are measured nevertheless.
pub(super) fn all(place: &Place, how: &How) -> Result<bool> {
    let facts = machine::facts(place);
    let before = if how.resume { kept(place, how)? } else { Vec::new() };
    let mut saved = Saved { command: command(how), quick: how.quick, machine: facts, ..Saved::default() };
    let began = Instant::now();
    for &(full, short, takes_larder) in LINES {
        let line = if how.quick { short } else { full };
        let command = format!("cargo xtask bench {line}");
        println!("── {command}");
        let known: Vec<Value> = before.iter().filter(|part| is_of(part, line)).cloned().collect();
        if let Some(typed) = known.first().and_then(|part| part["command"].as_str()) {
            println!("measured already by {typed}\n");
            saved.parts.extend(known);
            continue;
        }
        match one(place, line, how.larder.filter(|_| takes_larder)) {
            Ok(reports) => {
                for report in &reports {
                    report.publish(place)?;
                    saved.parts.push(report.part(&command, &saved.machine));
                }
            }
            Err(error) => {
                eprintln!("xtask: {line}: {error:#}");
                saved.failed.push(format!("{line}: {error:#}"));
            }
        }
        saved.write(&place.results()?, REPORT)?;
        println!();
    }
    // Of what was measured before nobody knows how long it took.
    if before.is_empty() {
        saved.machine["minutes"] = json!((began.elapsed().as_secs_f64() / 6.0).round() / 10.0);
    }
    println!("{}\n", figures_table(&saved.figures()?));
    for path in saved.write(&place.results()?, REPORT)? {
        println!("written: {}", path.display());
    }
    saved.failed.iter().for_each(|why| println!("FAILED: {why}"));
    Ok(saved.failed.is_empty())
}

/// What was measured of this larder, by a report of all or by a benchmark alone, whatever was typed; of each the
/// latest.
fn kept(place: &Place, how: &How) -> Result<Vec<Value>> {
    let mut files = Vec::new();
    for entry in place.results()?.read_dir()? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|end| end == "json") {
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    files.sort();
    let mut parts: Vec<Value> = Vec::new();
    // What is no report of ours is of no use.
    for saved in files.iter().rev().filter_map(|(_, path)| Saved::read(path).ok()) {
        let is_same = |part: &Value| {
            let commit = part["commit"].as_str().or(saved.machine["commit"].as_str());
            saved.quick == how.quick && commit.is_some_and(|commit| machine::measures_the_same(place, commit))
        };
        for part in saved.parts.iter().filter(|part| is_same(part)) {
            if parts.iter().all(|known| known["bench"] != part["bench"]) {
                let mut part = part.clone();
                for (fact, of_report) in
                    [("command", json!(saved.command)), ("commit", saved.machine["commit"].clone())]
                {
                    if part[fact].is_null() {
                        part[fact] = of_report;
                    }
                }
                parts.push(part);
            }
        }
    }
    Ok(parts)
}

/// Whether a part is of the benchmark that a line begins with: its report has that name, or one that begins so.
fn is_of(part: &Value, line: &str) -> bool {
    let word = line.split(' ').next().unwrap_or_default();
    part["bench"].as_str().is_some_and(|bench| bench.split('-').next() == Some(word))
}

fn one(place: &Place, line: &str, larder: Option<&Path>) -> Result<Vec<Report>> {
    let mut words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
    if let Some(larder) = larder {
        words.extend(["--larder".into(), larder.into()]);
    }
    let line = Line::try_parse_from(words).with_context(|| format!("{line} is no benchmark"))?;
    super::reports(place, &line.word)?.with_context(|| "it writes its report itself".to_owned())
}

fn command(how: &How) -> String {
    let quick = if how.quick { " --quick" } else { "" };
    let larder = if how.larder.is_some() { " --larder …" } else { "" };
    format!("cargo xtask bench{quick}{larder}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for &(full, quick, takes_larder) in LINES {
            for line in [full, quick] {
                let mut words: Vec<&str> = line.split(' ').collect();
                if takes_larder {
                    words.extend(["--larder", "x"]);
                }
                assert!(Line::try_parse_from(words).is_ok(), "{line}");
            }
        }
    }
}
