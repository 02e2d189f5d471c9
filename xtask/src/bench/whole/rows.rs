//! Measured runs as rows of a table, and what is to be said about them.

use super::grains::PLAIN;
use super::packages::Phase;
use super::pass::{Part, Pass};
use crate::bench::calls::{Call, Kind, Verdict};
use crate::table::NONE;
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const HEADER: &[&str] = &[
    "package",
    "phase",
    "grain",
    "step",
    "wall s",
    "CPU s",
    "wall ÷ plain",
    "CPU ÷ plain",
    "compiler CPU s",
    "÷ plain",
    "compile",
    "preprocess",
    "link",
    "question",
    "fail",
    "hits",
    "whole",
    "compared",
    "masked",
    "different",
];
/// So many columns are text.
pub(super) const WORDS: usize = 4;
/// So many reasons are told for each grain, step and phase, and so many differences for each run.
const TOLD: usize = 6;
const KINDS: [Kind; 4] = [Kind::Compile, Kind::Preprocess, Kind::Link, Kind::Question];

/// One row for each phase of each run, those of one grain together.
pub(super) fn table(passes: &[Pass], phases: &[Phase]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for of_package in passes.chunk_by(|a, b| a.package == b.package) {
        let mut grains: Vec<&str> = Vec::new();
        for pass in of_package {
            if !grains.contains(&pass.grain) {
                grains.push(pass.grain);
            }
        }
        for (at, phase) in phases.iter().enumerate() {
            for grain in &grains {
                for pass in of_package.iter().filter(|pass| pass.grain == *grain) {
                    let plain = of_package.iter().find(|other| other.grain == PLAIN && other.step == pass.step);
                    let plain = plain.and_then(|plain| plain.parts.get(at));
                    rows.extend(pass.parts.get(at).map(|part| row(pass, *phase, at + 1 == phases.len(), part, plain)));
                }
            }
        }
    }
    rows
}

fn row(pass: &Pass, phase: Phase, is_last: bool, part: &Part, plain: Option<&Part>) -> Vec<String> {
    let ratio = |of: fn(&Part) -> f64| match plain.map(of) {
        Some(plain) if plain > 0.0 && (pass.grain == PLAIN || of(part) > 0.0) => format!("{:.3}", of(part) / plain),
        _ => NONE.to_owned(),
    };
    let counted = |shown: bool, count: u64| if shown { count.to_string() } else { NONE.to_owned() };
    let is_told = part.inner.is_empty() && part.whole.is_none();
    let mut cells = [pass.package, phase.name(), pass.grain, pass.step.name()].map(str::to_owned).to_vec();
    cells.extend([wall(part), cpu(part)].map(|seconds| format!("{seconds:.2}")));
    cells.extend([ratio(wall), ratio(cpu)]);
    cells.push(if is_told { format!("{:.2}", compiler_cpu(part)) } else { NONE.to_owned() });
    cells.push(if is_told { ratio(compiler_cpu) } else { NONE.to_owned() });
    for kind in KINDS {
        let of_kind: Vec<&Call> = part.calls.iter().filter(|call| call.kind == kind).collect();
        let verdicts: Vec<&Verdict> = of_kind.iter().filter_map(|call| call.verdict.as_ref()).collect();
        cells.push(match (is_told, verdicts.is_empty()) {
            (false, _) => NONE.to_owned(),
            (true, true) => of_kind.len().to_string(),
            (true, false) => format!("{}/{}", hits(verdicts.into_iter()), of_kind.len()),
        });
    }
    cells.push(counted(is_told, part.calls.iter().filter(|call| !call.succeeded).count() as u64));
    cells.push(all_hits(part));
    cells.push(part.whole.as_ref().map_or(NONE.to_owned(), |verdict| verdict.outcome.clone()));
    let is_compared = is_last && pass.comparison.compared > 0;
    let masked: u64 = pass.comparison.masked.values().sum();
    let different = pass.comparison.different.len() as u64;
    cells.extend([pass.comparison.compared, masked, different].map(|count| counted(is_compared, count)));
    cells
}

