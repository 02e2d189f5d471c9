//! `cargo xtask bench` without a word: every benchmark that says how larder stands, one after the other, and one report
//! of all.

use super::compare::REPORT;
use super::report::Report;
use super::saved::{Saved, figures_table};
use super::{Word, machine};
use crate::place::Place;
use anyhow::{Context, Result};
use clap::{ArgMatches, CommandFactory, Parser};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// One benchmark as it is typed.
struct Typed {
    full: &'static str,
    quick: &'static str,
    /// `--larder` is understood, and added where one is given.
    takes_larder: bool,
    /// How long the full one takes on two processors with nothing else to do, once all is built: it is printed.
    minutes: u32,
}

/// All of them; what takes longest comes last.
const LINES: &[Typed] = &[
    typed("spawn --runs 60", "spawn --runs 20", false, 2),
    // The others are built in a quarter of an hour, and what larderd has is not chosen anew each time.
    typed("alloc --only glibc", "alloc --rounds 2 --only musl", true, 7),
    typed("copy --runs 15", "copy --runs 3", false, 3),
    typed("hit --runs 40", "hit --runs 6", true, 2),
    typed(
        "record --runs 20 --package-runs 1 --sessions 4 --only cost --only verdicts",
        "record --runs 4 --package-runs 0 --sessions 1 --only cost --only verdicts",
        true,
        5,
    ),
    typed("miss --runs 12", "miss --runs 3 --quick", true, 5),
    typed("scale --runs 40 --gigabytes 1,50", "scale --sources 12 --runs 6 --records 1000,10000", true, 8),
    typed("build --rounds 3 --only bzip2 --only zeromq", "build --rounds 1 --only bzip2", true, 8),
];

/// Options that say how often: a report with more of it serves as well. Without `--`, and with `_`.
const COUNTS: &[&str] = &["runs", "rounds", "sessions", "package_runs", "compiles"];

const fn typed(full: &'static str, quick: &'static str, takes_larder: bool, minutes: u32) -> Typed {
    Typed { full, quick, takes_larder, minutes }
}

/// A line as it is typed behind `cargo xtask bench`.
#[derive(clap::Parser)]
#[command(name = "cargo xtask bench", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    word: Word,
}

/// What is shown of a larder that was named.
const OTHER_LARDER: &str = " --larder …";

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
    let (began, mut is_whole) = (Instant::now(), true);
    for (at, typed) in LINES.iter().enumerate() {
        let line = if how.quick { typed.quick } else { typed.full };
        println!("── {} of {}: cargo xtask bench {line}{}", at + 1, LINES.len(), when(typed, how, began));
        let known = latest(&before, line);
        if let Some(typed) = known.first().and_then(|part| part["command"].as_str()) {
            println!("measured already by {typed}\n");
            is_whole = false;
            saved.parts.extend(known);
            continue;
        }
        let larder = how.larder.filter(|_| typed.takes_larder);
        match one(place, line, larder) {
            Ok(reports) => {
                let command = format!("cargo xtask bench {line}{}", if larder.is_some() { OTHER_LARDER } else { "" });
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
    if is_whole {
        saved.machine["minutes"] = json!((began.elapsed().as_secs_f64() / 6.0).round() / 10.0);
    }
    println!("{}\n", figures_table(&saved.figures()?));
    for path in saved.write(&place.results()?, REPORT)? {
        println!("written: {}", path.display());
    }
    saved.failed.iter().for_each(|why| println!("FAILED: {why}"));
    Ok(saved.failed.is_empty())
}

/// How long it takes, and how long all took so far.
fn when(typed: &Typed, how: &How, began: Instant) -> String {
    let so_far = format!("{} minutes so far", began.elapsed().as_secs() / 60);
    if how.quick { format!(" ({so_far})") } else { format!(" (some {} minutes; {so_far})", typed.minutes) }
}

/// What was measured of this larder, by a report of all or by a benchmark alone; the latest first.
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
            let mut part = part.clone();
            for (fact, of_report) in [("command", json!(saved.command)), ("commit", saved.machine["commit"].clone())] {
                if part[fact].is_null() {
                    part[fact] = of_report;
                }
            }
            parts.push(part);
        }
    }
    Ok(parts)
}

