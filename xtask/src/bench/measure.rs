//! Runs commands in turn, in many rounds, and keeps what each run cost.
//!
//! Runs are interleaved, because a machine changes over time, and a disturbance then affects all
//! subjects. Medians and lower quartiles are used, because a disturbance only makes a run slower.

use super::statistics::quantile;
use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Caches do not trust the times of files that changed less than this ago.
pub(crate) const SETTLING: Duration = Duration::from_secs(3);

/// Something to measure.
pub(crate) trait Subject {
    /// Returns the name in tables.
    fn name(&self) -> &str;

    /// Returns the command of one run.
    fn command(&self) -> Command;

    /// Removes what the previous run made. Runs before each run and is not measured.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Checks that the run did what it should. Runs after the first and the last run and is not
    /// measured.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the CPU time so far of a server that works for the command and is not its child.
    fn server_cpu(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// Returns how often it has hit so far, or `None` if it has no hits or does not count them.
    fn hits(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns n if it takes part in every n-th round only. This is more than 1 for slow subjects.
    fn every(&self) -> usize {
        1
    }

    /// Returns true if it executes so little that one can step through it.
    fn is_short(&self) -> bool {
        false
    }
}

/// The costs of all runs of one subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) samples: Vec<Usage>,
    /// The minor page faults of each run, of the command and all descendants that were waited for.
    pub(crate) faults: Vec<f64>,
}

impl Series {
    /// Returns the median CPU time.
    pub(crate) fn cpu_median(&self) -> Duration {
        quantile(self.samples.iter().map(|usage| usage.cpu).collect(), 1, 2)
    }

    /// Returns the median wall time.
    pub(crate) fn wall_median(&self) -> Duration {
        quantile(self.samples.iter().map(|usage| usage.wall).collect(), 1, 2)
    }

    /// Returns the CPU time of each run, in seconds.
    pub(crate) fn cpu_s(&self) -> Vec<f64> {
        self.samples.iter().map(|usage| usage.cpu.as_secs_f64()).collect()
    }

    /// Returns the wall time of each run, in seconds.
    pub(crate) fn wall_s(&self) -> Vec<f64> {
        self.samples.iter().map(|usage| usage.wall.as_secs_f64()).collect()
    }
}

/// Returns the subject's command behind `tool words`, in its directory and environment, without
/// input and output.
pub(crate) fn behind(tool: &OsStr, words: &[&OsStr], subject: &dyn Subject) -> Command {
    let inner = subject.command();
    let mut command = Command::new(tool);
    command.args(words).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = inner.get_current_dir() {
        command.current_dir(dir);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs every subject once per round, in turn, for `rounds` rounds. The series are in the order of
/// the subjects.
pub(crate) fn interleaved(label: &str, subjects: &[&dyn Subject], rounds: usize) -> Result<Vec<Series>> {
    let mut all = vec![Series::default(); subjects.len()];
    let bar = Bar::new(label, rounds as u64);
    for round in 0..rounds {
        for (subject, series) in subjects.iter().zip(&mut all) {
            if round % subject.every() == 0 {
                let last = round + subject.every() >= rounds;
                let (usage, faults) = one(*subject, round == 0 || last)?;
                series.samples.push(usage);
                series.faults.push(faults as f64);
            }
        }
        bar.at(round as u64 + 1);
    }
    bar.end(&format!("{label}: {rounds} rounds"));
    Ok(all)
}

/// Returns the minor page faults so far of all children that were waited for, and of their
/// descendants. A difference of two values belongs to the child between them.
pub(crate) fn faults_of_children() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the page faults of children")?;
    Ok(usage.minor_page_faults().unsigned_abs())
}

fn one(subject: &dyn Subject, check: bool) -> Result<(Usage, u64)> {
    subject.prepare()?;
    let mut command = subject.command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server_before = subject.server_cpu()?;
    let faults_before = faults_of_children()?;
    let (status, mut usage) = run::measured(&mut command)?;
    let faults = faults_of_children()?.saturating_sub(faults_before);
    usage.cpu += subject.server_cpu()?.saturating_sub(server_before);
    ensure!(status.success(), "{}: {} ended with {status}", subject.name(), run::shown(&command));
    if check {
        subject.check().with_context(|| format!("{} did not do what is measured", subject.name()))?;
    }
    Ok((usage, faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that does nothing, in every n-th round.
    struct Nothing(usize);

    impl Subject for Nothing {
        fn name(&self) -> &str {
            "nothing"
        }

        fn command(&self) -> Command {
            Command::new("/bin/true")
        }

        fn every(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn each_run_has_its_page_faults() {
        let all = interleaved("nothing", &[&Nothing(1), &Nothing(2)], 3).expect("it runs");
        let runs: Vec<_> = all.iter().map(|series| (series.samples.len(), series.faults.len())).collect();
        assert_eq!(runs, [(3, 3), (2, 2)]);
        assert!(all.iter().flat_map(|series| &series.faults).all(|&faults| faults > 0.0), "{all:?}");
    }
}
