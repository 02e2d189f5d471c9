//! `cargo xtask bench` without a subcommand: runs every benchmark that guards a goal, one after the
//! other, and writes one report of all of them.

use super::compare::REPORT;
use super::report::{self, Part};
use super::words::{Word, reports};
use crate::place::Place;
use anyhow::{Context, Result};
use clap::Parser;
use std::path::Path;

/// The arguments of each benchmark, in full and with `--quick`. The one that takes longest comes
/// last.
const LINES: &[[&str; 2]] = &[
    ["hit --runs 40", "hit --runs 6"],
    ["record --runs 20 --package-runs 1", "record --runs 4 --package-runs 0"],
    ["miss --runs 12", "miss --runs 3 --quick"],
    ["build --rounds 3 --only bzip2 --only zeromq", "build --rounds 1 --only bzip2"],
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

/// Runs all benchmarks, `quick` ones if asked, with a `larder` that was built or given. Writes `target/bench/report.md` anew after each
/// benchmark. If one fails, the others still run, and the result is `false`.
pub(super) fn all(place: &Place, larder: &Path, quick: bool, is_given: bool) -> Result<bool> {
    let other = if is_given { OTHER_LARDER } else { "" };
    let command = format!("cargo xtask bench{}{other}", if quick { " --quick" } else { "" });
    let (mut parts, mut failed): (Vec<Part>, Vec<String>) = (Vec::new(), Vec::new());
    for (at, line) in LINES.iter().enumerate() {
        let line = line[usize::from(quick)];
        println!("── {} of {}: cargo xtask bench {line}", at + 1, LINES.len());
        match parsed(line).and_then(|line| reports(place, larder, &line.word)) {
            Ok(reports) => {
                for report in reports {
                    report.show();
                    parts.push(Part::ended(&format!("cargo xtask bench {line}{other}"), report));
                }
            }
            Err(error) => {
                eprintln!("xtask: {line}: {error:#}");
                failed.push(format!("{line}: {error:#}"));
            }
        }
        report::write(place, REPORT, &command, &parts, &failed)?;
        println!();
    }
    println!("{}\n", report::figures_table(&parts));
    failed.iter().for_each(|why| println!("FAILED: {why}"));
    Ok(failed.is_empty())
}

fn parsed(line: &str) -> Result<Line> {
    Line::try_parse_from(line.split(' ')).with_context(|| format!("{line} is not a benchmark"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for line in LINES.iter().flatten() {
            assert!(parsed(line).is_ok(), "{line}");
        }
    }
}
