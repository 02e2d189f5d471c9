//! `cargo xtask bench` without a subcommand: runs every benchmark that guards a goal, one after the
//! other, and writes one report of all of them.

use super::compare::REPORT;
use super::machine;
use super::report::Report;
use super::saved::{Saved, figures_table};
use super::words::{Word, reports};
use crate::place::Place;
use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// The arguments of one benchmark.
struct Typed {
    full: &'static str,
    quick: &'static str,
    /// The minutes that the full benchmark takes on two idle processors if everything is built.
    /// They are printed.
    minutes: u32,
}

/// All benchmarks. The one that takes longest comes last.
const LINES: &[Typed] = &[
    Typed { full: "hit --runs 40", quick: "hit --runs 6", minutes: 2 },
    Typed {
        full: "record --runs 20 --package-runs 1 --sessions 4",
        quick: "record --runs 4 --package-runs 0 --sessions 1",
        minutes: 5,
    },
    Typed { full: "miss --runs 12", quick: "miss --runs 3 --quick", minutes: 5 },
    Typed {
        full: "scale --runs 40 --gigabytes 1,50",
        quick: "scale --sources 12 --runs 6 --records 1000,10000",
        minutes: 8,
    },
    Typed { full: "build --rounds 3 --only bzip2 --only zeromq", quick: "build --rounds 1 --only bzip2", minutes: 8 },
];

/// The arguments after `cargo xtask bench`.
#[derive(clap::Parser)]
#[command(name = "cargo xtask bench", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    word: Word,
}

/// Stands for the path after `--larder` in a report, because a report contains no paths of this
/// machine.
const OTHER_LARDER: &str = " --larder …";

/// Runs all benchmarks, `quick` ones if asked. Writes `target/bench/report.json` and `report.md`
/// anew after each benchmark. If one fails, the others still run, and the result is `false`.
pub(super) fn all(place: &Place, quick: bool, larder: Option<&Path>) -> Result<bool> {
    let other = if larder.is_some() { OTHER_LARDER } else { "" };
    let command = format!("cargo xtask bench{}{other}", if quick { " --quick" } else { "" });
    let mut saved = Saved { command, quick, machine: machine::facts(place), ..Saved::default() };
    let began = Instant::now();
    for (at, typed) in LINES.iter().enumerate() {
        let line = if quick { typed.quick } else { typed.full };
        println!("── {} of {}: cargo xtask bench {line}{}", at + 1, LINES.len(), when(typed, quick, began));
        match one(place, line, larder) {
            Ok(reports) => {
                for report in &reports {
                    report.publish(place)?;
                    saved.parts.push(report.part(&format!("cargo xtask bench {line}{other}"), &saved.machine));
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
    saved.machine["minutes"] = json!((began.elapsed().as_secs_f64() / 6.0).round() / 10.0);
    println!("{}\n", figures_table(&saved.figures()?));
    for path in saved.write(&place.results()?, REPORT)? {
        println!("written: {}", path.display());
    }
    saved.failed.iter().for_each(|why| println!("FAILED: {why}"));
    Ok(saved.failed.is_empty())
}

/// Says how long the benchmark takes, and how long all have taken so far.
fn when(typed: &Typed, quick: bool, began: Instant) -> String {
    let so_far = format!("{} minutes so far", began.elapsed().as_secs() / 60);
    if quick { format!(" ({so_far})") } else { format!(" (some {} minutes; {so_far})", typed.minutes) }
}

fn one(place: &Place, line: &str, larder: Option<&Path>) -> Result<Vec<Report>> {
    let mut words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
    if let Some(larder) = larder {
        words.extend(["--larder".into(), larder.into()]);
    }
    let line = Line::try_parse_from(words).with_context(|| format!("{line} is not a benchmark"))?;
    reports(place, &line.word)?.context("this benchmark writes its report itself")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for &Typed { full, quick, .. } in LINES {
            for line in [full, quick] {
                let words = line.split(' ').chain(["--larder", "x"]);
                assert!(Line::try_parse_from(words).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn all_end_within_forty_minutes() {
        let minutes: u32 = LINES.iter().map(|typed| typed.minutes).sum();
        assert!(minutes <= 40, "{minutes}");
    }
}
