//! `cargo xtask bench compare` and `accept`: compares two reports figure by figure, and keeps a
//! report as the accepted one.
//!
//! A figure has changed if the whole interval of its ratio is beyond the difference between two
//! runs of the same program.

use super::figure::{Figure, Kind, number};
use super::saved::Saved;
use crate::place::Place;
use crate::table::{NONE, Table};
use anyhow::{Context, Result, ensure};
use larder_samples::Interval;
use std::path::PathBuf;

/// The options of `cargo xtask bench compare`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The report before [default: the accepted one, benches/results/report.json]
    #[arg(value_name = "A")]
    before: Option<PathBuf>,
    /// The report after [default: the last one, target/bench/report.json]
    #[arg(value_name = "B")]
    after: Option<PathBuf>,
}

/// The options of `cargo xtask bench accept`.
#[derive(clap::Args)]
pub(crate) struct AcceptOptions {
    /// The report [default: the last one, target/bench/report.json]
    #[arg(value_name = "REPORT")]
    report: Option<PathBuf>,
}

/// The name of the report of all benchmarks, without the extension.
pub(crate) const REPORT: &str = "report";
const HEADER: &[&str] = &["figure", "A", "B", "B ÷ A", "verdict"];

/// The result of comparing one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    Same,
}

/// Compares two reports and prints the result. Returns `false` if a figure got worse.
pub(crate) fn compare(place: &Place, options: &Options) -> Result<bool> {
    let name = format!("{REPORT}.json");
    let before = options.before.clone().unwrap_or_else(|| place.accepted().join(&name));
    let after = match &options.after {
        Some(path) => path.clone(),
        None => place.results()?.join(&name),
    };
    let a = Saved::read(&before).context("A, by default the report that `cargo xtask bench accept` keeps")?;
    let b = Saved::read(&after).context("B, by default the report that `cargo xtask bench` writes")?;
    println!("A: {} ({})\nB: {} ({})\n", before.display(), commit(&a), after.display(), commit(&b));
    if ["processor", "processors", "kernel"].iter().any(|fact| a.machine[fact] != b.machine[fact]) {
        println!("They were measured on different machines, so counts and ratios mean less.\n");
    }
    let (table, worse, summary) = compared(&a.figures()?, &b.figures()?);
    println!("{table}\n\n{summary}");
    Ok(worse == 0)
}

/// Keeps a report, without its samples, as the one that other reports are compared with. A report
/// of a single benchmark is kept beside the report of all.
pub(crate) fn accept(place: &Place, options: &AcceptOptions) -> Result<()> {
    let path = match &options.report {
        Some(path) => path.clone(),
        None => place.results()?.join(format!("{REPORT}.json")),
    };
    let saved = Saved::read(&path)?;
    ensure!(!saved.quick, "{} has few runs (--quick) and cannot be accepted", path.display());
    ensure!(
        saved.failed.is_empty(),
        "{} cannot be accepted, because benchmarks failed: {}",
        path.display(),
        saved.failed.join("; ")
    );
    let dir = place.accepted();
    std::fs::create_dir_all(&dir)?;
    let name = path.file_stem().map_or(REPORT.into(), |stem| stem.to_string_lossy());
    for path in saved.without_samples().write(&dir, &name)? {
        // The reason for a skip may contain a path of our own directories.
        let text = std::fs::read_to_string(&path)?;
        let own = [&place.target, &place.repo].map(|dir| dir.display().to_string());
        std::fs::write(&path, own.iter().fold(text, |text, dir| text.replace(dir.as_str(), "…")))?;
        println!("written: {}", path.display());
    }
    Ok(())
}

fn commit(saved: &Saved) -> &str {
    saved.machine["commit"].as_str().unwrap_or("unknown commit")
}

/// Returns a table with a row for each figure, the number of figures that got worse, and a summary
/// line.
fn compared(a: &[Figure], b: &[Figure]) -> (Table, usize, String) {
    let mut table = Table::new(1, HEADER);
    let mut verdicts = Vec::new();
    for after in b {
        let Some(before) = a.iter().find(|before| before.name == after.name) else { continue };
        let (ratio, verdict) = judged(before, after);
        let word = match verdict {
            Verdict::Better => "better",
            Verdict::Worse => "WORSE",
            Verdict::Same => "no difference",
        };
        let ratio = format!("{:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high);
        table.rows.push(vec![after.name.clone(), before.shown(), after.shown(), ratio, word.to_owned()]);
        verdicts.push(verdict);
    }
    let lacks = |these: &[Figure], those: &[Figure]| -> Vec<Figure> {
        these.iter().filter(|one| those.iter().all(|other| other.name != one.name)).cloned().collect()
    };
    let (only_a, only_b) = (lacks(a, b), lacks(b, a));
    for (figures, side) in [(&only_a, 1), (&only_b, 2)] {
        for figure in figures {
            let mut row = vec![figure.name.clone(), NONE.into(), NONE.into(), NONE.into(), "in one only".into()];
            row[side] = number(figure.found.value);
            table.rows.push(row);
        }
    }
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let worse = count(Verdict::Worse);
    let summary = format!(
        "{} better, {worse} worse, {} without a difference; {} in A only, {} in B only",
        count(Verdict::Better),
        count(Verdict::Same),
        only_a.len(),
        only_b.len()
    );
    (table, worse, summary)
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
    let drift = if before.kind == after.kind { after.kind.drift() } else { Kind::Ratio.drift() };
    let verdict = match ratio {
        Interval { low, .. } if low > drift => Verdict::Worse,
        Interval { high, .. } if high < 1.0 / drift => Verdict::Better,
        _ => Verdict::Same,
    };
    (ratio, verdict)
}

#[cfg(test)]
mod tests {
    use super::super::saved::tests::saved;
    use super::*;

    fn check(before: (f64, f64), after: (f64, f64), expected: Verdict) {
        let figures = |(value, percent)| saved(&[("x", value, percent)]).figures().expect("figures");
        let (a, b) = (figures(before), figures(after));
        let (ratio, verdict) = judged(&a[0], &b[0]);
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
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results/report.json");
        let saved = Saved::read(&path).expect("the accepted report is one");
        assert!(!saved.quick && saved.failed.is_empty());
        let figures = saved.figures().expect("figures");
        assert!(!figures.is_empty());
        assert_eq!(compared(&figures, &figures).1, 0, "nothing is worse than itself");
    }

    #[test]
    fn one_worse_figure_is_enough() {
        let of = |figures: &[(&str, f64, f64)]| saved(figures).figures().expect("figures");
        let before = of(&[("x", 1.0, 1.0), ("y", 1.0, 1.0), ("gone", 1.0, 1.0)]);
        let after = of(&[("x", 0.5, 1.0), ("y", 2.0, 1.0), ("new", 1.0, 1.0)]);
        let (table, worse, summary) = compared(&before, &after);
        assert_eq!((worse, table.rows.len()), (1, 4));
        assert_eq!(summary, "1 better, 1 worse, 0 without a difference; 1 in A only, 1 in B only");
        assert_eq!(compared(&before, &before).1, 0);
    }
}
