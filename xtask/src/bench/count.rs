//! Counts what one command does: system calls by strace, instructions by perf; where the machine does not let perf count, by
//! callgrind; and for what makes system calls that callgrind does not know, by the program in `benches/count`, which steps through
//! it. Each in a run of its own, so that nothing is timed while it is counted.

use super::measure::{SETTLING, Subject};
use crate::binaries;
use crate::place::Place;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// System calls of the command and all that it starts.
pub(crate) fn system_calls(subject: &dyn Subject, scratch: &Path) -> Result<u64> {
    let report = scratch.join("strace.txt");
    let words: [&OsStr; 5] = ["-f".as_ref(), "-c".as_ref(), "-q".as_ref(), "-o".as_ref(), report.as_os_str()];
    under("strace", &words, subject)?;
    let text = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    total_calls(&text).with_context(|| format!("strace counted nothing for {}", subject.name()))
}

/// Instructions outside the kernel; `None` where nothing here can count them.
pub(crate) fn instructions(subject: &dyn Subject, stepping: &Path, scratch: &Path) -> Option<u64> {
    let by_perf = by_perf(subject, scratch);
    by_perf.or_else(|| by_callgrind(subject, scratch)).or_else(|| by_stepping(subject, stepping, scratch))
}

/// The program that steps.
pub(crate) fn stepping(place: &Place) -> Result<PathBuf> {
    binaries::bench(place, "larder-count", "count", None)
}

fn by_perf(subject: &dyn Subject, scratch: &Path) -> Option<u64> {
    let report = scratch.join("perf.txt");
    let words: [&OsStr; 6] =
        ["stat".as_ref(), "-x,".as_ref(), "-e".as_ref(), "instructions:u".as_ref(), "-o".as_ref(), report.as_os_str()];
    under("perf", &words, subject).ok()?;
    perf_count(&fs::read_to_string(&report).ok()?)
}

/// callgrind is some fifty times slower: too slow for compilers, who are measured every n-th time only.
fn by_callgrind(subject: &dyn Subject, scratch: &Path) -> Option<u64> {
    if subject.every() > 1 {
        return None;
    }
    let log = scratch.join("callgrind.txt");
    let log_word = format!("--log-file={}", log.display());
    let words: [&OsStr; 3] =
        ["--tool=callgrind".as_ref(), "--callgrind-out-file=/dev/null".as_ref(), log_word.as_ref()];
    under("valgrind", &words, subject).ok()?;
    collected(&fs::read_to_string(&log).ok()?)
}

/// Slower still.
fn by_stepping(subject: &dyn Subject, stepping: &Path, scratch: &Path) -> Option<u64> {
    if subject.every() > 1 {
        return None;
    }
    let report = scratch.join("steps.txt");
    let words: [&OsStr; 2] = ["--to".as_ref(), report.as_os_str()];
    if subject.hits().ok()?.is_some() {
        // Under valgrind it may have missed, and what it then recorded is hashed once more before a stamp is kept.
        thread::sleep(SETTLING);
        once_under("env", &[], subject).ok()?;
    }
    under(stepping.to_str()?, &words, subject).ok()?;
    fs::read_to_string(&report).ok()?.trim().parse().ok()
}

/// Runs the subject's command with `tool words` in front, in its directory and environment. A cache may miss the first
/// time, since perf puts a directory of its own on `PATH` and valgrind preloads: then once more when what it recorded is no longer
/// too young for a stamp, and once more when it has one.
fn under(tool: &str, words: &[&OsStr], subject: &dyn Subject) -> Result<()> {
    let before = subject.hits()?;
    once_under(tool, words, subject)?;
    if before.is_some() && subject.hits()? == before {
        thread::sleep(SETTLING);
        once_under(tool, words, subject)?;
        let before = subject.hits()?;
        once_under(tool, words, subject)?;
        ensure!(subject.hits()? != before, "{} does not hit under {tool}", subject.name());
    }
    Ok(())
}

fn once_under(tool: &str, words: &[&OsStr], subject: &dyn Subject) -> Result<()> {
    subject.prepare()?;
    let inner = subject.command();
    let mut command = Command::new(tool);
    command.args(words).arg(inner.get_program()).args(inner.get_args());
    command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = inner.get_current_dir() {
        command.current_dir(dir);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().with_context(|| format!("cannot start {tool}"))?;
    ensure!(status.success(), "{tool} could not run {}: it ended with {status}", subject.name());
    Ok(())
}

/// The fourth column of the line that ends in `total`.
fn total_calls(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn perf_count(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("instructions"))?;
    line.split(',').next()?.parse().ok()
}

fn collected(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.split_once("Collected : ")).and_then(|(_, count)| count.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_tools_print() {
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n 10.0 0.1 1 3 openat\n100.00    0.019493           6      3095      1629 total\n";
        assert_eq!(total_calls(strace), Some(3095));
        assert_eq!(perf_count("# started\n\n112548,,instructions:u,13425425,100.00,,\n"), Some(112_548));
        assert_eq!(perf_count("<not supported>,,instructions:u,0,100.00,,\n"), None);
        assert_eq!(collected("==7== \n==7== Collected : 1249600\n"), Some(1_249_600));
    }
}