/// Of these, the latest first, the reports that a line makes, where it or one that measures as much made them.
fn latest(parts: &[Value], line: &str) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    for part in parts.iter().filter(|part| part["command"].as_str().is_some_and(|command| covers(command, line))) {
        // All are of one run, so that they fit together.
        let is_one_run = found.first().is_none_or(|first| first["command"] == part["command"]);
        if is_one_run && found.iter().all(|known| known["bench"] != part["bench"]) {
            found.push(part.clone());
        }
    }
    found.sort_by_key(|part| part["bench"].as_str().map(str::to_owned));
    found
}

/// Whether what was typed measures all that a line does, and at least as often. A larder that was named may have been
/// another one.
fn covers(typed: &str, line: &str) -> bool {
    let Some(typed) = typed.strip_prefix("cargo xtask bench ") else { return false };
    let (Some((word, typed)), Some((wanted_word, wanted))) = (matched(typed), matched(line)) else { return false };
    let values = |matches: &ArgMatches, name: &str| -> Vec<String> {
        let values = matches.try_get_raw(name).ok().flatten().into_iter().flatten();
        let mut values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        values.sort();
        values
    };
    let is_covered = |name: &str| {
        let (typed, wanted) = (values(&typed, name), values(&wanted, name));
        let number = |values: &[String]| values.first().and_then(|value| value.parse::<u64>().ok());
        if COUNTS.contains(&name) { number(&typed) >= number(&wanted) } else { typed == wanted }
    };
    let all = Line::command();
    let Some(options) = all.find_subcommand(&word).filter(|_| word == wanted_word) else { return false };
    options.get_arguments().all(|option| is_covered(option.get_id().as_str()))
}

/// A line's word, and its options with what they are where they were not typed.
fn matched(line: &str) -> Option<(String, ArgMatches)> {
    Line::command().try_get_matches_from(line.split(' ')).ok()?.remove_subcommand()
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
    let larder = if how.larder.is_some() { OTHER_LARDER } else { "" };
    format!("cargo xtask bench{quick}{larder}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for &Typed { full, quick, takes_larder, .. } in LINES {
            for line in [full, quick] {
                let mut words: Vec<&str> = line.split(' ').collect();
                if takes_larder {
                    words.extend(["--larder", "x"]);
                }
                assert!(Line::try_parse_from(words).is_ok(), "{line}");
                assert!(covers(&format!("cargo xtask bench {line}"), line), "{line}");
            }
        }
    }

    #[test]
    fn all_end_within_forty_minutes() {
        let minutes: u32 = LINES.iter().map(|typed| typed.minutes).sum();
        assert!(minutes <= 40, "{minutes}");
    }

    #[test]
    fn less_is_not_kept_for_more() {
        let check = |typed: &str, line: &str, expect: bool| {
            assert_eq!(covers(&format!("cargo xtask bench {typed}"), line), expect, "{typed} for {line}");
        };
        check("hit --runs 40", "hit --runs 40", true);
        check("hit --runs 100", "hit --runs 40", true);
        check("hit", "hit --runs 40", true);
        check("hit --runs 6", "hit --runs 40", false);
        check("hit --runs 40 --larder …", "hit --runs 40", false);
        check("miss --runs 12", "hit --runs 12", false);
        check("miss --runs 12 --quick", "miss --runs 12", false);
        check("scale --runs 40 --only jobs", "scale --runs 40", false);
        check("scale --runs 40 --sources 20", "scale --runs 40", false);
        check("scale --rounds 1 --runs 40", "scale --runs 40", false);
        check("copy --runs 15 --only xfs", "copy --runs 15", false);
        check("record --only verdicts --only cost", "record --only cost --only verdicts", true);
        check("nothing --runs 9", "hit", false);
        assert!(!covers("cargo xtask bench", "hit --runs 40"));
    }

    #[test]
    fn reports_of_one_line_are_of_one_run() {
        let part = |bench: &str, command: &str| json!({ "bench": bench, "command": command });
        let (whole, alone) = ("cargo xtask bench copy --runs 15", "cargo xtask bench copy --runs 15 --buffers");
        let parts = [
            part("copy-buffers", alone),
            part("copy-buffers", whole),
            part("copy-best", whole),
            part("copy", whole),
            part("copy", whole),
            part("hit", "cargo xtask bench hit"),
        ];
        let names = |parts: Vec<Value>| -> Vec<String> {
            parts.iter().filter_map(|part| part["bench"].as_str().map(str::to_owned)).collect()
        };
        assert_eq!(names(latest(&parts, "copy --runs 15")), ["copy", "copy-best", "copy-buffers"]);
        assert_eq!(names(latest(&parts, "copy --runs 16")), [""; 0]);
    }
}
