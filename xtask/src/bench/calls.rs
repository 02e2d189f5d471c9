//! The calls of the compiler in one build: what each cost, and what larder's log says became of it.
//!
//! Unaware of: which cache is measured, but for the lines of larder's log.

use crate::run;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that stands in front and writes the log that is read here.
const SOURCE: &str = include_str!("call.c");
/// How far larder's coarse clock may be from that of a call, in seconds.
const SLACK_S: f64 = 0.05;

/// What a call asks for, by its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `-c` or `-S`.
    Compile,
    /// `-E` or `-M`.
    Preprocess,
    /// Files and none of those.
    Link,
    /// `--version`, `-v` and the like.
    Question,
}

/// One call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) pid: u32,
    /// CPU of the callee and all that it waited for.
    pub(crate) cpu_s: f64,
    pub(crate) succeeded: bool,
    pub(crate) kind: Kind,
    /// `hit`, `miss`, … where a log says so.
    pub(crate) verdict: Option<Verdict>,
}

/// What larder's log says of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: String,
    /// What follows the source, without what comes after it, which names files.
    pub(crate) why: String,
    pub(crate) detail: String,
}

impl Verdict {
    /// Answered from the store, whatever is said about it.
    pub(crate) fn is_hit(&self) -> bool {
        self.outcome.starts_with("hit")
    }
}

/// Compiles the program that stands in front: it runs `behind` with its own arguments after it, and writes to `log`.
/// Without one it becomes `behind` and leaves no trace.
pub(crate) fn put_in_front(program: &Path, behind: &[PathBuf], log: Option<&Path>) -> Result<()> {
    let quoted = |path: &Path| format!("\"{}\"", path.display());
    let words = behind.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(",");
    let dir = program.parent().context("a program lies in a directory")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let source = dir.join("call.c");
    fs::write(&source, SOURCE).with_context(|| format!("cannot write {}", source.display()))?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Werror"]).arg(format!("-DBEHIND={words}"));
    if let Some(log) = log {
        gcc.arg("-static").arg(format!("-DLOG={}", quoted(log)));
    }
    gcc.arg(&source).arg("-o").arg(program);
    run::output(&mut gcc).context("the program that counts calls does not compile").map(drop)
}

/// Reads the calls in `log`, and takes it away for the next build. None were made where it is missing.
pub(crate) fn take(log: &Path) -> Result<Vec<Call>> {
    taken(log)?.lines().map(|line| call(line).with_context(|| format!("{}: {line}", log.display()))).collect()
}

/// Gives each call its line in larder's log, and takes the log away.
pub(crate) fn judge(calls: &mut [Call], log: &Path) -> Result<()> {
    let mut lines: BTreeMap<u32, Vec<(f64, Verdict)>> = BTreeMap::new();
    for (time, pid, verdict) in verdicts(log)? {
        lines.entry(pid).or_default().push((time, verdict));
    }
    for call in calls {
        let Some(of_pid) = lines.get_mut(&call.pid) else { continue };
        let within = |(time, _): &(f64, Verdict)| *time >= call.start_s - SLACK_S && *time <= call.end_s + SLACK_S;
        if let Some(at) = of_pid.iter().position(within) {
            call.verdict = Some(of_pid.remove(at).1);
        }
    }
    Ok(())
}

/// Reads larder's log, and takes it away: when each line was written, by which process, and what it says.
pub(crate) fn verdicts(log: &Path) -> Result<Vec<(f64, u32, Verdict)>> {
    Ok(taken(log)?.lines().filter_map(verdict).collect())
}

fn taken(log: &Path) -> Result<String> {
    match fs::read(log) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => {
            let text = read.with_context(|| format!("cannot read {}", log.display()))?;
            fs::remove_file(log).with_context(|| format!("cannot remove {}", log.display()))?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
    }
}

fn call(line: &str) -> Option<Call> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    Some(Call {
        start_s: next()?.parse().ok()?,
        end_s: next()?.parse().ok()?,
        pid: next()?.parse().ok()?,
        cpu_s: next()?.parse::<f64>().ok()? / 1e6,
        succeeded: next()? == "0",
        kind: match next()? {
            "compile" => Kind::Compile,
            "preprocess" => Kind::Preprocess,
            "link" => Kind::Link,
            "question" => Kind::Question,
            _ => return None,
        },
        verdict: None,
    })
}

/// `SECONDS PID OUTCOME: SOURCE · WHY · DETAIL`.
fn verdict(line: &str) -> Option<(f64, u32, Verdict)> {
    let mut words = line.splitn(3, ' ');
    let (time, pid, rest) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    let (outcome, rest) = rest.split_once(": ")?;
    let mut parts = rest.split(" · ").skip(1);
    let why = parts.next().unwrap_or("").to_owned();
    let detail = parts.collect::<Vec<_>>().join(" · ");
    Some((time, pid, Verdict { outcome: outcome.to_owned(), why, detail }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_call_and_finds_its_line() {
        let dir = std::env::temp_dir().join(format!("xtask-calls-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let (calls, log) = (dir.join("calls"), dir.join("log"));
        fs::write(&calls, "10.100000 10.200000 2 91000 0 compile\n20.000000 20.100000 2 500 1 link\n")
            .expect("written");
        fs::write(&log, "10.120 2 miss: a.c · recorded\n20.104 2 hit: /usr/bin/gcc\n").expect("written");
        let mut found = take(&calls).expect("well-formed");
        judge(&mut found, &log).expect("well-formed");
        fs::remove_dir_all(&dir).expect("removable");
        let outcomes: Vec<_> = found.iter().filter_map(|call| Some(call.verdict.as_ref()?.outcome.as_str())).collect();
        assert_eq!(outcomes, ["miss", "hit"]);
        assert_eq!((found[0].kind, found[0].succeeded, found[1].kind), (Kind::Compile, true, Kind::Link));
        assert_eq!(take(&calls).expect("nothing is well-formed"), []);
    }

    #[test]
    fn a_reason_is_kept_apart_from_its_detail() {
        let (_, _, verdict) = verdict("1.5 7 miss, not recorded: a b.c · the clock · /proc/x").expect("well-formed");
        assert_eq!((verdict.outcome.as_str(), verdict.why.as_str()), ("miss, not recorded", "the clock"));
        assert_eq!(verdict.detail, "/proc/x");
    }
}
