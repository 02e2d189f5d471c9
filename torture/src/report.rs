//! Prints the results, and converts them to JSON.
//!
//! Unaware of: how they were found.

use crate::caches::{CacheKind, Chosen, Counts};
use crate::drive::StepResult;
use crate::known;
use crate::step::Expect;
use crate::suite::CaseResult;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A summary of all results.
pub struct Verdict {
    /// The number of cases with a difference.
    pub wrong: usize,
    /// The number of expected hits that were missed, without those in `known`.
    pub missed: usize,
}

/// Returns one line for a case. A letter after a step distinguishes plain results: equal letters
/// are equal results.
pub fn line(result: &CaseResult) -> String {
    if let Some(reason) = &result.skipped {
        return format!("skipped   {}: {reason}", result.name);
    }
    let mut seen = Vec::new();
    let word = |step: &StepResult| {
        let right = if step.wrong.is_empty() { "" } else { " WRONG" };
        let letter = step.plain.map_or(' ', |mark| letter(&mut seen, mark));
        format!("{} {letter}: {}{right}", step.label, counts_in_words(step.counted))
    };
    let steps: Vec<String> = result.steps.iter().map(word).collect();
    let mut text = format!("{:6.2} s  {}: {}", result.seconds, result.name, steps.join(" | "));
    for step in &result.steps {
        for difference in &step.wrong {
            text += &format!("\n          {}: {difference}", step.label);
        }
    }
    text
}

fn letter(seen: &mut Vec<u64>, mark: u64) -> char {
    let at = seen.iter().position(|&other| other == mark).unwrap_or_else(|| {
        seen.push(mark);
        seen.len() - 1
    });
    ('a'..='z').nth(at).unwrap_or('?')
}

/// Prints all results.
pub fn print(results: &[CaseResult], cache: &Chosen, seconds: f64) -> Verdict {
    print_skipped(results);
    let hits = Hits::of(results, cache);
    hits.lines.iter().for_each(|line| println!("{line}"));
    let wrong = results.iter().filter(|result| result.is_wrong()).count();
    for (case, step) in results.iter().flat_map(|case| case.steps.iter().map(move |step| (case, step))) {
        for difference in &step.wrong {
            let counted = counts_in_words(step.counted);
            println!("WRONG   {} · {} ({counted}): {difference}", case.name, step.label);
        }
    }
    let (cases, steps) = (ran(results), results.iter().map(|result| result.steps.len()).sum::<usize>());
    println!("{}: {cases} cases, {steps} steps, {seconds:.0} s", cache.kind.name());
    println!(
        "{wrong} wrong, {} of {} expected hits; {} known misses, {} not known",
        hits.got, hits.expected, hits.known, hits.unknown
    );
    Verdict { wrong, missed: hits.unknown }
}

fn ran(results: &[CaseResult]) -> usize {
    results.iter().filter(|result| result.skipped.is_none()).count()
}

fn print_skipped(results: &[CaseResult]) {
    let mut skipped = BTreeMap::<&str, Vec<&str>>::new();
    for result in results {
        if let Some(reason) = &result.skipped {
            skipped.entry(reason).or_default().push(&result.name);
        }
    }
    for (reason, names) in skipped {
        println!("skipped, {reason}: {}", names.join(" "));
    }
}

/// The expected hits, and how many came.
struct Hits {
    expected: usize,
    got: usize,
    known: usize,
    unknown: usize,
    lines: Vec<String>,
}

impl Hits {
    fn of(results: &[CaseResult], cache: &Chosen) -> Self {
        let mut hits = Self { expected: 0, got: 0, known: 0, unknown: 0, lines: Vec::new() };
        if cache.kind == CacheKind::None {
            return hits;
        }
        let mut asked = BTreeMap::<usize, bool>::new();
        for case in results {
            for step in case.steps.iter().filter(|step| case.counts_as_hit(step, cache.observer)) {
                let excuse = known::miss(&case.name, &step.label, &step.said, cache);
                if let Some((row, _)) = excuse {
                    *asked.entry(row).or_default() |= !step.is_hit();
                }
                hits.add(case, step, excuse.map(|(_, why)| why));
            }
        }
        hits.lines.sort_by_key(|line| line.starts_with("MISSED"));
        for (at, row) in known::rows().enumerate() {
            if asked.get(&at) == Some(&false) {
                hits.lines.push(format!("HIT     {row}: no longer missed, so remove the row from known.rs"));
            }
        }
        hits
    }

    fn add(&mut self, case: &CaseResult, step: &StepResult, excuse: Option<&str>) {
        self.expected += 1;
        let (name, label, counted) = (&case.name, &step.label, counts_in_words(step.counted));
        match (step.is_hit(), excuse) {
            (true, _) => self.got += 1,
            (false, Some(why)) => {
                self.known += 1;
                self.lines.push(format!("known   {name} · {label} ({counted}): {why}"));
            }
            (false, None) => {
                self.unknown += 1;
                self.lines.push(format!("MISSED  {name} · {label} ({counted}): {}", step.said));
            }
        }
    }
}

fn counts_in_words(counts: Option<Counts>) -> String {
    let Some(counts) = counts else { return "–".to_owned() };
    let all = [("hit", counts.hit), ("miss", counts.miss), ("bypass", counts.bypass), ("fallback", counts.fallback)];
    let some = all.iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> =
        some.map(|(name, count)| if *count == 1 { (*name).to_owned() } else { format!("{count} {name}") }).collect();
    if words.is_empty() { "nothing counted".to_owned() } else { words.join(", ") }
}

/// Returns all results as JSON, for `table`.
pub fn as_json(results: &[CaseResult], cache: &Chosen, seconds: f64) -> Value {
    let step = |case: &CaseResult, step: &StepResult| {
        let counts = step.counted.unwrap_or_default();
        json!({
            "label": step.label,
            "wrong": step.wrong,
            "expected": case.counts_as_hit(step, cache.observer),
            "fresh": step.expect == Expect::Fresh,
            "got": step.is_hit(),
            "said": step.said,
            "counted": {"hit": counts.hit, "miss": counts.miss, "bypass": counts.bypass, "fallback": counts.fallback},
        })
    };
    let case = |case: &CaseResult| {
        let steps: Vec<Value> = case.steps.iter().map(|one| step(case, one)).collect();
        json!({"name": case.name, "skipped": case.skipped, "seconds": case.seconds, "steps": steps})
    };
    let observer = cache.observer.map(|observer| format!("{observer:?}").to_lowercase());
    let cases: Vec<Value> = results.iter().map(case).collect();
    json!({"cache": cache.kind.name(), "observer": observer, "seconds": seconds, "cases": cases})
}
