//! Summarises a run: counts of outcomes, and why commands were not hits, grouped by first cause.

use std::collections::{BTreeMap, HashMap};

use larder_model::{Bypass, Fallback, Unrecorded};
use serde::Serialize;

use crate::directory::RecordedRun;
use crate::processes::{Outcome, Process, Processes};
use crate::schema::Action;

/// The number of examples that a group lists.
const EXAMPLES_MAX: usize = 3;
/// The largest number of rows in the tables of slowest processes, most frequent programs, and
/// causes.
pub const ROWS_MAX: usize = 25;

/// The counts of a run's actions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Actions whose result came from the store.
    pub hit: u64,
    /// Hits after waiting for another process with the same action.
    pub waited: u64,
    /// Hits that were downloaded from a remote.
    pub fetched: u64,
    /// Hits that were downloaded while the tool already ran.
    pub raced: u64,
    /// Actions for which the tool ran.
    pub miss: u64,
    /// Actions for which the tool ran untouched.
    pub bypass: u64,
    /// Actions for which the tool ran because something failed.
    pub fallback: u64,
}

impl Counts {
    /// Counts actions by outcome.
    pub fn of(actions: &[Action]) -> Counts {
        let mut counts = Counts::default();
        for action in actions {
            match Outcome::named(&action.outcome) {
                Outcome::Hit => counts.hit += 1,
                Outcome::Miss => counts.miss += 1,
                Outcome::Bypass => counts.bypass += 1,
                Outcome::Fallback => counts.fallback += 1,
                Outcome::None => {}
            }
            match action.via.as_str() {
                "waited" => counts.waited += 1,
                "fetched" => counts.fetched += 1,
                "raced" => counts.raced += 1,
                _ => {}
            }
        }
        counts
    }

    /// Returns the number of all actions.
    pub fn all(&self) -> u64 {
        self.hit + self.miss + self.bypass + self.fallback
    }
}

/// If the runs to compare differ clearly, returns (hits, all actions) of the two runs that differ
/// most. Returns `None` if all runs did about the same work.
pub fn unlike(runs: &[&RecordedRun]) -> Option<[(u64, u64); 2]> {
    /// The tolerated difference, in per cent of all actions: single races or waits do not matter.
    const ABOUT: u64 = 5;
    let did = runs.iter().map(|run| Counts::of(&run.actions)).map(|counts| (counts.hit, counts.all()));
    let (least, most) = (did.clone().min()?, did.clone().max()?);
    let (few, many) = (did.clone().min_by_key(|(_, all)| *all)?, did.max_by_key(|(_, all)| *all)?);
    let differ = |a: u64, b: u64| a.abs_diff(b) * 100 > ABOUT * a.max(b);
    if differ(few.1, many.1) {
        Some([few, many])
    } else {
        (most.0.abs_diff(least.0) * 100 > ABOUT * most.1).then_some([least, most])
    }
}

/// Actions that were not hits, for the same cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// `miss`, `bypass` or `fallback`.
    pub outcome: &'static str,
    /// The cause, for people.
    pub cause: String,
    /// Why results were not recorded; empty if they were.
    pub unrecorded: String,
    /// The number of actions.
    pub count: u64,
    /// Their total time, in nanoseconds.
    pub took_ns: u64,
    /// The sources or tools of some of them.
    pub examples: Vec<String>,
}

