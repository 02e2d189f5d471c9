//! The stages of a miss: before the tool starts, while it runs, and after it has ended.

use crate::bench::measure::{Subject, behind};
use anyhow::{Context, Result, ensure};
use larder_samples::quantile;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const RUNS: usize = 5;

/// The wall times of the wrapper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stages {
    /// From the wrapper's start to the tool's start.
    pub(super) before_ms: f64,
    /// From the tool's end to the wrapper's end.
    pub(super) after_ms: f64,
}

/// Returns the medians of several runs. strace stops only at the starts and ends of programs.
pub(super) fn stages(subject: &dyn Subject, scratch: &Path) -> Result<Stages> {
    let log = scratch.join("stages.txt");
    let words = ["-f", "-q", "-ttt", "--seccomp-bpf", "-e", "trace=execve,exit_group", "-o"].map(OsStr::new);
    let words: Vec<&OsStr> = words.into_iter().chain([log.as_os_str()]).collect();
    let mut all = Vec::new();
    for _ in 0..RUNS {
        subject.prepare()?;
        let status = behind("strace".as_ref(), &words, subject).status().context("cannot start strace")?;
        ensure!(status.success(), "strace could not run {}: it ended with {status}", subject.name());
        let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        all.push(read(&text).with_context(|| format!("strace did not see {} start a tool", subject.name()))?);
    }
    let median = |of: fn(&Stages) -> f64| quantile(all.iter().map(of).collect(), 1, 2);
    Ok(Stages { before_ms: median(|stages| stages.before_ms), after_ms: median(|stages| stages.after_ms) })
}

/// Reads lines of the form `PID SECONDS EVENT`. The first process is the wrapper. The first other
/// process that executes a program is the tool.
fn read(text: &str) -> Option<Stages> {
    let lines: Vec<(&str, f64, &str)> = text
        .lines()
        .filter_map(|line| {
            let (pid, rest) = line.split_once(' ')?;
            let (time, what) = rest.trim_start().split_once(' ')?;
            Some((pid, time.parse().ok()?, what))
        })
        .collect();
    let is_start = |what: &str| what.starts_with("execve(") && (what.ends_with(" = 0") || what.contains("unfinished"));
    let end = |of: &str| lines.iter().rev().find(|(pid, _, what)| *pid == of && what.starts_with("exit_group("));
    let (wrapper, began, _) = *lines.iter().find(|(_, _, what)| is_start(what))?;
    let (tool, tool_began, _) = *lines.iter().find(|(pid, _, what)| *pid != wrapper && is_start(what))?;
    let ms = |from: f64, to: f64| (to - from) * 1e3;
    Some(Stages { before_ms: ms(began, tool_began), after_ms: ms(end(tool)?.1, end(wrapper)?.1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_starts_and_ends() {
        let text = "7 10.000 execve(\"larder\", [\"larder\"], 0x1 /* 3 vars */) = 0\n\
                    8 10.002 execve(\"/usr/bin/gcc\", [\"gcc\"], 0x1 /* 4 vars */) = 0\n\
                    9 10.003 execve(\"cc1\", [\"cc1\"], 0x1 /* 4 vars */) = 0\n\
                    9 10.010 exit_group(0)           = ?\n\
                    8 10.050 exit_group(0)           = ?\n\
                    7 10.054 exit_group(0)           = ?\n";
        let found = read(text).expect("well-formed");
        assert!((found.before_ms - 2.0).abs() < 0.01 && (found.after_ms - 4.0).abs() < 0.01, "{found:?}");
        assert_eq!(read("7 10.000 execve(\"larder\", [], 0x1) = 0\n7 10.1 exit_group(1) = ?\n"), None);
    }
}
