//! `larder compare`: prints two records side by side.

use std::io::Write;

use anyhow::{Result, bail};
use comfy_table::Cell;
use larder_record::compare::{Comparison, Measure, Options, Pairs, Part, Went, compare};
use larder_record::statistics::PAIRS_MIN;

use super::record::place::open;
use super::{FINE, PROBLEM, number, plain_table, print_json, print_table};
use crate::cli::{CompareTwo, Judging};
use crate::say;
use crate::surroundings::Surroundings;

/// The largest number of characters that are shown of a value that differs.
const VALUE_CHARS_MAX: usize = 60;

/// Returns the options of the comparison. Fails if `--expect` has an unknown part.
pub(super) fn wanted(judging: &Judging) -> Result<Options> {
    let mut expected = Vec::new();
    for name in &judging.expect {
        match Part::named(name) {
            Some(part) => expected.push(part),
            None => bail!("--expect {}: write one of {}", say::one_line(name), Part::ALL.map(Part::name).join(", ")),
        }
    }
    Ok(Options { margin: judging.margin / 100.0, anyway: judging.anyway, expected })
}

/// Compares two records and prints the result.
pub(crate) fn run(around: &Surroundings, options: &CompareTwo, out: &mut dyn Write) -> Result<u8> {
    let (a, b) = (open(around, &options.a)?, open(around, &options.b)?);
    let comparison = compare(&a, &b, &wanted(&options.judging)?);
    if options.json {
        print_json(&serde_json::to_value(&comparison)?, out)?;
    } else if options.markdown {
        markdown(&comparison, out)?;
    } else {
        text(&comparison, out)?;
    }
    let is_slower =
        comparison.refused.is_empty() && comparison.measures.first().is_some_and(|wall| wall.verdict == "more");
    Ok(if options.check && is_slower { PROBLEM } else { FINE })
}

fn text(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let [a, b] = &comparison.names;
    writeln!(out, " A is {}, B is {}", say::one_line(a), say::one_line(b))?;
    if !comparison.unlike.is_empty() {
        writeln!(out, "\n Differences between the two:")?;
        let mut table = plain_table();
        for unlike in &comparison.unlike {
            let [a, b] = unlike.values.each_ref().map(|value| shortened(value));
            table.add_row(vec![format!("  {}", unlike.part.name()), say::one_line(&unlike.what), a, b]);
        }
        print_table(&table, out)?;
    }
    for warning in &comparison.warnings {
        writeln!(out, " ! {}", say::one_line(warning))?;
    }
    writeln!(out)?;
    if !comparison.refused.is_empty() {
        writeln!(out, " {}\n", comparison.refused)?;
    }
    let mut table = plain_table();
    // The ratio comes from pairs of runs, and is not the ratio of the two medians.
    table.add_row(["", "A, median", "B, median", "B / A by pairs", "interval", ""]);
    for measure in &comparison.measures {
        table.add_row(row(measure, comparison.refused.is_empty()));
    }
    print_table(&table, out)?;
    for (what, pairs) in [("actions", &comparison.actions), ("processes (CPU time)", &comparison.processes)] {
        if let Some(pairs) = pairs {
            show_pairs(what, pairs, out)?;
        }
    }
    went("CPU time by program:", &comparison.by_kind, out)?;
    went("Time of the wrappers by step:", &comparison.by_phase, out)
}

fn row(measure: &Measure, is_told: bool) -> Vec<Cell> {
    let name =
        if measure.unit.is_empty() { measure.name.to_owned() } else { format!("{}, {}", measure.name, measure.unit) };
    let [ratio, interval] = ratio(measure);
    let told = if is_told { told(measure) } else { String::new() };
    let [a, b] = measure.medians.map(|median| number(format!("{median:.3}")));
    vec![Cell::new(format!("  {name}")), a, b, number(ratio), number(interval), Cell::new(told)]
}

fn ratio(measure: &Measure) -> [String; 2] {
    measure.ratio.map_or([String::new(), String::new()], |[ratio, low, high]| {
        // A single run has no spread, so there is no interval.
        let is_spread = measure.samples.iter().all(|samples| *samples > 1);
        [format!("{ratio:.3}"), if is_spread { format!("{low:.3} to {high:.3}") } else { String::new() }]
    })
}

