//! `cargo xtask test`: runs every check and test as a list of stages, two at a time, and prints a
//! line for each and the counts.
//!
//! Each stage is a process of its own, `cargo xtask test --stage NAME`, so that its output can be
//! kept in a file and be shown as one block when it has ended.

use crate::arch::Arch;
use crate::bench::corpus;
use crate::files::{self, fresh};
use crate::place::Place;
use crate::setup::{self, CHECKED_TARGETS};
use crate::skips::{self, Skips};
use crate::{aarch64, binaries, demo, dist, docs, run, sanitize, supply, tools, torture};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also run the slow torture cases, every fault and every damaged byte instead of a selection,
    /// and the small demo, which builds real projects plainly and through larder
    #[arg(long)]
    full: bool,
    /// Run only this stage, with its output on the terminal, and not those that it needs
    #[arg(long, value_name = "NAME", value_parser = STAGES.map(|stage| stage.name), conflicts_with = "arch")]
    stage: Option<String>,
    /// Run a share of the tests on another architecture, emulated by QEMU
    #[arg(long, value_enum, default_value_t = Arch::HOST, conflicts_with = "full")]
    arch: Arch,
    /// With `--arch`, run only the test programs whose names contain this, for example `larder-sys`
    /// or `torture`
    #[arg(long, value_name = "PART", requires = "arch")]
    only: Vec<String>,
}

/// The packages that need not be type-correct on the systems in `CHECKED_TARGETS`. All others must
/// be.
const UNCHECKED_PACKAGES: &[&str] = &["larder-count", "larder-fuzz", "larder-testkit", "larder-torture", "xtask"];

/// How many stages run at the same time. Building release binaries and waiting for servers leave
/// one of two processors idle.
const AT_A_TIME: usize = 2;

struct Stage {
    name: &'static str,
    /// The stages that must have ended before.
    after: &'static [&'static str],
    /// True if only `--full` runs it.
    is_slow: bool,
    work: fn(&Place, bool) -> Result<()>,
}

const SETUP: &str = "setup";
const RELEASE: &str = "release-binaries";
const PROGRAMS: &str = "test-programs";

/// In the order in which they start, unless one has to wait for another. The longest start early.
///
/// The first starts at once, beside two others: it waits for downloads for most of its time.
const STAGES: [Stage; 17] = [
    stage(SETUP, &[], |place, _| setup::for_tests(place)),
    stage(RELEASE, &[], |place, _| binaries::build(place)),
    stage("format", &[], |place, _| run::shown_to_user(place.cargo().args(["fmt", "--all", "--check"]))),
    stage("lints", &[], |place, _| {
        let words = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
        run::shown_to_user(place.cargo().args(words))
    }),
    stage(PROGRAMS, &["lints"], |place, _| {
        run::shown_to_user(place.cargo().args(["test", "--locked", "--workspace", "--no-run"]))
    }),
    stage("tests", &[SETUP, RELEASE, PROGRAMS], tests),
    stage("torture", &[SETUP, RELEASE, PROGRAMS], torture::stage),
    stage("packages", &[SETUP, RELEASE], |place, _| dist::stage(place)),
    stage("documents", &[SETUP, RELEASE], |place, _| docs::stage(place)),
    stage("supply-chain", &[SETUP, RELEASE], |place, _| supply::check(place)),
    stage("sanitizer", &[SETUP, RELEASE], |place, _| sanitize::address(place)),
    stage("aarch64", &[PROGRAMS], |place, _| aarch64_stage(place)),
    stage("macos", &[PROGRAMS], |place, _| type_check(place, CHECKED_TARGETS[0])),
    stage("windows", &[PROGRAMS], |place, _| type_check(place, CHECKED_TARGETS[1])),
    slow("miri", |place, _| sanitize::miri(place)),
    slow("small-demo", |place, _| {
        ensure!(demo::small(place)?, "the demo failed; its table is above");
        Ok(())
    }),
    slow("small-corpus", |place, _| corpus::short(place)),
];

const fn stage(name: &'static str, after: &'static [&'static str], work: fn(&Place, bool) -> Result<()>) -> Stage {
    Stage { name, after, is_slow: false, work }
}

const fn slow(name: &'static str, work: fn(&Place, bool) -> Result<()>) -> Stage {
    Stage { name, after: &["tests", "torture"], is_slow: true, work }
}

/// Runs all stages, even if one fails, or only the one that was asked for. Returns `true` if every
/// one passed.
pub(crate) fn test(place: &Place, options: &Options) -> Result<bool> {
    if options.arch != Arch::HOST {
        ensure!(options.arch == Arch::Aarch64, "only aarch64 is emulated");
        return aarch64::test(place, &options.only);
    }
    if let Some(stage) = STAGES.iter().find(|stage| Some(stage.name) == options.stage.as_deref()) {
        let result = (stage.work)(place, options.full);
        println!("{} took {:.0} s of CPU time", stage.name, run::cpu_of_children()?.as_secs_f64());
        return result.map(|()| true);
    }
    setup::for_checks(place)?;
    let logs = place.own("stages")?;
    fresh(&logs)?;
    let [first, others @ ..] = STAGES;
    let waiting = others.into_iter().filter(|stage| options.full || !stage.is_slow).collect();
    let schedule = Schedule { state: Mutex::new(State { waiting, ..State::default() }), changed: Condvar::new() };
    let perform = |stage: &Stage| schedule.ended(stage.name, run_stage(stage, &logs, options.full));
    thread::scope(|scope| {
        scope.spawn(|| perform(&first));
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(stage) = schedule.next() {
                    perform(&stage);
                }
            });
        }
    });
    let State { ended, lines, .. } = schedule.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n{}\n", lines.join("\n"));
    println!("{}", fs::read_to_string(skips_file(place)?).unwrap_or_default());
    let failed = ended.values().filter(|passed| !**passed).count();
    println!("{} passed, {failed} failed", ended.len() - failed);
    Ok(failed == 0)
}

