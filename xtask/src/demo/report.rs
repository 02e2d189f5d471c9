//! The table of the demo, and the problems in it.

use crate::launcher::Counts;
use crate::table::{Table, over, seconds, shown};
use crate::tree::Comparison;
use crate::workload::Built;

/// The number of differing files that are listed for a step.
const DIFFERENCES_NAMED: usize = 10;
/// The share of compiles that must hit when warm.
const WARM_HITS_PERCENT: u64 = 99;

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
    let mut table = Table::new(2);
    rows.iter().for_each(|row| add(&mut table, row));
    table
}

/// Returns a summary in one sentence.
pub(super) fn verdict(rows: &[Row]) -> String {
    let objects: u64 = rows.iter().filter(|row| row.step == "plain").map(|row| row.built.objects).sum();
    let compared: u64 = rows.iter().filter_map(|row| row.compared.as_ref()).map(|found| found.compared).sum();
    format!("{objects} translation units; {compared} files compared with plain builds, all equal; the warm builds hit.")
}

fn add(table: &mut Table, row: &Row) {
    let (build, plain) = (row.built.build, row.plain.build);
    let counted = |number: fn(&Counts) -> u64| shown(row.built.counts.as_ref().map(number));
    let compared = row.compared.as_ref();
    table.add([
        ("project", row.project.to_owned()),
        ("step", row.step.to_owned()),
        ("configure CPU s", seconds(row.built.configure.cpu)),
        ("wall s", seconds(build.wall)),
        ("CPU s", seconds(build.cpu)),
        ("CPU ÷ plain", over(build.cpu, plain.cpu)),
        ("wall ÷ plain", over(build.wall, plain.wall)),
        ("compiles", row.built.objects.to_string()),
        ("hits", counted(|counts| counts.hit)),
        ("misses", counted(|counts| counts.miss)),
        ("bypasses", counted(|counts| counts.bypass)),
        ("fallbacks", counted(|counts| counts.fallback)),
        ("compared", shown(compared.map(|found| found.compared))),
        ("different", shown(compared.map(|found| found.different.len()))),
    ]);
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
