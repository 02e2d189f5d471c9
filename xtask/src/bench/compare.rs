//! `cargo xtask bench compare` and `accept`: compares two reports figure by figure, and keeps a
//! report as the accepted one.
//!
//! A figure has changed if the whole interval of its ratio is beyond the difference between two
//! runs of the same program.

use super::figure::{self, Figure};
use super::report::NOT_MEASURED;
use super::statistics::Interval;
use crate::files;
use crate::place::Place;
use crate::table::{NONE, Table};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// The options of `cargo xtask bench compare`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The report before [default: the accepted one, benches/results/report.md]
    #[arg(value_name = "A")]
    before: Option<PathBuf>,
    /// The report after [default: the last one, target/bench/report.md]
    #[arg(value_name = "B")]
    after: Option<PathBuf>,
}

/// The options of `cargo xtask bench accept`.
#[derive(clap::Args)]
pub(crate) struct AcceptOptions {
    /// The report [default: the last one, target/bench/report.md]
    #[arg(value_name = "REPORT")]
    report: Option<PathBuf>,
}

/// The name of the report of all benchmarks, without the extension.
pub(crate) const REPORT: &str = "report";

/// The result of comparing one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    Same,
}

/// Compares two reports and prints the result. Returns `false` if a figure got worse.
pub(crate) fn compare(place: &Place, options: &Options) -> Result<bool> {
    let before = options.before.clone().unwrap_or_else(|| place.accepted().join(format!("{REPORT}.md")));
    let after = last_or(place, options.after.as_ref())?;
    let (a, b) = (read(&before)?, read(&after)?);
    println!("A: {} ({})\nB: {} ({})\n", before.display(), fact(&a, "commit"), after.display(), fact(&b, "commit"));
    if ["processor", "processors", "kernel"].iter().any(|name| fact(&a, name) != fact(&b, name)) {
        println!("They were measured on different machines, so counts and ratios mean less.\n");
    }
    let (table, worse, summary) = compared(&figure::read(&a), &figure::read(&b));
    println!("{table}\n\n{summary}");
    Ok(worse == 0)
}

/// Keeps a report as the one that other reports are compared with. A report of a single benchmark is
/// kept beside the report of all.
pub(crate) fn accept(place: &Place, options: &AcceptOptions) -> Result<()> {
    let path = last_or(place, options.report.as_ref())?;
    let mut text = read(&path)?;
    let is_quick = text.lines().next().is_some_and(|command| command.contains("--quick"));
    ensure!(!is_quick, "{} has few runs (--quick) and cannot be accepted", path.display());
    let failed = text.lines().find(|line| line.starts_with(NOT_MEASURED));
    ensure!(failed.is_none(), "{} cannot be accepted: {}", path.display(), failed.unwrap_or_default());
    // The reason for a skip may contain a path of our own directories.
    for own in [&place.target, &place.repo] {
        text = text.replace(&own.display().to_string(), "…");
    }
    let to = place.accepted().join(path.file_name().context("a report is a file")?);
    files::write(&to, text)?;
    println!("written: {}", to.display());
    Ok(())
}

fn last_or(place: &Place, given: Option<&PathBuf>) -> Result<PathBuf> {
    given.map_or_else(|| Ok(place.results()?.join(format!("{REPORT}.md"))), |path| Ok(path.clone()))
}

/// Reads a report that has figures.
fn read(path: &Path) -> Result<String> {
    let text = files::read(path)?;
    ensure!(!figure::read(&text).is_empty(), "{} is not a report of `cargo xtask bench`", path.display());
    Ok(text)
}

/// Returns a fact about the machine of a report.
fn fact<'a>(report: &'a str, name: &str) -> &'a str {
    let is_it = |line: &'a str| line.strip_prefix("- ")?.strip_prefix(name)?.strip_prefix(": ");
    report.lines().find_map(is_it).unwrap_or("unknown")
}

