//! Compares two records: what differs in their contexts, whether one is faster, and where the
//! difference comes from.
//!
//! `contexts` compares the contexts. `pairs` compares actions and processes that both records have.
//!
//! Unaware of: how any of it is shown.

mod contexts;
mod pairs;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::directory::{Record, RecordedRun};
use crate::processes::{Processes, processes};
use crate::statistics::{self, Estimate, Verdict};
use crate::summary::{kinds, phases, unlike};

pub use contexts::{Part, Unlike};
pub use pairs::{PairRow, Pairs};

/// The share of all processors that other processes may use without a warning.
const FOREIGN_MAX: f64 = 0.05;

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Smaller differences are ignored. For example, 0.01 is 1 %.
    pub margin: f64,
    /// Give a verdict even if the contexts differ.
    pub anyway: bool,
    /// Parts of the context that the user expects to differ.
    pub expected: Vec<Part>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// The names of both records.
    pub names: [String; 2],
    /// The differences between the contexts.
    pub unlike: Vec<Unlike>,
    /// Why there is no verdict, or empty if there is one.
    pub refused: String,
    /// What may have disturbed the measurement.
    pub warnings: Vec<String>,
    /// The measured quantities, wall time first.
    pub measures: Vec<Measure>,
    /// The actions that both records have, matched by key.
    pub actions: Option<Pairs>,
    /// The processes that both records have, matched by command line.
    pub processes: Option<Pairs>,
    /// The CPU time by process name, the largest difference first.
    pub by_kind: Vec<Went>,
    /// The time by step of the wrappers, the largest difference first.
    pub by_phase: Vec<Went>,
}

/// A quantity, measured on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// The name of the quantity.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The medians of A and of B.
    pub medians: [f64; 2],
    /// The number of samples of A and of B.
    pub samples: [usize; 2],
    /// B ÷ A with the bounds of its confidence interval. `None` if there are no samples.
    pub ratio: Option<[f64; 3]>,
    /// True if the samples were compared in pairs.
    pub paired: bool,
    /// `less`, `more`, `equal`, `cannot tell`, or `refused`.
    pub verdict: &'static str,
    /// How many more runs per side would allow a verdict. `None` if there is a verdict, or if no
    /// practical number of runs would be enough.
    pub more_runs: Option<usize>,
}

/// One row of a list of where a difference comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Went {
    /// The name of a program or a step.
    pub name: String,
    /// The number of processes or actions in A and in B.
    pub counts: [u64; 2],
    /// The time in A and in B, in milliseconds.
    pub ms: [f64; 2],
    /// The part of that time in the kernel.
    pub kernel_ms: [f64; 2],
}

/// Compares `b` with `a`.
pub fn compare(a: &Record, b: &Record, options: &Options) -> Comparison {
    let unlike = contexts::unlike(a, b);
    let blocking: Vec<&str> = unlike
        .iter()
        .filter(|unlike| unlike.part.blocks() && !options.expected.contains(&unlike.part))
        .map(|unlike| unlike.part.name())
        .collect();
    let samples = Samples::of(a, b);
    let refused = match () {
        () if options.anyway => String::new(),
        () if !blocking.is_empty() => refusal(blocking),
        () => samples.ended_otherwise().unwrap_or_default(),
    };
    let mut measures: Vec<_> = MEASURES.iter().map(|measure| measure.of(&samples, options.margin)).collect();
    if !refused.is_empty() {
        measures.iter_mut().for_each(|measure| (measure.verdict, measure.more_runs) = ("refused", None));
    }
    let warnings = warnings(a, b, &samples);
    let names = [a, b].map(|record| record.header.name.clone());
    let measured = Comparison { names, unlike, refused, warnings, measures, ..Comparison::default() };
    let traced = [a, b].map(|record| record.explaining().map(|run| (run, processes(run))));
    let [Some((run_a, processes_a)), Some((run_b, processes_b))] = &traced else { return measured };
    Comparison {
        actions: pairs::actions(&run_a.actions, &run_b.actions),
        processes: pairs::processes([(a, processes_a), (b, processes_b)]),
        by_kind: by_kind(processes_a, processes_b),
        by_phase: by_phase(run_a, run_b),
        ..measured
    }
}

