//! Runs each way in rounds and keeps what it cost, and what loading packages from its tree cost.

use super::tree::Tree;
use super::ways::{Way, Ways};
use crate::bench::measure::Series;
use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The measurements of one way.
pub(super) struct Measured {
    pub(super) way: Way,
    /// The samples of all rounds. They contain the CPU time that brokers used until the tree could
    /// be used.
    pub(super) series: Series,
    /// The size of the result in bytes, or of its new part.
    pub(super) bytes: Option<u64>,
    /// The peak memory of the process itself, in kB.
    pub(super) peak_kb: u64,
    /// The cost of loading packages from the tree, for each round.
    pub(super) loading: Series,
}

/// The ways that worked, and the names of those that did not.
pub(super) struct All {
    pub(super) measured: Vec<Measured>,
    pub(super) left_out: Vec<&'static str>,
}

/// Runs each of the chosen ways once in each round.
pub(super) fn all(tree: &Tree, ways: &Ways, chosen: Vec<Way>, rounds: u32) -> Result<All> {
    let mut measured: Vec<Measured> = chosen.into_iter().map(Measured::nothing).collect();
    let mut left_out = Vec::new();
    let bar = Bar::new("image", rounds.into());
    for round in 1..=rounds {
        let mut failed = Vec::new();
        for (at, one) in measured.iter_mut().enumerate() {
            match one.run(tree, ways) {
                Err(error) if !one.way.is_needed() => {
                    println!("without `{}`: {error:#}", one.way.name);
                    failed.push(at);
                }
                done => done?,
            }
        }
        left_out.extend(failed.into_iter().rev().map(|at| measured.remove(at).way.name));
        bar.at(round.into());
    }
    bar.end(&format!("image: {}", tree.shown()));
    Ok(All { measured, left_out })
}

impl All {
    pub(super) fn find(&self, name: &str) -> Option<&Measured> {
        self.measured.iter().find(|one| one.way.name == name)
    }

    /// Returns the measurements of a way that must be present.
    pub(super) fn needed(&self, name: &str) -> Result<&Measured> {
        self.find(name).with_context(|| format!("`{name}` was not measured"))
    }
}

impl Measured {
    fn nothing(way: Way) -> Measured {
        Measured { way, series: Series::default(), bytes: None, peak_kb: 0, loading: Series::default() }
    }

    fn run(&mut self, tree: &Tree, ways: &Ways) -> Result<()> {
        (self.way.prepare)(ways, tree).with_context(|| format!("before {}", self.way.name))?;
        let mut command = (self.way.command)(ways, tree);
        command.stdout(fs::File::create(ways.said_in())?);
        let (status, mut usage, peak_kb) = watched(&mut command)?;
        ensure!(status.success(), "{}: {} ended with {status}", self.way.name, run::shown(&command));
        usage.cpu += ways.cpu_of_brokers();
        self.series.samples.push(usage);
        self.peak_kb = self.peak_kb.max(peak_kb);
        self.bytes = (self.way.bytes)(ways)?;
        if !self.way.saves {
            if !tree.is_sized {
                self.loading.samples.push(tree.load(&ways.target(tree))?);
            }
            (self.way.after)(ways, tree)?;
        }
        Ok(())
    }

    /// Returns for each round the seconds from the start until nine packages were loaded.
    pub(super) fn until_loaded(&self) -> Vec<f64> {
        self.series.wall_s().iter().zip(self.loading.wall_s()).map(|(had, loaded)| had + loaded).collect()
    }
}

/// Runs the command, and samples the peak memory of its process, in kB. The last few ms may be
/// missing.
fn watched(command: &mut Command) -> Result<(ExitStatus, Usage, u64)> {
    let before = run::cpu_of_children()?;
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", run::shown(command)))?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let text = fs::read_to_string(&status_file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak_kb = line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(peak_kb).max(peak_kb);
        std::thread::sleep(LOOK_EVERY);
    };
    let wall = began.elapsed();
    Ok((status, Usage { wall, cpu: run::cpu_of_children()?.saturating_sub(before) }, peak_kb))
}

/// The interval between samples of the memory. The wall time may be too long by this.
const LOOK_EVERY: Duration = Duration::from_millis(1);
