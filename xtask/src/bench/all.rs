//! `cargo xtask bench` without a word: every benchmark that says how larder stands, one after the other, and one report of all.

use super::compare::REPORT;
use super::report::Report;
use super::saved::{Saved, figures_table};
use super::{Word, machine};
use crate::place::Place;
use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// What is typed for each, and for a quick one. `--larder` is added where it is understood.
const LINES: &[(&str, &str, bool)] = &[
    ("hit", "hit --runs 6", true),
    ("miss", "miss --runs 3 --quick", true),
    ("build", "build --rounds 1 --only bzip2", true),
    ("scale", "scale --sources 12 --runs 6 --records 1000,10000", true),
    ("copy", "copy --runs 3", false),
    ("spawn", "spawn --runs 20", false),
    ("alloc", "alloc --rounds 2", true),
];

/// A line as it is typed behind `cargo xtask bench`.
#[derive(clap::Parser)]
#[command(name = "cargo xtask bench", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    word: Word,
}

/// Runs all of them, and writes `target/bench/report.json` and `report.md`. `false` where one failed: the others are measured
/// nevertheless.
pub(super) fn all(place: &Place, quick: bool, larder: Option<&Path>) -> Result<bool> {
    let mut saved =
        Saved { command: command(quick, larder), quick, machine: machine::facts(place), ..Saved::default() };
    let load = |saved: &mut Saved, name: &str| saved.machine[name] = json!(machine::load());
    load(&mut saved, "load_before");
    let began = Instant::now();
    for &(full, short, takes_larder) in LINES {
        let line = if quick { short } else { full };
        let larder = larder.filter(|_| takes_larder);
        println!("── cargo xtask bench {line}");
        match one(place, line, larder) {
            Ok(reports) => {
                for report in &reports {
                    report.publish(place)?;
                    saved.parts.push(report.json());
                }
            }
            Err(error) => {
                eprintln!("xtask: {line}: {error:#}");
                saved.failed.push(format!("{line}: {error:#}"));
            }
        }
        println!();
    }
    if let Some(facts) = saved.machine.as_object_mut() {
        facts.remove("load");
    }
    load(&mut saved, "load_after");
    saved.machine["minutes"] = json!((began.elapsed().as_secs_f64() / 6.0).round() / 10.0);
    println!("{}\n", figures_table(&saved.figures()?));
    for path in saved.write(&place.results()?, REPORT)? {
        println!("written: {}", path.display());
    }
    saved.failed.iter().for_each(|why| println!("FAILED: {why}"));
    Ok(saved.failed.is_empty())
}

fn one(place: &Place, line: &str, larder: Option<&Path>) -> Result<Vec<Report>> {
    let mut words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
    if let Some(larder) = larder {
        words.extend(["--larder".into(), larder.into()]);
    }
    let line = Line::try_parse_from(words).with_context(|| format!("{line} is no benchmark"))?;
    super::reports(place, &line.word)?.with_context(|| "it writes its report itself".to_owned())
}

fn command(quick: bool, larder: Option<&Path>) -> String {
    let quick = if quick { " --quick" } else { "" };
    let larder = if larder.is_some() { " --larder …" } else { "" };
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