fn refusal(mut blocking: Vec<&str>) -> String {
    blocking.dedup();
    let expected = blocking.iter().map(|part| format!("--expect {part}")).collect::<Vec<_>>().join(" ");
    format!("no verdict, because {} differ: add {expected} if that is intended, or --anyway", blocking.join(", "))
}

/// The timed runs of both records.
struct Samples<'a> {
    a: Vec<&'a RecordedRun>,
    b: Vec<&'a RecordedRun>,
    paired: bool,
}

impl<'a> Samples<'a> {
    /// Takes pairs of runs if both records are sides of one session: each run with the run that was
    /// next to it.
    fn of(a: &'a Record, b: &'a Record) -> Self {
        let (timed_a, timed_b) = (a.timed(), b.timed());
        let session = |record: &Record| record.header.side.as_ref().map(|side| side.session.clone());
        if session(a).is_none() || session(a) != session(b) {
            return Samples { a: timed_a, b: timed_b, paired: false };
        }
        let half_of = |one: &&'a RecordedRun| {
            let half = timed_b.iter().find(|other| other.run.pair.is_some() && other.run.pair == one.run.pair);
            half.map(|half| (*one, *half))
        };
        let (a, b): (Vec<_>, Vec<_>) = timed_a.iter().filter_map(half_of).unzip();
        // A session that ended before its first pair was complete has at most runs of one side.
        if a.is_empty() { Samples { a: timed_a, b: timed_b, paired: false } } else { Samples { a, b, paired: true } }
    }

    /// Returns why the two sides cannot be compared, if their exit codes differ.
    fn ended_otherwise(&self) -> Option<String> {
        let codes = |runs: &[&RecordedRun]| -> BTreeSet<i32> {
            runs.iter().filter_map(|run| run.run.end.as_ref()).map(|end| end.exit_code).collect()
        };
        let (a, b) = (codes(&self.a), codes(&self.b));
        let shown = |codes: &BTreeSet<i32>| codes.iter().map(i32::to_string).collect::<Vec<_>>().join(" or ");
        (a != b && !a.is_empty() && !b.is_empty()).then(|| {
            let (a, b) = (shown(&a), shown(&b));
            format!("no verdict, because A ended with {a} and B with {b}: add --anyway to compare them")
        })
    }
}

/// A quantity that is measured for each run.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    of: fn(&crate::schema::RunEnd) -> f64,
}

const MEASURES: &[Quantity] = &[
    Quantity { name: "wall time", unit: "s", of: |end| end.wall_ns as f64 / 1e9 },
    Quantity { name: "CPU time", unit: "s", of: |end| end.usage.cpu_us() as f64 / 1e6 },
    Quantity { name: "CPU time in the kernel", unit: "s", of: |end| end.usage.system_us as f64 / 1e6 },
    Quantity { name: "page faults", unit: "", of: |end| (end.usage.minor_faults + end.usage.major_faults) as f64 },
    Quantity {
        name: "peak memory of a process",
        unit: "MiB",
        of: |end| end.usage.peak_bytes as f64 / f64::from(1 << 20),
    },
    Quantity {
        name: "context switches",
        unit: "",
        of: |end| (end.usage.voluntary_switches + end.usage.involuntary_switches) as f64,
    },
];

impl Quantity {
    fn of(&self, samples: &Samples, margin: f64) -> Measure {
        let values = |runs: &[&RecordedRun]| -> Vec<f64> {
            runs.iter().filter_map(|run| run.run.end.as_ref()).map(|end| (self.of)(end)).collect()
        };
        let (a, b) = (values(&samples.a), values(&samples.b));
        let estimate = if samples.paired { statistics::paired(&a, &b) } else { statistics::unpaired(&a, &b) };
        let verdict = estimate.map(|estimate| estimate.verdict(margin));
        Measure {
            name: self.name,
            unit: self.unit,
            medians: [statistics::median(a.clone()), statistics::median(b.clone())],
            samples: [a.len(), b.len()],
            ratio: estimate.map(|Estimate { ratio, low, high, .. }| [ratio, low, high]),
            paired: samples.paired,
            verdict: verdict.map_or("cannot tell", Verdict::name),
            more_runs: match verdict {
                Some(Verdict::CannotTell(more)) => more,
                Some(_) => None,
                // If a value is 0, there is no ratio.
                None => statistics::PAIRS_MIN.checked_sub(a.len().min(b.len())).filter(|more| *more > 0),
            },
        }
    }
}