struct Schedule {
    state: Mutex<State>,
    /// A stage has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Stage>,
    /// The stages that ended, and whether they passed.
    ended: BTreeMap<&'static str, bool>,
    /// A line for each of them.
    lines: Vec<String>,
}

impl Schedule {
    /// Waits for a stage that can start. Returns `None` if none is left.
    fn next(&self) -> Option<Stage> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let can_start = |stage: &Stage| stage.after.iter().all(|name| state.ended.contains_key(name));
            if let Some(at) = state.waiting.iter().position(can_start) {
                return Some(state.waiting.remove(at));
            }
            if state.waiting.is_empty() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Shows the output of a stage that ended.
    fn ended(&self, name: &'static str, outcome: Result<Outcome>) {
        let outcome = outcome.unwrap_or_else(|error| Outcome {
            is_success: false,
            took: Duration::ZERO,
            output: format!("{error:#}"),
        });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        println!("── {name}\n{}", outcome.output.trim_end());
        let word = if outcome.is_success { "passed" } else { "FAILED" };
        state.lines.push(format!("{word}  {:7.1} s  {name}", outcome.took.as_secs_f64()));
        if !outcome.is_success {
            state.lines.extend(failures(&outcome.output).into_iter().map(|line| format!("        {line}")));
        }
        state.ended.insert(name, outcome.is_success);
        self.changed.notify_all();
    }
}

/// Returns the lines that name what failed, as cargo, its tests and the torture suite write them.
/// They are printed again at the end, because the output of all stages is long. If there is none,
/// the last lines are returned.
fn failures(output: &str) -> Vec<&str> {
    const MOST: usize = 40;
    const LAST: usize = 10;
    let is_one = |line: &&str| {
        ["error", "WRONG ", "MISSED ", "HIT  "].iter().any(|begin| line.starts_with(begin))
            || line.starts_with("test ") && line.ends_with("FAILED")
            || line.contains(" panicked at ")
    };
    let named: Vec<&str> = output.lines().filter(is_one).take(MOST).collect();
    if named.is_empty() { output.lines().skip(output.lines().count().saturating_sub(LAST)).collect() } else { named }
}

/// How a stage ended.
struct Outcome {
    is_success: bool,
    took: Duration,
    output: String,
}

/// Runs a stage as a process of its own.
fn run_stage(stage: &Stage, logs: &Path, full: bool) -> Result<Outcome> {
    println!("started {}", stage.name);
    let log = logs.join(stage.name);
    // A stage may build this program anew, and the path of the old one would not exist any more.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("xtask").args(["test", "--stage", stage.name]);
    run::to_log(&mut command, &log)?;
    if full {
        command.arg("--full");
    }
    let (status, usage) = run::measured(&mut command)?;
    let output = files::bytes(&log)?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Outcome { is_success: status.success(), took: usage.wall, output })
}

/// The file to which the stage `tests` writes how many tests were skipped, and why.
fn skips_file(place: &Place) -> Result<PathBuf> {
    Ok(place.own("tests")?.join("skips"))
}

/// Runs all tests and notes which of them were skipped. Their output is shown as without
/// `--show-output`, which makes the reasons known: without it nothing is printed of tests that
/// passed.
fn tests(place: &Place, full: bool) -> Result<()> {
    let mut command = place.cargo();
    command
        .args(["test", "--locked", "--workspace", "--no-fail-fast", "--", "--show-output"])
        .env_remove("LARDER_CI")
        .env("LARDER_BIN", place.larder())
        .env("LARDER_TOOLS", tools::directory(place));
    if env::var_os("RUST_TEST_THREADS").is_none() {
        // Tests wait for half of their time: for programs, servers, and the clock of a file system.
        let processors = thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (2 * processors).to_string());
    }
    if full {
        command.env("LARDER_TEST_FULL", "1");
    }
    let mut skips = Skips::default();
    let file = skips_file(place)?;
    let result = run::filtered(&mut command, &file.with_file_name("log"), |line| skips.read(line));
    files::write(&file, skips.to_string())?;
    result?;
    if skips::is_ci() { skips.check() } else { Ok(()) }
}

fn type_check(place: &Place, target: &str) -> Result<()> {
    let mut command = place.cargo();
    command.args(["check", "--locked", "--target", target, "--workspace"]);
    for package in UNCHECKED_PACKAGES {
        command.args(["--exclude", package]);
    }
    run::shown_to_user(&mut command)
}

/// Checks the types of everything for aarch64, and links the wrapper. A type check does not find a
/// wrong linker, a missing cross compiler, or an undefined symbol in the preloaded library.
fn aarch64_stage(place: &Place) -> Result<()> {
    let target = Arch::Aarch64.static_target();
    type_check(place, target)?;
    let words = ["build", "--locked", "--target", target, "--package", "larder", "--no-default-features"];
    run::shown_to_user(place.cargo().args(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named() {
        let output = "test a ... ok\ntest b ... FAILED\nknown   A/x\nMISSED  A/y · z (miss): why\nWRONG   A/z\nrc 1";
        assert_eq!(failures(output), ["test b ... FAILED", "MISSED  A/y · z (miss): why", "WRONG   A/z"]);
        assert_eq!(failures("one\ntwo"), ["one", "two"]);
    }
}
