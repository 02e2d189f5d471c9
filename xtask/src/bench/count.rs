//! Counts what one command does, in runs of their own, so that nothing is timed while it is
//! counted.
//!
//! - strace counts system calls.
//! - perf counts instructions. If the machine has no counters, the program in `benches/count` steps
//!   through commands that are short.
//! - `benches/count` also separates the memory and CPU time of a command from those of its
//!   children.

use super::measure::{SETTLING, Subject, behind};
use crate::place::Place;
use crate::{binaries, files};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, thread};

/// Returns the number of system calls of the command and all its descendants.
pub(crate) fn system_calls(subject: &dyn Subject, scratch: &Path) -> Result<u64> {
    let report = scratch.join("strace.txt");
    let words: [&OsStr; 5] = ["-f".as_ref(), "-c".as_ref(), "-q".as_ref(), "-o".as_ref(), report.as_os_str()];
    under("strace".as_ref(), &words, subject)?;
    let text = files::read(&report)?;
    total_calls(&text).with_context(|| format!("strace counted nothing for {}", subject.name()))
}

/// Returns the number of instructions outside the kernel, or `None` if no tool here can count them.
pub(crate) fn instructions(subject: &dyn Subject, stepping: &Path, scratch: &Path) -> Option<u64> {
    by_perf(subject, scratch).or_else(|| by_stepping(subject, stepping, scratch))
}

/// The memory and CPU time of a command without its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) peak_kb: u64,
    pub(crate) cpu: Duration,
    /// The peak memory of the largest process among the command and its descendants, in kB.
    pub(crate) largest_kb: u64,
}

/// Runs the command once and returns what it used itself.
pub(crate) fn own(subject: &dyn Subject, counting: &Path, scratch: &Path) -> Result<Own> {
    let report = scratch.join("own.json");
    let words: [&OsStr; 3] = ["own".as_ref(), "--to".as_ref(), report.as_os_str()];
    once_under(counting.as_os_str(), &words, subject)?;
    let text = files::read(&report)?;
    let json: serde_json::Value = serde_json::from_str(&text).context("`count own` did not write JSON")?;
    let number = |name: &str| json[name].as_u64().with_context(|| format!("`count own` has no {name}"));
    Ok(Own {
        peak_kb: number("peak_kb")?,
        cpu: Duration::from_nanos(number("cpu_ns")?),
        largest_kb: number("largest_kb")?,
    })
}

/// Returns the sections of the functions that the command itself executes, as a linker script names
/// them. If `is_hit` is set, a run that is no hit is an error.
pub(crate) fn functions(subject: &dyn Subject, is_hit: bool, counting: &Path, scratch: &Path) -> Result<Vec<String>> {
    let report = scratch.join("functions.txt");
    let words: [&OsStr; 3] = ["hot".as_ref(), "--to".as_ref(), report.as_os_str()];
    let run = if is_hit { under } else { once_under };
    run(counting.as_os_str(), &words, subject)?;
    Ok(files::read(&report)?.lines().map(str::to_owned).collect())
}

/// Builds the program in `benches/count`.
pub(crate) fn program(place: &Place) -> Result<PathBuf> {
    binaries::bench(place, "larder-count", "count")
}

/// Returns true if perf can count instructions here. It is asked once with `/bin/true`, because a
/// cache misses at first under perf, and that would take long for nothing.
fn perf_counts() -> bool {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    *COUNTS.get_or_init(|| {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", "instructions:u", "/bin/true"]);
        perf.output().is_ok_and(|output| perf_count(&String::from_utf8_lossy(&output.stderr)).is_some())
    })
}

fn by_perf(subject: &dyn Subject, scratch: &Path) -> Option<u64> {
    if !perf_counts() {
        return None;
    }
    let report = scratch.join("perf.txt");
    let words: [&OsStr; 6] =
        ["stat".as_ref(), "-x,".as_ref(), "-e".as_ref(), "instructions:u".as_ref(), "-o".as_ref(), report.as_os_str()];
    under("perf".as_ref(), &words, subject).ok()?;
    perf_count(&fs::read_to_string(&report).ok()?)
}

/// Counts by stepping, which takes seconds for a hit of larder and minutes for other caches.
fn by_stepping(subject: &dyn Subject, stepping: &Path, scratch: &Path) -> Option<u64> {
    if !subject.is_short() {
        return None;
    }
    let report = scratch.join("steps.txt");
    let words: [&OsStr; 3] = ["steps".as_ref(), "--to".as_ref(), report.as_os_str()];
    under(stepping.as_os_str(), &words, subject).ok()?;
    fs::read_to_string(&report).ok()?.trim().parse().ok()
}

/// Runs the subject's command behind `tool words`, in its directory and environment.
///
/// A cache may miss the first time, because perf puts a directory on `PATH`. In that case the command
/// runs a second time when the record is old enough for a stamp, and a third time when it has the
/// stamp.
fn under(tool: &OsStr, words: &[&OsStr], subject: &dyn Subject) -> Result<()> {
    let before = subject.hits()?;
    once_under(tool, words, subject)?;
    if before.is_some() && subject.hits()? == before {
        thread::sleep(SETTLING);
        once_under(tool, words, subject)?;
        let before = subject.hits()?;
        once_under(tool, words, subject)?;
        ensure!(subject.hits()? != before, "{} does not hit under {}", subject.name(), shown(tool));
    }
    Ok(())
}

fn once_under(tool: &OsStr, words: &[&OsStr], subject: &dyn Subject) -> Result<()> {
    subject.prepare()?;
    let mut command = behind(tool, words, subject);
    let status = command.status().with_context(|| format!("cannot start {}", shown(tool)))?;
    ensure!(status.success(), "{} could not run {}: it ended with {status}", shown(tool), subject.name());
    Ok(())
}

fn shown(tool: &OsStr) -> std::path::Display<'_> {
    Path::new(tool).display()
}

/// Returns the fourth column of the line that ends in `total`.
fn total_calls(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn perf_count(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("instructions"))?;
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_tools_print() {
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n 10.0 0.1 1 3 openat\n100.00 \
             0.019493           6      3095      1629 total\n";
        assert_eq!(total_calls(strace), Some(3095));
        assert_eq!(perf_count("# started\n\n112548,,instructions:u,13425425,100.00,,\n"), Some(112_548));
        assert_eq!(perf_count("<not supported>,,instructions:u,0,100.00,,\n"), None);
    }
}