fn warnings(a: &Record, b: &Record, samples: &Samples) -> Vec<String> {
    let mut found = Vec::new();
    for (record, runs) in [(a, &samples.a), (b, &samples.b)] {
        let name = &record.header.name;
        let disturbed =
            runs.iter().filter(|run| run.run.end.as_ref().is_some_and(|end| end.foreign_share > FOREIGN_MAX));
        let (count, most) = disturbed.fold((0, 0.0f64), |(count, most), run| {
            (count + 1, run.run.end.as_ref().map_or(most, |end| most.max(end.foreign_share)))
        });
        if count > 0 {
            let of = runs.len();
            found.push(format!(
                "{name}: in {count} of {of} runs, other processes used more than {:.0} % of the processors, at most {:.0} %",
                FOREIGN_MAX * 100.0,
                most * 100.0
            ));
        }
        if let Some([(a, of_a), (b, of_b)]) = unlike(runs) {
            found.push(format!(
                "{name}: its runs did different work: in one {a} of {of_a} were hits, in another {b} of {of_b}"
            ));
        }
        if runs.iter().any(|run| run.run.traced) {
            found.push(format!("{name}: its times are of a traced run; record it with -n 8 or more"));
        }
        let failed = runs.iter().filter(|run| run.run.end.as_ref().is_some_and(|end| end.exit_code != 0)).count();
        if failed > 0 {
            found.push(format!("{name}: {failed} of {} runs failed", runs.len()));
        }
        let ended = record.runs.iter().filter_map(|run| run.run.end.as_ref());
        if ended.clone().any(|end| end.interrupted) {
            found.push(format!("{name}: a run was interrupted and is not compared"));
        }
        if ended.clone().any(|end| end.left > 0) {
            found.push(format!(
                "{name}: processes still ran after the command ended; what they used counts as other processes' use"
            ));
        }
        if record.runs.iter().any(|run| run.run.end.is_none()) {
            found.push(format!("{name}: the record was cut off; only its complete runs are compared"));
        }
    }
    let untracked = |record: &Record| record.context.project.as_ref().map(|git| git.untracked_digest.clone());
    if untracked(a) != untracked(b) {
        found.push("untracked files differ between the two".to_owned());
    }
    if !samples.paired {
        let remedy = "`larder record --ab` alternates between both";
        found.push(format!(
            "the two were not measured in turn, so the difference includes everything that changed in between ({remedy})"
        ));
    }
    found
}

fn by_kind(a: &Processes, b: &Processes) -> Vec<Went> {
    let of = |processes| -> Sums {
        let row = |kind: crate::summary::NamedProcesses| {
            (kind.name, (kind.count, kind.cpu_us as f64 / 1e3, kind.system_us as f64 / 1e3))
        };
        kinds(processes).into_iter().map(row).collect()
    };
    largest(of(a), of(b))
}

fn by_phase(a: &RecordedRun, b: &RecordedRun) -> Vec<Went> {
    let of = |run: &RecordedRun| -> Sums {
        let count = run.actions.len() as u64;
        phases(&run.actions).into_iter().map(|(name, ns)| (name, (count, ns as f64 / 1e6, 0.0))).collect()
    };
    largest(of(a), of(b))
}

/// The count, the time and the time in the kernel (in milliseconds) by name.
type Sums = BTreeMap<String, (u64, f64, f64)>;