/// Returns the verdict in words.
fn told(measure: &Measure) -> String {
    let samples = measure.samples[0].min(measure.samples[1]);
    match (measure.verdict, measure.more_runs) {
        ("less", _) => "B needs less".to_owned(),
        ("more", _) => "B needs more".to_owned(),
        ("equal", _) => "equal".to_owned(),
        (_, Some(more)) if samples + more <= PAIRS_MIN => {
            format!("cannot tell from {samples} runs: at least {more} more per side are needed")
        }
        (_, Some(more)) => format!("cannot tell from {samples} runs: {more} more per side would be enough"),
        _ => format!("cannot tell from {samples} runs, and no practical number of runs would be enough"),
    }
}

fn show_pairs(what: &str, pairs: &Pairs, out: &mut dyn Write) -> Result<()> {
    let ratio = pairs.ratio.map(|[ratio, low, high]| format!(": B / A {ratio:.3}, {low:.3} to {high:.3}"));
    let [a, b] = pairs.alone;
    let count = say::count(pairs.count as u64, "pair", "pairs");
    writeln!(out, "\n {count} of {what}{}; {a} only in A, {b} only in B", ratio.unwrap_or_default())?;
    let mut table = plain_table();
    for row in &pairs.rows {
        let [before, after] = &row.outcomes;
        let outcome = if before == after { before.clone() } else { format!("{before} → {after}") };
        let outcome = say::one_line(&outcome);
        let name = Cell::new(format!("  {}", shortened(&row.name)));
        let [a, b] = row.ms.map(|ms| number(format!("{ms:.1} ms")));
        table.add_row(vec![name, a, b, Cell::new(outcome)]);
    }
    print_table(&table, out)
}

fn went(title: &str, rows: &[Went], out: &mut dyn Write) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n {title}")?;
    let mut table = plain_table();
    for row in rows {
        let kernel = row.kernel_ms[1] - row.kernel_ms[0];
        let [a, b] = row.ms.map(|ms| number(format!("{ms:.0} ms")));
        // So that it is not printed as "-0".
        let difference = number(format!("{:+} ms", (row.ms[1] - row.ms[0]).round() as i64));
        let of_it = if kernel.abs() >= 1.0 { format!("{kernel:+.0} ms in the kernel") } else { String::new() };
        table.add_row(vec![Cell::new(format!("  {}", shortened(&row.name))), a, b, difference, Cell::new(of_it)]);
    }
    print_table(&table, out)
}

fn markdown(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let cell = |text: &str| say::one_line(text).replace('|', "\\|").replace('<', "&lt;");
    let [a, b] = comparison.names.each_ref().map(|name| cell(name));
    writeln!(out, "## {b} compared with {a}\n")?;
    if !comparison.refused.is_empty() {
        writeln!(out, "**{}**\n", cell(&comparison.refused))?;
    }
    for warning in &comparison.warnings {
        writeln!(out, "- {}", cell(warning))?;
    }
    writeln!(out, "\n| | A | B | B ÷ A | interval | |\n|---|---:|---:|---:|---:|---|")?;
    for measure in &comparison.measures {
        let [ratio, interval] = ratio(measure);
        let told = if comparison.refused.is_empty() { told(measure) } else { String::new() };
        let [a, b] = measure.medians;
        writeln!(out, "| {} {} | {a:.3} | {b:.3} | {ratio} | {interval} | {told} |", measure.name, measure.unit)?;
    }
    if !comparison.unlike.is_empty() {
        writeln!(out, "\n| difference | | A | B |\n|---|---|---|---|")?;
    }
    for unlike in &comparison.unlike {
        let [a, b] = unlike.values.each_ref().map(|value| cell(&shortened(value)));
        writeln!(out, "| {} | {} | {a} | {b} |", unlike.part.name(), cell(&unlike.what))?;
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    say::shortened(text, VALUE_CHARS_MAX)
}