/// Returns a table with a row for each figure, the number of figures that got worse, and a summary
/// line.
fn compared(a: &[Figure], b: &[Figure]) -> (Table, usize, String) {
    let mut table = Table::new(1);
    let mut verdicts = Vec::new();
    let mut add = |name: &str, [a, b, ratio, verdict]: [String; 4]| {
        table.add([("figure", name.to_owned()), ("A", a), ("B", b), ("B ÷ A", ratio), ("verdict", verdict)]);
    };
    let find = |name: &str, figures: &'_ [Figure]| figures.iter().find(|figure| figure.name == name).cloned();
    let none = || NONE.to_owned();
    for after in b {
        let Some(before) = find(&after.name, a) else {
            add(&after.name, [none(), after.shown(), none(), "in B only".to_owned()]);
            continue;
        };
        let (ratio, verdict) = judged(&before, after);
        let word = match verdict {
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Same => "no difference",
        };
        let ratio = format!("{:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high);
        add(&after.name, [before.shown(), after.shown(), ratio, word.to_owned()]);
        verdicts.push(verdict);
    }
    for before in a.iter().filter(|before| find(&before.name, b).is_none()) {
        add(&before.name, [before.shown(), none(), none(), "in A only".to_owned()]);
    }
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let [better, worse, same] = [Verdict::Better, Verdict::Worse, Verdict::Same].map(count);
    (table, worse, format!("{better} better, {worse} worse, {same} without a difference"))
}

/// Returns B ÷ A with an interval, and the verdict. The intervals of A and B are independent of
/// each other.
fn judged(before: &Figure, after: &Figure) -> (Interval, Verdict) {
    let (a, b) = (before.found, after.found);
    if a.value <= 0.0 || b.value <= 0.0 {
        let verdict = match b.value.total_cmp(&a.value) {
            std::cmp::Ordering::Less => Verdict::Better,
            std::cmp::Ordering::Equal => Verdict::Same,
            std::cmp::Ordering::Greater => Verdict::Worse,
        };
        return (Interval::exact(if a.value == b.value { 1.0 } else { f64::INFINITY }), verdict);
    }
    // Times vary by factors, so the logarithms are added.
    let side = |inner: f64, outer: f64| (inner.max(f64::MIN_POSITIVE) / outer.max(f64::MIN_POSITIVE)).ln().powi(2);
    let down = (side(b.value, b.low) + side(a.high, a.value)).sqrt().exp();
    let up = (side(b.high, b.value) + side(a.value, a.low)).sqrt().exp();
    let value = b.value / a.value;
    let ratio = Interval { value, low: value / down, high: value * up };
    let drift = after.drift();
    let verdict = match ratio {
        Interval { low, .. } if low > drift => Verdict::Worse,
        Interval { high, .. } if high < 1.0 / drift => Verdict::Better,
        _ => Verdict::Same,
    };
    (ratio, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ratio with an interval of this half width, in percent.
    fn figure(&(name, value, percent): &(&str, f64, f64)) -> Figure {
        let found = Interval { value, low: value * (1.0 - percent / 100.0), high: value * (1.0 + percent / 100.0) };
        Figure { name: format!("{name} ÷ plain"), found, goal: Some(1.0) }
    }

    fn check(before: (f64, f64), after: (f64, f64), expected: Verdict) {
        let figure = |(value, percent)| figure(&("x", value, percent));
        let (ratio, verdict) = judged(&figure(before), &figure(after));
        assert_eq!(verdict, expected, "{before:?} → {after:?}: {ratio:?}");
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high, "{ratio:?}");
    }

    #[test]
    fn a_change_must_exceed_the_noise() {
        check((1.0, 2.0), (1.0, 2.0), Verdict::Same);
        check((1.0, 2.0), (1.05, 2.0), Verdict::Same);
        check((1.0, 2.0), (1.3, 2.0), Verdict::Worse);
        check((1.3, 2.0), (1.0, 2.0), Verdict::Better);
        // The same change with large intervals is not a difference.
        check((1.0, 20.0), (1.3, 20.0), Verdict::Same);
        check((0.0, 0.0), (0.0, 0.0), Verdict::Same);
        check((0.0, 0.0), (1.0, 0.0), Verdict::Worse);
    }

    #[test]
    fn the_accepted_report_can_be_compared() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results/report.md");
        let figures = figure::read(&read(&path).expect("the accepted report is one"));
        assert!(figures.len() > 50 && figures.iter().any(|figure| figure.goal.is_some()), "{figures:?}");
        assert_eq!(compared(&figures, &figures).1, 0, "nothing is worse than itself");
    }

    #[test]
    fn one_worse_figure_is_enough() {
        let before = [("x", 1.0, 1.0), ("y", 1.0, 1.0), ("gone", 1.0, 1.0)].each_ref().map(figure);
        let after = [("x", 0.5, 1.0), ("y", 2.0, 1.0), ("new", 1.0, 1.0)].each_ref().map(figure);
        let (table, worse, summary) = compared(&before, &after);
        assert_eq!((worse, table.rows.len()), (1, 4));
        assert_eq!(summary, "1 better, 1 worse, 0 without a difference");
        assert_eq!(compared(&before, &before).1, 0);
    }
}
