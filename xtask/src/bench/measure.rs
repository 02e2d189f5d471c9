//! Runs commands in turn, again and again, and keeps what each run cost.
//!
//! Interleaved, because a machine changes while one measures: what disturbs one subject disturbs all. Medians and lower
//! quartiles, because disturbance only ever adds.

use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
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
}

/// What the runs of one subject cost, each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) samples: Vec<Usage>,
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

    fn cpu_quantile(&self, over: usize, under: usize) -> Duration {
        quantile(self.samples.iter().map(|usage| usage.cpu).collect(), over, under)
    }
}

/// Runs every subject once a round, in turn, `rounds` times; the series come in the subjects' order.
pub(crate) fn interleaved(label: &str, subjects: &[&dyn Subject], rounds: usize) -> Result<Vec<Series>> {
    let mut all = vec![Series::default(); subjects.len()];
    let bar = Bar::new(label, rounds as u64);
    for round in 0..rounds {
        for (subject, series) in subjects.iter().zip(&mut all) {
            if round % subject.every() == 0 {
                let last = round + subject.every() >= rounds;
                series.samples.push(one(*subject, round == 0 || last)?);
            }
        }
        bar.at(round as u64 + 1);
    }
    bar.end(&format!("{label}: {rounds} rounds"));
    Ok(all)
}

fn one(subject: &dyn Subject, check: bool) -> Result<Usage> {
    subject.prepare()?;
    let mut command = subject.command();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server_before = subject.server_cpu()?;
    let (status, mut usage) = run::measured(&mut command)?;
    usage.cpu += subject.server_cpu()?.saturating_sub(server_before);
    ensure!(status.success(), "{}: {} ended with {status}", subject.name(), run::shown(&command));
    if check {
        subject.check().with_context(|| format!("{} is not what was to be measured", subject.name()))?;
    }
    Ok(usage)
}

/// The value that `over / under` of all values do not exceed, to the nearest of them; zero of none.
pub(crate) fn quantile(mut values: Vec<Duration>, over: usize, under: usize) -> Duration {
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((last * over + under / 2) / under).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let check = |values: &[u64], over, under, expected| {
            let values = values.iter().map(|&millis| Duration::from_millis(millis)).collect();
            assert_eq!(quantile(values, over, under), Duration::from_millis(expected));
        };
        check(&[], 1, 2, 0);
        check(&[7], 1, 4, 7);
        check(&[5, 1, 3], 1, 2, 3);
        check(&[9, 1, 5, 3, 7], 1, 4, 3);
    }
}
