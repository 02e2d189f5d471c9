//! Two records side by side: what differs around them, whether one is faster, and where the difference went.
//!
//! `contexts` says what is not the same on both sides, `pairs` compares actions and processes that both have. Unaware
//! of: how any of it is shown.

mod contexts;
mod pairs;

use serde::Serialize;

use crate::directory::{Record, RecordedRun};
use crate::processes::{Processes, processes};
use crate::statistics::{self, Estimate, Verdict};
use crate::summary::{kinds, phases, unlike};

pub use contexts::{Part, Unlike};
pub use pairs::{PairRow, Pairs};

/// Others may use so much of the processors; above it a warning.
const FOREIGN_MAX: f64 = 0.05;
/// Rows that say where a difference went.
const ROWS_MAX: usize = 12;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// A difference below this is none: 0.01 is 1 %.
    pub margin: f64,
    /// Give a verdict also where the contexts differ.
    pub anyway: bool,
    /// Parts of the context that are meant to differ.
    pub expected: Vec<Part>,
}

/// What there is to say.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Names of both.
    pub names: [String; 2],
    /// What is not the same.
    pub unlike: Vec<Unlike>,
    /// Why there is no verdict; empty where there is one.
    pub refused: String,
    /// What has to be known about the samples.
    pub warnings: Vec<String>,
    /// Wall time first.
    pub measures: Vec<Measure>,
    /// Actions that both have, by key.
    pub actions: Option<Pairs>,
    /// Processes that both have, by command line.
    pub processes: Option<Pairs>,
    /// Where the difference went, by process name: the largest first.
    pub by_kind: Vec<Went>,
    /// The same by step of the wrappers.
    pub by_phase: Vec<Went>,
}

/// A quantity on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// What it is.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The middle one of A and of B.
    pub medians: [f64; 2],
    /// Samples of A and of B.
    pub samples: [usize; 2],
    /// B ÷ A with its interval; none where there are no samples.
    pub ratio: Option<[f64; 3]>,
    /// Whether pairs were compared.
    pub paired: bool,
    /// `less`, `more`, `equal`, `cannot tell`, or `refused`.
    pub verdict: &'static str,
    /// So many more runs a side would tell; none where it can be told, or where no sensible number would.
    pub more_runs: Option<usize>,
}

/// Part of a difference.
#[derive(Clone, Debug, Serialize)]
pub struct Went {
    /// Of what.
    pub name: String,
    /// How many in A and in B.
    pub counts: [u64; 2],
    /// Milliseconds in A and in B.
    pub ms: [f64; 2],
    /// Of these in the kernel.
    pub kernel_ms: [f64; 2],
}

/// Compare `b` with `a`.
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
    let traced = [a, b].map(|record| record.explaining().map(|run| (run, processes(run))));
    let [Some((run_a, processes_a)), Some((run_b, processes_b))] = &traced else {
        return Comparison { measures, ..nothing(a, b, unlike, refused, warnings) };
    };
    Comparison {
        measures,
        actions: pairs::actions(&run_a.actions, &run_b.actions),
        processes: pairs::processes([(a, processes_a), (b, processes_b)]),
        by_kind: by_kind(processes_a, processes_b),
        by_phase: by_phase(run_a, run_b),
        ..nothing(a, b, unlike, refused, warnings)
    }
}

fn nothing(a: &Record, b: &Record, unlike: Vec<Unlike>, refused: String, warnings: Vec<String>) -> Comparison {
    Comparison {
        names: [a.header.name.clone(), b.header.name.clone()],
        unlike,
        refused,
        warnings,
        measures: Vec::new(),
        actions: None,
        processes: None,
        by_kind: Vec::new(),
        by_phase: Vec::new(),
    }
}

fn refusal(mut blocking: Vec<&str>) -> String {
    blocking.dedup();
    let expected = blocking.iter().map(|part| format!("--expect {part}")).collect::<Vec<_>>().join(" ");
    format!("no verdict, since {} differ: with {expected} they are meant to, with --anyway all is", blocking.join(", "))
}

/// The timed runs of both.
struct Samples<'a> {
    a: Vec<&'a RecordedRun>,
    b: Vec<&'a RecordedRun>,
    paired: bool,
}

impl<'a> Samples<'a> {
    /// Pairs where both are sides of one session, each with the half that ran beside it.
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
        // A session that was cut off before its first pair has runs of either side at most.
        if a.is_empty() { Samples { a: timed_a, b: timed_b, paired: false } } else { Samples { a, b, paired: true } }
    }

    /// Why the two did not do the same: one of them failed, or failed otherwise.
    fn ended_otherwise(&self) -> Option<String> {
        let codes = |runs: &[&RecordedRun]| -> std::collections::BTreeSet<i32> {
            runs.iter().filter_map(|run| run.run.end.as_ref()).map(|end| end.exit_code).collect()
        };
        let (a, b) = (codes(&self.a), codes(&self.b));
        let shown =
            |codes: &std::collections::BTreeSet<i32>| codes.iter().map(i32::to_string).collect::<Vec<_>>().join(" or ");
        (a != b && !a.is_empty() && !b.is_empty()).then(|| {
            let (a, b) = (shown(&a), shown(&b));
            format!("no verdict, since A ended with {a} and B with {b}: with --anyway they are compared all the same")
        })
    }
}

