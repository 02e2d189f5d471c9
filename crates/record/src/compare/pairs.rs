//! Matches actions and processes that both records have. One build gives hundreds of pairs.

use std::collections::HashMap;

use serde::Serialize;

use crate::directory::Record;
use crate::processes::Processes;
use crate::schema::Action;
use crate::statistics;

/// The largest number of rows in a list of pairs, or of where a difference comes from.
const ROWS_MAX: usize = 12;
/// Processes with less CPU time, in microseconds, are ignored, because the kernel counts in steps
/// of this size.
const CPU_MIN_US: u64 = 1000;

/// The pairs of two records. All pairs of one build are disturbed by the same events, so they show
/// where a difference is, but not whether it is significant.
#[derive(Clone, Debug, Serialize)]
pub struct Pairs {
    /// The number of pairs.
    pub count: usize,
    /// The number of items that exist only in A, and only in B.
    pub alone: [usize; 2],
    /// B ÷ A with the bounds of its confidence interval.
    pub ratio: Option<[f64; 3]>,
    /// The pairs with the largest difference in time.
    pub rows: Vec<PairRow>,
}

/// One pair.
#[derive(Clone, Debug, Serialize)]
pub struct PairRow {
    /// The command, source or tool.
    pub name: String,
    /// The time in A and in B, in milliseconds.
    pub ms: [f64; 2],
    /// B ÷ A.
    pub ratio: f64,
    /// The outcomes in A and in B; empty for processes.
    pub outcomes: [String; 2],
}

/// One side of a pair.
struct Half {
    key: String,
    name: String,
    ms: f64,
    outcome: String,
}

/// Matches actions by key. Returns `None` if a side has none.
pub(super) fn actions(a: &[Action], b: &[Action]) -> Option<Pairs> {
    let half = |action: &Action| {
        let name = if action.source.is_empty() { &action.tool } else { &action.source };
        let outcome = action.outcome.clone();
        Half { key: action.key.clone(), name: name.clone(), ms: action.took_ns as f64 / 1e6, outcome }
    };
    // A command that larder does not cache has no key, so it is matched by directory, tool and
    // source.
    let keyed = |action: &Action| match action.key.is_empty() {
        true => Half { key: format!("{} {} {}", action.cwd, action.tool, action.source), ..half(action) },
        false => half(action),
    };
    pairs(a.iter().map(keyed).collect(), b.iter().map(keyed).collect())
}

/// Matches processes by command line and directory (relative to the build's directory), and
/// compares their CPU time. Returns `None` if a side has none.
pub(super) fn processes([a, b]: [(&Record, &Processes); 2]) -> Option<Pairs> {
    let halves = |(record, processes): (&Record, &Processes)| -> Vec<Half> {
        let top = &record.header.cwd;
        let place = |text: &str| if top.len() > 1 { text.replace(top.as_str(), ".") } else { text.to_owned() };
        let measured = processes.all.iter().filter(|process| process.own.cpu_us() >= CPU_MIN_US);
        let half = |process: &crate::processes::Process| Half {
            key: format!("{} {}", place(&process.cwd), place(&process.command())),
            name: place(&process.command()),
            ms: process.own.cpu_us() as f64 / 1e3,
            outcome: String::new(),
        };
        measured.map(half).collect()
    };
    pairs(halves(a), halves(b))
}

fn pairs(a: Vec<Half>, b: Vec<Half>) -> Option<Pairs> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (count_a, count_b) = (a.len(), b.len());
    let mut waiting: HashMap<String, Vec<Half>> = HashMap::new();
    // Equal items are matched in order: the first with the first.
    for half in a.into_iter().rev() {
        waiting.entry(half.key.clone()).or_default().push(half);
    }
    let mut found: Vec<(Half, Half)> = Vec::new();
    for half in b {
        if let Some(other) = waiting.get_mut(&half.key).and_then(Vec::pop) {
            found.push((other, half));
        }
    }
    let (times_a, times_b): (Vec<f64>, Vec<f64>) = found.iter().map(|(a, b)| (a.ms, b.ms)).unzip();
    let estimate = statistics::paired(&times_a, &times_b);
    let count = found.len();
    let mut rows: Vec<PairRow> = found
        .into_iter()
        .map(|(a, b)| PairRow { name: b.name, ms: [a.ms, b.ms], ratio: b.ms / a.ms, outcomes: [a.outcome, b.outcome] })
        .collect();
    keep_largest(&mut rows, |row| row.ms);
    Some(Pairs {
        count,
        alone: [count_a - count, count_b - count],
        ratio: estimate.map(|estimate| [estimate.ratio, estimate.low, estimate.high]),
        rows,
    })
}

/// Sorts rows by the difference between their times in A and in B, and keeps the largest.
pub(super) fn keep_largest<T>(rows: &mut Vec<T>, ms: impl Fn(&T) -> [f64; 2]) {
    let difference = |row: &T| (ms(row)[1] - ms(row)[0]).abs();
    rows.sort_by(|x, y| difference(y).total_cmp(&difference(x)));
    rows.truncate(ROWS_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(key: &str, ms: f64) -> Half {
        Half { key: key.into(), name: key.into(), ms, outcome: String::new() }
    }

    #[test]
    fn equal_ones_pair_in_order() {
        let found = pairs(vec![half("x", 1.0), half("x", 2.0), half("y", 5.0)], vec![half("x", 1.0), half("x", 4.0)]);
        let found = found.expect("both have some");
        assert_eq!((found.count, found.alone), (2, [1, 0]));
        assert_eq!((found.rows[0].ms, found.rows[0].ratio), ([2.0, 4.0], 2.0));
        assert!(pairs(Vec::new(), vec![half("x", 1.0)]).is_none());
    }
}
