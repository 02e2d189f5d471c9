//! The table of the demo, and the problems in it.

use crate::launcher::Counts;
use crate::table::{NONE, Table};
use crate::tree::Comparison;
use crate::workload::Built;
use std::time::Duration;

const COLUMNS: &[&str] = &[
    "project",
    "step",
    "configure CPU s",
    "wall s",
    "CPU s",
    "CPU ÷ plain",
    "wall ÷ plain",
    "compiles",
    "hits",
    "misses",
    "bypasses",
    "fallbacks",
    "compared",
    "different",
];
/// The number of differing files that are listed for a step.
const DIFFERENCES_NAMED: usize = 10;
/// The share of compiles that must hit when warm.
const WARM_HITS_PERCENT: u64 = 99;
/// Project and step are text. The other columns are numbers.
const COLUMNS_OF_WORDS: usize = 2;

/// A row of the table.
pub(super) struct Row {
    pub(super) project: &'static str,
    pub(super) step: &'static str,
    pub(super) built: Built,
    /// `None` for the build that the others are compared with.
    pub(super) compared: Option<Comparison>,
    /// The plain build of the same place.
    pub(super) plain: Built,
}

/// Returns all rows as one table.
pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(COLUMNS_OF_WORDS, COLUMNS);
    table.rows = rows.iter().chain(&totals(rows)).map(cells).collect();
    table
}

/// Returns a row for each step, summed over all projects, if there are several.
fn totals(rows: &[Row]) -> Vec<Row> {
    let Some(first) = rows.first().map(|row| row.project) else { return Vec::new() };
    if rows.iter().all(|row| row.project == first) {
        return Vec::new();
    }
    let steps = rows.iter().filter(|row| row.project == first).map(|row| row.step);
    let total = |step| {
        let same: Vec<&Row> = rows.iter().filter(|row| row.step == step).collect();
        Row {
            project: "all",
            step,
            built: sum(same.iter().map(|row| &row.built)),
            compared: sum_compared(&same),
            plain: sum(same.iter().map(|row| &row.plain)),
        }
    };
    steps.map(total).collect()
}

fn sum<'a>(all: impl Iterator<Item = &'a Built>) -> Built {
    all.fold(Built::default(), |mut total, built| {
        total.configure = total.configure + built.configure;
        total.build = total.build + built.build;
        total.objects += built.objects;
        if let Some(counts) = &built.counts {
            total.counts.get_or_insert_default().add(counts);
        }
        total
    })
}

fn sum_compared(rows: &[&Row]) -> Option<Comparison> {
    let found = rows.iter().filter_map(|row| row.compared.as_ref());
    found.fold(None, |total: Option<Comparison>, found| {
        let mut total = total.unwrap_or_default();
        total.compared += found.compared;
        total.excluded += found.excluded;
        total.different.extend(found.different.iter().cloned());
        Some(total)
    })
}

/// Returns a summary in one sentence.
pub(super) fn verdict(rows: &[Row]) -> String {
    let objects: u64 = rows.iter().filter(|row| row.step == "plain").map(|row| row.built.objects).sum();
    let compared: u64 = rows.iter().filter_map(|row| row.compared.as_ref()).map(|found| found.compared).sum();
    format!("{objects} translation units; {compared} files compared with plain builds, all equal; the warm builds hit.")
}

fn cells(row: &Row) -> Vec<String> {
    let counted = |number: fn(&Counts) -> u64| {
        row.built.counts.as_ref().map_or(NONE.to_owned(), |counts| number(counts).to_string())
    };
    let compared = row.compared.as_ref();
    vec![
        row.project.to_owned(),
        row.step.to_owned(),
        seconds(row.built.configure.cpu),
        seconds(row.built.build.wall),
        seconds(row.built.build.cpu),
        ratio(row.built.build.cpu, row.plain.build.cpu),
        ratio(row.built.build.wall, row.plain.build.wall),
        row.built.objects.to_string(),
        counted(|counts| counts.hit),
        counted(|counts| counts.miss),
        counted(|counts| counts.bypass),
        counted(|counts| counts.fallback),
        compared.map_or(NONE.to_owned(), |found| found.compared.to_string()),
        compared.map_or(NONE.to_owned(), |found| found.different.len().to_string()),
    ]
}

fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

fn ratio(time: Duration, plain: Duration) -> String {
    if plain.is_zero() { NONE.to_owned() } else { format!("{:.3}", time.as_secs_f64() / plain.as_secs_f64()) }
}

/// Returns the problems as sentences.
pub(super) fn problems(rows: &[Row]) -> Vec<String> {
    rows.iter().flat_map(|row| differences(row).into_iter().chain(warmth(row)).chain(wrong_records(row))).collect()
}

fn differences(row: &Row) -> Vec<String> {
    let Some(found) = row.compared.as_ref().filter(|found| !found.different.is_empty()) else { return Vec::new() };
    let head = format!("{}, {}: {} files differ from the plain build:", row.project, row.step, found.different.len());
    let named = found.different.iter().take(DIFFERENCES_NAMED);
    std::iter::once(head).chain(named.map(|(path, what)| format!("  {} {what}", path.display()))).collect()
}

/// Checks that a record is what the compiler makes when it runs again.
fn wrong_records(row: &Row) -> Option<String> {
    let counts = row.built.counts.as_ref().filter(|counts| row.step == "verified" && counts.fallback > 0)?;
    Some(format!("{}, verified: {} records differ from the compiler's results", row.project, counts.fallback))
}

/// Checks that a warm build hits. If a compile misses, larder must have given a reason why it could
/// not record.
fn warmth(row: &Row) -> Vec<String> {
    let (true, Some(counts)) = (row.step == "warm", row.built.counts.as_ref()) else { return Vec::new() };
    // A build may run more commands than compiles, for example links. Their hits must not hide
    // compiles that miss.
    let asked = row.plain.objects.max(counts.hit + counts.miss + counts.fallback);
    let mut problems = Vec::new();
    if counts.hit * 100 < asked * WARM_HITS_PERCENT {
        problems.push(format!("{}, warm: {} hits of {asked} that could", row.project, counts.hit));
    }
    let unexplained = counts.miss.saturating_sub(counts.unrecorded());
    if unexplained > 0 {
        problems.push(format!("{}, warm: {unexplained} misses without a stated reason", row.project));
    }
    if !problems.is_empty() {
        problems.extend(counts.reasons.iter().map(|(code, count)| format!("  {count} × {code}")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hit: u64, miss: u64, unrecorded: u64, expected_problems: usize) {
        let plain = Built { objects: 100, ..Built::default() };
        let reasons = [("unrecorded clock".to_owned(), unrecorded)].into();
        let built = Built { counts: Some(Counts { hit, miss, reasons, ..Counts::default() }), ..plain.clone() };
        let row = Row { project: "p", step: "warm", built, compared: None, plain };
        let found = problems(&[row]);
        assert_eq!(found.iter().filter(|line| !line.starts_with(' ')).count(), expected_problems, "{found:?}");
    }

    #[test]
    fn a_warm_build_must_hit_and_say_why_not() {
        check(100, 0, 0, 0);
        check(99, 1, 1, 0);
        check(99, 1, 0, 1);
        check(98, 2, 2, 1);
        check(0, 100, 0, 2);
        check(150, 10, 10, 1);
    }
}