/// The same for programs, a run at a time.
pub(super) fn json_row(pass: &Pass, phases: &[Phase]) -> Value {
    let parts = phases.iter().zip(&pass.parts).map(|(phase, part)| {
        let calls = tally(part.calls.iter().map(|call| {
            let outcome = call.verdict.as_ref().map_or("", |verdict| verdict.outcome.as_str());
            format!("{:?} {} {outcome}", call.kind, if call.succeeded { "ok" } else { "fail" })
        }));
        let value = json!({
            "wall_s": wall(part), "cpu_s": cpu(part), "compiler_cpu_s": compiler_cpu(part), "calls": calls,
            "inner": tally(part.inner.iter().map(told)),
            "whole": part.whole.as_ref().map(told_in_full),
            "hits_counted": part.counts.as_ref().map(|counts| counts.hit),
        });
        (phase.name().to_owned(), value)
    });
    json!({
        "package": pass.package,
        "grain": pass.grain,
        "step": pass.step.name(),
        "phases": parts.collect::<serde_json::Map<_, _>>(),
        "compared": pass.comparison.compared,
        "masked": pass.comparison.masked,
        "different": pass.comparison.different,
        "failure": pass.failure,
    })
}

/// Why calls did not hit, what was said of whole commands, and what was masked.
pub(super) fn notes(passes: &[Pass], phases: &[Phase]) -> Vec<String> {
    let mut notes = Vec::new();
    for pass in passes {
        for (phase, part) in phases.iter().zip(&pass.parts) {
            let of_calls = part.calls.iter().filter_map(|call| {
                let verdict = call.verdict.as_ref().filter(|verdict| !verdict.is_hit())?;
                Some(format!("{:?}: {}", call.kind, told(verdict)))
            });
            let inner = part.inner.iter().filter(|verdict| !verdict.is_hit()).map(told);
            let mut counts: Vec<(String, u64)> = tally(of_calls.chain(inner)).into_iter().collect();
            counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            counts.truncate(TOLD);
            let mut words: Vec<String> =
                part.whole.iter().map(|verdict| format!("whole: {}", told_in_full(verdict))).collect();
            words.extend(counts.iter().map(|(why, count)| format!("{count} × {why}")));
            if !words.is_empty() {
                notes.push(format!("{}, {}: {}", title(pass), phase.name(), words.join("; ")));
            }
        }
    }
    let mut masked: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, count) in passes.iter().flat_map(|pass| &pass.comparison.masked) {
        *masked.entry(what).or_default() += count;
    }
    let masked: Vec<String> = masked.iter().map(|(what, count)| format!("{count} {what}")).collect();
    notes.push(format!("masked in all: {}", masked.join(", ")));
    notes
}

/// What is not as it must be, in lines for people.
pub(super) fn faults<'a>(passes: impl Iterator<Item = &'a Pass>) -> Vec<String> {
    let mut lines = Vec::new();
    for pass in passes {
        lines.extend(pass.failure.iter().map(|failure| format!("{}: {failure}", title(pass))));
        let different = &pass.comparison.different;
        let shown = different.iter().take(TOLD).map(|(name, what)| format!("{}: {name}: {what}", title(pass)));
        lines.extend(shown);
        if different.len() > TOLD {
            lines.push(format!("{}: {} more differ", title(pass), different.len() - TOLD));
        }
    }
    lines
}

fn title(pass: &Pass) -> String {
    format!("{}, {}, {}", pass.package, pass.grain, pass.step.name())
}

fn told(verdict: &Verdict) -> String {
    if verdict.why.is_empty() { verdict.outcome.clone() } else { format!("{}, {}", verdict.outcome, verdict.why) }
}

fn told_in_full(verdict: &Verdict) -> String {
    if verdict.detail.is_empty() { told(verdict) } else { format!("{} ({})", told(verdict), verdict.detail) }
}

fn wall(part: &Part) -> f64 {
    part.usage.wall.as_secs_f64()
}

fn cpu(part: &Part) -> f64 {
    part.usage.cpu.as_secs_f64()
}

fn compiler_cpu(part: &Part) -> f64 {
    part.calls.iter().fold(0.0, |sum, call| sum + call.cpu_s)
}

/// Of the calls that a log or a cache's counters tell of.
fn all_hits(part: &Part) -> String {
    let of_calls: Vec<&Verdict> =
        part.calls.iter().filter_map(|call| call.verdict.as_ref()).chain(&part.inner).collect();
    match (&part.counts, of_calls.len()) {
        (Some(counts), _) => counts.hit.to_string(),
        (None, 0) => NONE.to_owned(),
        (None, all) => format!("{}/{all}", hits(of_calls.into_iter())),
    }
}

fn hits<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> usize {
    verdicts.filter(|verdict| verdict.is_hit()).count()
}

fn tally(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    counts
}
