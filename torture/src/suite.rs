//! Runs all chosen cases, several at once.
//!
//! Unaware of: what is printed.

use crate::caches::{Chosen, Observer};
use crate::case::Case;
use crate::drive::{StepResult, drive};
use crate::machine::Machine;
use crate::step::Expect;
use anyhow::Result;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// The result of a case.
pub struct CaseResult {
    /// The name of the case.
    pub name: String,
    /// True if larder's depfile observer can give the hits of this case.
    pub provable: bool,
    /// The reason why the case was skipped, if it was.
    pub skipped: Option<String>,
    /// The results of the steps, in order.
    pub steps: Vec<StepResult>,
    /// How long the case took, in seconds.
    pub seconds: f64,
}

impl CaseResult {
    /// Returns true if a step differs.
    pub fn is_wrong(&self) -> bool {
        self.steps.iter().any(|step| !step.wrong.is_empty())
    }

    /// Returns true if the step should hit with this observer.
    pub fn counts_as_hit(&self, step: &StepResult, observer: Option<Observer>) -> bool {
        step.expect == Expect::Hit && (observer != Some(Observer::Depfile) || self.provable && step.depfile)
    }
}

/// Runs `cases`, `jobs` at a time, below `work`. Calls `done` as each case ends.
pub fn run(
    cases: &[Case],
    cache: &Chosen,
    machine: &Machine,
    work: &Path,
    jobs: usize,
    done: impl Fn(&CaseResult) + Sync,
) -> Result<Vec<CaseResult>> {
    let queue = Mutex::new(cases.iter().enumerate());
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no thread panics while it takes a case").next();
                    let Some((at, case)) = next else { break };
                    let result = one(case, cache, machine, &work.join(at.to_string()));
                    done(&result);
                    results.lock().expect("no thread panics while it adds a result").push((at, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("all threads have ended");
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

fn one(case: &Case, cache: &Chosen, machine: &Machine, dir: &Path) -> CaseResult {
    let start = Instant::now();
    let (name, provable) = (case.name.clone(), case.provable);
    let mut result = CaseResult { name, provable, skipped: None, steps: Vec::new(), seconds: 0.0 };
    if let Some(need) = machine.lacks(&case.needs) {
        result.skipped = Some(need.to_string());
    } else if case.uses_any() && !cache.kind.takes_any() {
        result.skipped = Some(format!("{} supports compilers only", cache.kind.name()));
    } else {
        result.steps = drive(case, cache, dir).unwrap_or_else(|error| vec![own_trouble(&error)]);
    }
    result.seconds = start.elapsed().as_secs_f64();
    result
}

/// Reports an error of the suite itself as a wrong step, so that the other cases still run.
fn own_trouble(error: &anyhow::Error) -> StepResult {
    let wrong = vec![format!("the suite itself: {error:#}")];
    StepResult {
        label: "suite".to_owned(),
        expect: Expect::Any,
        wrong,
        depfile: false,
        counted: None,
        said: String::new(),
        plain: None,
    }
}
