//! Runs a way and keeps what it cost, and what the jobs cost afterwards.

use super::jobs;
use super::tree::Tree;
use super::ways::{Way, Ways};
use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use larder_samples::quantile;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The measurements of one way.
pub(super) struct Measured {
    pub(super) way: Way,
    /// The samples of all rounds, with the CPU time of brokers until the tree can be used.
    pub(super) samples: Vec<Usage>,
    /// The size of the result in bytes, or of its new part.
    pub(super) bytes: Option<u64>,
    /// The bytes that were written to the disks, for each round.
    pub(super) written: Vec<u64>,
    /// The peak memory of the process itself, in kB.
    pub(super) peak_kb: u64,
    /// The cost of loading packages from the tree, for each round.
    pub(super) used: Vec<Usage>,
    /// The cost of each of `jobs::JOBS`, with the CPU time of brokers meanwhile. Empty if no jobs
    /// run.
    pub(super) jobs: Vec<Option<Usage>>,
}

/// The ways that worked, and the names of those that did not.
pub(super) struct All {
    pub(super) measured: Vec<Measured>,
    pub(super) left_out: Vec<&'static str>,
}

/// Runs each way of this tree once in each round.
pub(super) fn all(tree: &Tree, ways: &Ways, rounds: u32) -> Result<All> {
    these(tree, ways, ways.all(tree), rounds)
}

/// Runs each of the chosen ways once in each round.
pub(super) fn these(tree: &Tree, ways: &Ways, chosen: Vec<Way>, rounds: u32) -> Result<All> {
    let mut measured: Vec<Measured> = chosen.into_iter().map(Measured::nothing).collect();
    let (mut done, mut left_out) = (0, Vec::new());
    let bar = Bar::new(tree.kind.word(), u64::from(rounds) * measured.len() as u64);
    for _ in 0..rounds {
        let mut failed = Vec::new();
        for (at, one) in measured.iter_mut().enumerate() {
            bar.at(done);
            done += 1;
            match one.run(tree, ways) {
                Err(error) if !one.way.is_needed() => {
                    println!("{}: without `{}`: {error:#}", tree.kind.word(), one.way.name);
                    failed.push(at);
                }
                done => done?,
            }
        }
        left_out.extend(failed.into_iter().rev().map(|at| measured.remove(at).way.name));
    }
    bar.end(&format!("{}: measured", tree.kind.word()));
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
        let (samples, written, used, jobs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Measured { way, samples, bytes: None, written, peak_kb: 0, used, jobs }
    }

    fn run(&mut self, tree: &Tree, ways: &Ways) -> Result<()> {
        (self.way.prepare)(ways, tree).with_context(|| format!("before {}", self.way.name))?;
        let mut command = (self.way.command)(ways, tree);
        command.stdout(fs::File::create(ways.said_in())?);
        let before = written_to_disks()?;
        let (status, mut usage, peak_kb) = watched(&mut command)?;
        ensure!(status.success(), "{}: {} ended with {status}", self.way.name, run::shown(&command));
        usage.cpu += ways.cpu_of_brokers();
        self.written.push(written_to_disks()?.saturating_sub(before));
        self.samples.push(usage);
        self.peak_kb = self.peak_kb.max(peak_kb);
        self.bytes = (self.way.bytes)(ways)?;
        if !self.way.saves {
            let place = ways.target(tree);
            self.used.extend(tree.used(&place)?);
            if self.way.has_jobs() && tree.kind.has_jobs() {
                let done = |job: &jobs::Job| -> Result<Option<Usage>> {
                    let before = ways.cpu_of_brokers();
                    let mut usage = job.done(tree, &place)?;
                    if let Some(usage) = &mut usage {
                        usage.cpu += ways.cpu_of_brokers().saturating_sub(before);
                    }
                    Ok(usage)
                };
                self.jobs = jobs::JOBS.iter().map(done).collect::<Result<_>>()?;
            }
            (self.way.after)(ways, tree)?;
        }
        Ok(())
    }

    /// Returns for each round the seconds from the start until nine packages were loaded.
    pub(super) fn until_used(&self) -> Vec<f64> {
        let both = self.samples.iter().zip(&self.used);
        both.map(|(had, used)| (had.wall + used.wall).as_secs_f64()).collect()
    }

    /// Returns the wall time of each round, in seconds.
    pub(super) fn walls(&self) -> Vec<f64> {
        self.samples.iter().map(|usage| usage.wall.as_secs_f64()).collect()
    }

    /// Returns the CPU time of each round, in seconds.
    pub(super) fn cpus(&self) -> Vec<f64> {
        self.samples.iter().map(|usage| usage.cpu.as_secs_f64()).collect()
    }

    /// Returns the median wall time, in seconds.
    pub(super) fn wall(&self) -> f64 {
        quantile(self.walls(), 1, 2)
    }

    /// Returns the median CPU time, in seconds.
    pub(super) fn cpu(&self) -> f64 {
        quantile(self.cpus(), 1, 2)
    }
}

/// Returns the bytes that were written to the disks so far, after a `sync`. Loop devices and
/// similar are left out, because their data is written to another disk.
fn written_to_disks() -> Result<u64> {
    nix::unistd::sync();
    let text = fs::read_to_string("/proc/diskstats").context("cannot read /proc/diskstats")?;
    let disks = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Whole disks only, not partitions. The unit is 512 bytes for all disks
    // (Documentation/admin-guide/iostats).
    let is_disk = |name: &str| {
        let is_of_file = ["loop", "ram", "zram", "dm-", "md"].iter().any(|kind| name.starts_with(kind));
        !is_of_file && Path::new("/sys/block").join(name).exists()
    };
    let sectors = disks.filter(|words| words.get(2).is_some_and(|name| is_disk(name)));
    Ok(sectors.filter_map(|words| words.get(9)?.parse::<u64>().ok()).sum::<u64>() * 512)
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