fn largest(a: Sums, b: Sums) -> Vec<Went> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut rows: Vec<Went> = names
        .into_iter()
        .map(|name| {
            let [one, other] = [&a, &b].map(|sums| sums.get(name).copied().unwrap_or_default());
            Went { name: name.clone(), counts: [one.0, other.0], ms: [one.1, other.1], kernel_ms: [one.2, other.2] }
        })
        .collect();
    pairs::keep_largest(&mut rows, |row| row.ms);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::a_run;
    use crate::schema::{Header, Run, RunEnd, Side, Usage};

    fn record(name: &str, letter: &str, walls: &[u64]) -> Record {
        let side = Side { session: "s".into(), letter: letter.into(), ..Side::default() };
        let run = |(pair, wall): (u32, &u64)| {
            let usage = Usage { user_us: wall / 1000, ..Usage::default() };
            let end = Some(RunEnd { wall_ns: *wall, usage, ..RunEnd::default() });
            RecordedRun { run: Run { number: pair, pair: Some(pair), end, ..Run::default() }, ..RecordedRun::default() }
        };
        let header = Header { name: name.into(), side: Some(side), ..Header::default() };
        Record { header, runs: (1..).zip(walls).map(run).collect(), ..Record::default() }
    }

    fn options() -> Options {
        Options { margin: 0.01, anyway: false, expected: Vec::new() }
    }

    #[test]
    fn pairs_of_one_session() {
        let walls: Vec<u64> = (0..12).map(|at| 1_000_000_000 + at * 50_000_000).collect();
        let faster: Vec<u64> = walls.iter().enumerate().map(|(at, wall)| wall * (900 + at as u64) / 1000).collect();
        let comparison = compare(&record("a", "a", &walls), &record("b", "b", &faster), &options());
        let wall = &comparison.measures[0];
        assert_eq!((wall.verdict, wall.paired, wall.samples), ("less", true, [12, 12]));
        assert!(comparison.refused.is_empty() && comparison.warnings.is_empty(), "{:?}", comparison.warnings);
        let same = compare(&record("a", "a", &walls), &record("b", "b", &walls), &options());
        assert_eq!(same.measures[0].verdict, "equal");
        assert_eq!(same.measures[3].more_runs, None, "without page faults there is no ratio");
        let few = compare(&record("a", "a", &walls[..3]), &record("b", "b", &walls[..3]), &options());
        assert_eq!(few.measures[3].more_runs, Some(statistics::PAIRS_MIN - 3));
    }

    #[test]
    fn one_that_fails_is_not_faster() {
        let (a, mut b) = (record("a", "a", &[9; 12]), record("b", "b", &[1; 12]));
        b.runs.iter_mut().filter_map(|run| run.run.end.as_mut()).for_each(|end| end.exit_code = 1);
        let comparison = compare(&a, &b, &options());
        assert!(comparison.refused.contains("B with 1"), "{}", comparison.refused);
        assert!(comparison.measures.iter().all(|measure| measure.verdict == "refused"));
        assert_eq!(compare(&a, &b, &Options { anyway: true, ..options() }).measures[0].verdict, "less");
        let interrupted = |end: &mut RunEnd| end.interrupted = true;
        b.runs.iter_mut().filter_map(|run| run.run.end.as_mut()).for_each(interrupted);
        assert_eq!(compare(&a, &b, &options()).measures[0].samples[1], 0);
    }

    #[test]
    fn another_machine_refuses_the_verdict() {
        let (a, mut b) = (record("a", "a", &[1, 2]), record("b", "b", &[1, 2]));
        b.context.machine.processor = "another".into();
        let comparison = compare(&a, &b, &options());
        assert!(comparison.refused.contains("--expect machine"), "{}", comparison.refused);
        assert_eq!(comparison.unlike[0].what, "processor");
        assert!(compare(&a, &b, &Options { anyway: true, ..options() }).refused.is_empty());
        let expected = Options { expected: vec![Part::Machine], ..options() };
        assert!(compare(&a, &b, &expected).refused.is_empty());
    }

    #[test]
    fn where_it_went() {
        let (mut a, mut b) = (record("a", "a", &[]), record("b", "b", &[]));
        a.runs.push(a_run());
        b.runs.push(a_run());
        b.runs[0].actions[0].took_ns *= 2;
        b.runs[0].actions[0].phases.insert("place".into(), 9_000_000);
        let comparison = compare(&a, &b, &options());
        assert_eq!(comparison.by_phase[0].name, "place");
        let actions = comparison.actions.expect("both have some");
        assert_eq!((actions.count, actions.rows[0].ratio), (3, 2.0));
        assert!(comparison.warnings.iter().any(|warning| warning.contains("traced run")));
    }
}