/// Groups actions that were not hits by cause, the most frequent cause first.
pub fn causes(actions: &[Action]) -> Vec<Group> {
    let mut groups: BTreeMap<(&'static str, String, String), Group> = BTreeMap::new();
    for action in actions {
        let outcome = Outcome::named(&action.outcome);
        if matches!(outcome, Outcome::Hit | Outcome::None) {
            continue;
        }
        let (cause, unrecorded) = cause(action, outcome);
        let group = groups.entry((outcome.name(), cause.clone(), unrecorded.clone())).or_insert_with(|| Group {
            outcome: outcome.name(),
            cause,
            unrecorded,
            count: 0,
            took_ns: 0,
            examples: Vec::new(),
        });
        group.count += 1;
        group.took_ns += action.took_ns;
        let name = if action.source.is_empty() { &action.tool } else { &action.source };
        if group.examples.len() < EXAMPLES_MAX && !group.examples.contains(name) {
            group.examples.push(name.clone());
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| (b.count, b.took_ns, &a.cause).cmp(&(a.count, a.took_ns, &b.cause)));
    groups
}

/// Returns the cause in words, and why the result was not recorded.
fn cause(action: &Action, outcome: Outcome) -> (String, String) {
    fn sentence<R: Copy>(all: &[R], code: &str, of: fn(R) -> (&'static str, &'static str)) -> String {
        let found = all.iter().map(|&reason| of(reason)).find(|(its, _)| *its == code);
        found.map_or_else(|| code.to_owned(), |(_, text)| text.to_owned())
    }
    let reason = &action.reason;
    match outcome {
        Outcome::Bypass => (sentence(Bypass::ALL, reason, |why| (why.code(), why.sentence())), String::new()),
        Outcome::Fallback => (sentence(Fallback::ALL, reason, |why| (why.code(), why.sentence())), String::new()),
        _ => {
            let unrecorded = sentence(Unrecorded::ALL, reason, |why| (why.code(), why.sentence()));
            let cause = if action.cause.is_empty() { "nothing was recorded for it" } else { &action.cause };
            (cause.to_owned(), unrecorded)
        }
    }
}

/// All processes with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamedProcesses {
    /// The name.
    pub name: String,
    /// The number of processes.
    pub count: u64,
    /// The CPU time that they used themselves, in microseconds.
    pub cpu_us: u64,
    /// The part of that in the kernel, in microseconds.
    pub system_us: u64,
    /// The sum of their life times, in nanoseconds.
    pub wall_ns: u64,
    /// The number of page faults.
    pub faults: u64,
    /// The peak memory of a single one, in bytes.
    pub peak_bytes: u64,
}

/// Groups processes by name, the most frequent name first.
pub fn kinds(processes: &Processes) -> Vec<NamedProcesses> {
    let mut kinds: HashMap<&str, NamedProcesses> = HashMap::new();
    for process in &processes.all {
        let kind = kinds.entry(&process.label).or_default();
        kind.count += 1;
        kind.cpu_us += process.own.cpu_us();
        kind.system_us += process.own.system_us;
        kind.wall_ns += process.wall_ns();
        kind.faults += process.own.minor_faults + process.own.major_faults;
        kind.peak_bytes = kind.peak_bytes.max(process.own.peak_bytes);
    }
    let mut kinds: Vec<NamedProcesses> =
        kinds.into_iter().map(|(name, kind)| NamedProcesses { name: name.to_owned(), ..kind }).collect();
    kinds.sort_by(|a, b| (b.count, b.cpu_us, &a.name).cmp(&(a.count, a.cpu_us, &b.name)));
    kinds
}

/// Returns the indices of the processes with the most CPU time of their own.
pub fn slowest(processes: &Processes) -> Vec<usize> {
    let mut places: Vec<usize> = (0..processes.all.len()).collect();
    let key = |at: &usize| {
        let process: &Process = &processes.all[*at];
        std::cmp::Reverse((process.own.cpu_us(), process.wall_ns()))
    };
    places.sort_by_key(key);
    places.truncate(ROWS_MAX);
    places
}

/// Returns the time of each step of the wrappers in nanoseconds, summed over all actions, the
/// longest first.
pub fn phases(actions: &[Action]) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, ns) in actions.iter().flat_map(|action| &action.phases) {
        *sums.entry(name).or_default() += ns;
    }
    let mut sums: Vec<(String, u64)> = sums.into_iter().map(|(name, ns)| (name.to_owned(), ns)).collect();
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::processes;
    use crate::processes::tests::a_run;

    fn action(outcome: &str, reason: &str, cause: &str, source: &str) -> Action {
        let [outcome, reason, cause, source] = [outcome, reason, cause, source].map(str::to_owned);
        Action { outcome, reason, cause, source, ..Action::default() }
    }

    #[test]
    fn grouped_by_first_cause() {
        let actions = [
            action("miss", "", "x.h changed", "a.c"),
            action("miss", "", "x.h changed", "b.c"),
            action("miss", "clock", "", "c.c"),
            action("bypass", "unknown-tool", "", "tool"),
            action("hit", "", "", "d.c"),
        ];
        let groups = causes(&actions);
        assert_eq!((groups[0].cause.as_str(), groups[0].count), ("x.h changed", 2));
        assert_eq!(groups[0].examples, ["a.c", "b.c"]);
        let clock = groups.iter().find(|group| group.examples == ["c.c"]).expect("is there");
        assert!(clock.unrecorded.contains("time") && clock.cause.starts_with("nothing"));
        assert!(groups.iter().any(|group| group.outcome == "bypass" && group.cause.contains("does not know")));
        assert_eq!(Counts::of(&actions), Counts { hit: 1, miss: 3, bypass: 1, ..Counts::default() });
    }

    #[test]
    fn tables_of_a_run() {
        let found = processes(&a_run());
        let kinds = kinds(&found);
        assert_eq!((kinds[0].name.as_str(), kinds[0].count), ("larder gcc", 2));
        assert_eq!(slowest(&found)[0], 3);
        assert_eq!(phases(&a_run().actions), [("lookup".to_owned(), 3_000_000)]);
    }
}
