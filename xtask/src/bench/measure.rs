//! Runs commands in turn, again and again, and keeps what each run cost.
//!
//! Interleaved, because a machine changes while one measures: what disturbs one subject disturbs all. Medians and lower
//! quartiles, because disturbance only ever adds.

use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use larder_samples::quantile;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Caches do not believe the times of files that changed just now.
pub(crate) const SETTLING: Duration = Duration::from_secs(3);

/// One thing to measure.
pub(crate) trait Subject {
    /// What it is called in tables.
    fn name(&self) -> &str;

    /// The command of one run.
    fn command(&self) -> Command;

    /// Unmeasured, before each run: takes away what the last run made.
    fn prepare(&self) -> Result<()>;

    /// Unmeasured, after the first and the last run: whether it did what it is measured for.
    fn check(&self) -> Result<()>;

    /// CPU time so far of a server that works for the command without being its child.
    fn server_cpu(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// How often it has hit so far; `None` where nothing hits or nothing counts.
    fn hits(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// It takes part in every n-th round: more than 1 for what takes long.
    fn every(&self) -> usize {
        1
    }

    /// It executes too much to be watched instruction by instruction.
    fn is_long(&self) -> bool {
        self.every() > 1
    }
}

/// What the runs of one subject cost, each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) samples: Vec<Usage>,
    /// Page faults of each that needed no disk, of the command and all that it waited for; none where nobody counted.
    pub(crate) faults: Vec<u64>,
}

impl Series {
    /// The middle CPU time.
    pub(crate) fn cpu_median(&self) -> Duration {
        self.cpu_quantile(1, 2)
    }

    /// The CPU time that a quarter of the runs stayed below.
    pub(crate) fn cpu_lower_quartile(&self) -> Duration {
        self.cpu_quantile(1, 4)
    }

    /// The middle wall time.
    pub(crate) fn wall_median(&self) -> Duration {
        quantile(self.samples.iter().map(|usage| usage.wall).collect(), 1, 2)
    }

    /// The CPU time of each run, in s.
    pub(crate) fn cpu_s(&self) -> Vec<f64> {
        self.samples.iter().map(|usage| usage.cpu.as_secs_f64()).collect()
    }

    /// The wall time of each run, in s.
    pub(crate) fn wall_s(&self) -> Vec<f64> {
        self.samples.iter().map(|usage| usage.wall.as_secs_f64()).collect()
    }

    /// The middle number of page faults.
    pub(crate) fn faults_median(&self) -> u64 {
        quantile(self.faults.clone(), 1, 2)
    }

    /// Every sample, for programs.
    pub(crate) fn json(&self) -> Value {
        let mut json = json!({ "cpu_s": self.cpu_s(), "wall_s": self.wall_s() });
        if !self.faults.is_empty() {
            json["page_faults"] = json!(self.faults);
        }
        json
    }

    fn cpu_quantile(&self, over: usize, under: usize) -> Duration {
        quantile(self.samples.iter().map(|usage| usage.cpu).collect(), over, under)
    }
}

/// The subject's command with `tool words` in front, in its directory and environment, reading and saying nothing.
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

/// Runs every subject once a round, in turn, `rounds` times; the series come in the subjects' order.
pub(crate) fn interleaved(label: &str, subjects: &[&dyn Subject], rounds: usize) -> Result<Vec<Series>> {
    let mut all = vec![Series::default(); subjects.len()];
    let bar = Bar::new(label, rounds as u64);
    for round in 0..rounds {
        for (subject, series) in subjects.iter().zip(&mut all) {
            if round % subject.every() == 0 {
                let last = round + subject.every() >= rounds;
                let (usage, faults) = one(*subject, round == 0 || last)?;
                series.samples.push(usage);
                series.faults.push(faults);
            }
        }
        bar.at(round as u64 + 1);
    }
    bar.end(&format!("{label}: {rounds} rounds"));
    Ok(all)
}

/// Page faults so far that needed no disk, of all children that were waited for and of theirs: a difference of two is
/// what `wait4` says of the one between them.
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
        subject.check().with_context(|| format!("{} is not what was to be measured", subject.name()))?;
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

        fn prepare(&self) -> Result<()> {
            Ok(())
        }

        fn check(&self) -> Result<()> {
            Ok(())
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
        assert!(all.iter().flat_map(|series| &series.faults).all(|&faults| faults > 0), "{all:?}");
    }

    #[test]
    fn page_faults_are_told_where_they_were_counted() {
        let series = Series { faults: vec![9, 1, 5], ..Series::default() };
        assert_eq!(series.faults_median(), 5);
        assert_eq!(series.json()["page_faults"], json!([9, 1, 5]));
        assert!(Series::default().json().get("page_faults").is_none());
    }
}