/// A quantity of a run.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    of: fn(&crate::form::RunEnd) -> f64,
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
            verdict: verdict.map_or("cannot tell", verdict_name),
            more_runs: match verdict {
                Some(Verdict::CannotTell(more)) => more,
                Some(_) => None,
                // Where one is 0, there is no ratio.
                None => statistics::PAIRS_MIN.checked_sub(a.len().min(b.len())).filter(|more| *more > 0),
            },
        }
    }
}

/// As it is written and shown.
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Less => "less",
        Verdict::More => "more",
        Verdict::Equal => "equal",
        Verdict::CannotTell(_) => "cannot tell",
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
                "{name}: in {count} of {of} runs others used more than {:.0} % of the processors, at most {:.0} %",
                FOREIGN_MAX * 100.0,
                most * 100.0
            ));
        }
        if let Some([(a, of_a), (b, of_b)]) = unlike(runs) {
            found.push(format!(
                "{name}: its runs did not do the same: in one {a} of {of_a} were hits, in another {b} of {of_b}"
            ));
        }
        if runs.iter().any(|run| run.run.traced) {
            found.push(format!(
                "{name}: its times are of a run whose processes were followed; record it with -n 8 or more"
            ));
        }
        let failed = runs.iter().filter(|run| run.run.end.as_ref().is_some_and(|end| end.exit_code != 0)).count();
        if failed > 0 {
            found.push(format!("{name}: {failed} of {} runs failed", runs.len()));
        }
        let ended = record.runs.iter().filter_map(|run| run.run.end.as_ref());
        if ended.clone().any(|end| end.interrupted) {
            found.push(format!("{name}: a run was interrupted; the others are compared"));
        }
        if ended.clone().any(|end| end.left > 0) {
            found.push(format!("{name}: processes went on when the command had ended: what they used is others'"));
        }
        if record.runs.iter().any(|run| run.run.end.is_none()) {
            found.push(format!("{name}: the record was cut off; what was complete is compared"));
        }
    }
    let untracked = |record: &Record| record.context.project.as_ref().map(|git| git.untracked_digest.clone());
    if untracked(a) != untracked(b) {
        found.push("files that are in no commit are not the same in both".to_owned());
    }
    if !samples.paired {
        let remedy = "`larder record --ab` runs both in turn";
        found.push(format!(
            "the two were not measured side by side: what changed in between is in the difference ({remedy})"
        ));
    }
    found
}

fn by_kind(a: &Processes, b: &Processes) -> Vec<Went> {
    let of = |processes| -> std::collections::BTreeMap<String, (u64, f64, f64)> {
        let row = |kind: crate::summary::Kind| {
            (kind.name, (kind.count, kind.cpu_us as f64 / 1e3, kind.system_us as f64 / 1e3))
        };
        kinds(processes).into_iter().map(row).collect()
    };
    largest(of(a), of(b))
}

fn by_phase(a: &RecordedRun, b: &RecordedRun) -> Vec<Went> {
    let of = |run: &RecordedRun| -> std::collections::BTreeMap<String, (u64, f64, f64)> {
        let count = run.actions.len() as u64;
        phases(&run.actions).into_iter().map(|(name, ns)| (name, (count, ns as f64 / 1e6, 0.0))).collect()
    };
    largest(of(a), of(b))
}

type Sums = std::collections::BTreeMap<String, (u64, f64, f64)>;

fn largest(a: Sums, b: Sums) -> Vec<Went> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut rows: Vec<Went> = names
        .into_iter()
        .map(|name| {
            let [one, other] = [&a, &b].map(|sums| sums.get(name).copied().unwrap_or_default());
            Went { name: name.clone(), counts: [one.0, other.0], ms: [one.1, other.1], kernel_ms: [one.2, other.2] }
        })
        .collect();
    rows.sort_by(|x, y| (y.ms[1] - y.ms[0]).abs().total_cmp(&(x.ms[1] - x.ms[0]).abs()));
    rows.truncate(ROWS_MAX);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{Header, Run, RunEnd, Side, Usage};
    use crate::processes::tests::a_run;

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
        assert_eq!(same.measures[3].more_runs, None, "no faults, no ratio");
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
        assert!(comparison.warnings.iter().any(|warning| warning.contains("followed")));
    }
}
