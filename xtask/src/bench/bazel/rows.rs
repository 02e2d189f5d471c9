//! Measured builds as rows of a table.

use super::pass::Pass;
use super::phases::PHASES;
use crate::bench::calls::Kind;
use crate::table::NONE;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const HEADER: &[&str] = &[
    "flags",
    "cache",
    "step",
    "package",
    "configure wall s",
    "CPU s",
    "compiler CPU s",
    "make wall s",
    "CPU s",
    "compiler CPU s",
    "compiles",
    "hit",
    "other calls",
    "hit",
    "units of the header",
    "files",
    "different",
];
/// So many columns are text.
pub(super) const WORDS: usize = 4;
/// So many reasons are told for each cache and step.
const REASONS: usize = 4;

/// What several passes add up to.
#[derive(Default)]
struct Sum {
    /// Wall, CPU and compiler CPU of each phase.
    phases: [[f64; 3]; 2],
    /// Calls and hits: compiles, others.
    calls: [u64; 2],
    hits: [Option<u64>; 2],
    units: Option<u64>,
    compared: u64,
    different: u64,
}

/// One row for each package, and one for all packages of a step.
pub(super) fn table(passes: &[Pass]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for of_step in steps(passes) {
        for pass in of_step {
            rows.push(row(pass, pass.package, &sum(passes, std::slice::from_ref(pass))));
        }
        if let [first, _, ..] = of_step {
            rows.push(row(first, "all", &sum(passes, of_step)));
        }
    }
    rows
}

/// The same for programs, one package at a time.
pub(super) fn json_row(pass: &Pass) -> Value {
    let phases = PHASES.iter().zip(pass.times.phases).map(|(name, phase)| {
        let calls = pass.calls.iter().filter(|call| phase.holds(call.start_s));
        let kinds = tally(calls.clone().map(|call| {
            let outcome = call.verdict.as_ref().map_or("", |verdict| verdict.outcome.as_str());
            format!("{:?} {} {outcome}", call.kind, if call.succeeded { "ok" } else { "fail" })
        }));
        let compiler_cpu_s: f64 = calls.map(|call| call.cpu_s).sum();
        let value = json!({
            "wall_s": phase.wall_s, "cpu_s": phase.cpu_s, "compiler_cpu_s": compiler_cpu_s, "calls": kinds,
        });
        ((*name).to_owned(), value)
    });
    json!({
        "cache": pass.cache,
        "flags": pass.cflags,
        "step": pass.step.name(),
        "package": pass.package,
        "place": pass.times.place,
        "phases": phases.collect::<serde_json::Map<_, _>>(),
        "hits_counted": pass.counts.as_ref().map(|counts| counts.hit),
        "units_of_the_header": pass.units,
        "compared": pass.compared,
        "different": pass.different,
    })
}

/// Why compiles did not hit, and what the log adds to hits, the most frequent first, a line for each cache and step.
pub(super) fn reasons(passes: &[Pass]) -> Vec<String> {
    let mut lines = Vec::new();
    for of_step in steps(passes) {
        let whys = of_step.iter().flat_map(|pass| &pass.calls).filter(|call| call.kind == Kind::Compile);
        let verdicts = whys
            .filter_map(|call| call.verdict.as_ref())
            .filter(|verdict| !verdict.is_hit() || !verdict.why.is_empty());
        let mut counts: Vec<(String, u64)> =
            tally(verdicts.map(|verdict| format!("{}, {}", verdict.outcome, verdict.why))).into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(REASONS);
        if let (Some(first), false) = (of_step.first(), counts.is_empty()) {
            let told: Vec<String> = counts.iter().map(|(why, count)| format!("{count} × {why}")).collect();
            lines.push(format!("{} ({} flags), {}: {}", first.cache, first.cflags, first.step.name(), told.join("; ")));
        }
    }
    lines
}

/// Runs of passes that differ in the package alone.
fn steps(passes: &[Pass]) -> impl Iterator<Item = &[Pass]> {
    passes.chunk_by(|a, b| (a.cache, a.cflags, a.step) == (b.cache, b.cflags, b.step))
}

fn tally(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}

fn sum(all: &[Pass], passes: &[Pass]) -> Sum {
    let mut sum = Sum::default();
    for pass in passes {
        for (total, phase) in sum.phases.iter_mut().zip(pass.times.phases) {
            let calls = pass.calls.iter().filter(|call| phase.holds(call.start_s));
            let compiler_cpu_s: f64 = calls.map(|call| call.cpu_s).sum();
            [phase.wall_s, phase.cpu_s, compiler_cpu_s].iter().zip(total).for_each(|(more, total)| *total += more);
        }
        for call in &pass.calls {
            let at = usize::from(call.kind != Kind::Compile);
            sum.calls[at] += 1;
            if let Some(verdict) = &call.verdict {
                *sum.hits[at].get_or_insert(0) += u64::from(verdict.is_hit());
            }
        }
        if let Some(counts) = &pass.counts {
            *sum.hits[0].get_or_insert(0) += counts.hit;
        }
        let shown = all
            .iter()
            .find(|other| other.units.is_some() && (other.cflags, other.package) == (pass.cflags, pass.package));
        let units = shown.and_then(|other| other.units).filter(|_| pass.step >= super::Step::Changed);
        sum.units = sum.units.or(units.map(|_| 0)).map(|total| total + units.unwrap_or(0));
        sum.compared += pass.compared;
        sum.different += pass.different.len() as u64;
    }
    sum
}

fn row(pass: &Pass, package: &str, sum: &Sum) -> Vec<String> {
    let counted = |count: Option<u64>| count.map_or(NONE.to_owned(), |count| count.to_string());
    let mut cells =
        vec![pass.cflags.to_owned(), pass.cache.to_owned(), pass.step.name().to_owned(), package.to_owned()];
    cells.extend(sum.phases.iter().flatten().map(|seconds| format!("{seconds:.2}")));
    for (calls, hits) in sum.calls.iter().zip(sum.hits) {
        cells.extend([calls.to_string(), counted(hits)]);
    }
    let is_compared = pass.cache != "plain";
    cells.push(counted(sum.units));
    cells.extend([sum.compared, sum.different].map(|count| counted(Some(count).filter(|_| is_compared))));
    cells
}
