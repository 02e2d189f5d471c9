//! One package configured, and made, at one grain in one place; what it cost, what was called, and what it left.

use super::compare::Comparison;
use super::grains::{Grain, PLAIN, PLAIN_AGAIN};
use super::packages::{Package, Phase};
use crate::bench::calls::{self, Call, Verdict};
use crate::launcher::Counts;
use crate::place::{fresh, remove};
use crate::run::{self, Usage};
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What precedes a run: nothing is left of the one before but the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// With an empty store.
    Cold,
    /// At the same path.
    Same,
    /// At another path, of another length.
    Second,
    /// At yet another, as long as the first.
    Third,
    /// At one that is as long as both, as Bazel's sandboxes mostly are; plainly, and whole commands alone.
    AsLong,
    /// And at a last one, with one source file changed.
    Changed,
}

/// In the order that they are measured in.
pub(super) const STEPS: [Step; 6] = [Step::Cold, Step::Same, Step::Second, Step::Third, Step::AsLong, Step::Changed];
/// A command that runs longer is ended.
const LIMIT: Duration = Duration::from_secs(30 * 60);

impl Step {
    /// In tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Cold => "cold",
            Step::Same => "same place",
            Step::Second => "second place",
            Step::Third => "third place",
            Step::AsLong => "a place as long as two",
            Step::Changed => "fifth place, a source changed",
        }
    }

    fn dir(self) -> &'static str {
        match self {
            Step::Cold | Step::Same => "place",
            Step::Second => "another-place",
            Step::Third => "third",
            Step::AsLong => "other",
            Step::Changed => "yet/another/place",
        }
    }
}

/// One package at one grain in one step.
pub(super) struct Pass {
    pub(super) package: &'static str,
    pub(super) grain: &'static str,
    pub(super) is_larder: bool,
    pub(super) step: Step,
    pub(super) parts: Vec<Part>,
    /// Compared with the plain run of the same step.
    pub(super) comparison: Comparison,
    /// The command that failed, and the end of what it said.
    pub(super) failure: Option<String>,
}

/// One phase of it.
#[derive(Default)]
pub(super) struct Part {
    pub(super) usage: Usage,
    /// The calls of the compiler, where a program stood in front of it.
    pub(super) calls: Vec<Call>,
    /// What larder's log says of the calls within a whole command.
    pub(super) inner: Vec<Verdict>,
    /// What it says of the whole command.
    pub(super) whole: Option<Verdict>,
    /// What a cache counted that has no log.
    pub(super) counts: Option<Counts>,
}

/// Where all of it happens.
pub(super) struct Bench {
    pub(super) work: PathBuf,
    /// The log of the programs in front.
    pub(super) calls: PathBuf,
    pub(super) phases: &'static [Phase],
    pub(super) jobs: usize,
    /// Sources get the present time.
    pub(super) new_sources: bool,
}

impl Bench {
    /// Measures one step of one package at every grain in turn, the plain one first.
    pub(super) fn step(&self, package: &Package, sources: &Path, step: Step, grains: &[&Grain]) -> Result<Vec<Pass>> {
        let mut passes = Vec::new();
        for grain in grains {
            let measured = match step {
                Step::Cold => true,
                Step::AsLong => grain.name == PLAIN || grain.whole,
                _ => grain.name != PLAIN_AGAIN,
            };
            if !measured {
                continue;
            }
            let saying = || format!("{}, {}, {}", package.name, grain.name, step.name());
            let pass = self.pass(package, sources, step, grain).with_context(saying)?;
            eprintln!("{}", said(&pass));
            passes.push(pass);
        }
        Ok(passes)
    }

    fn pass(&self, package: &Package, sources: &Path, step: Step, grain: &Grain) -> Result<Pass> {
        let tree = self.work.join(step.dir()).join("tree");
        lay_out(sources, &tree)?;
        if self.new_sources {
            touch(&tree.join("src"))?;
        }
        if step == Step::Changed {
            change(&tree.join("src").join(package.source))?;
        }
        let front = self.work.join("front");
        grain.install(&front)?;
        let mut pass = Pass {
            package: package.name,
            grain: grain.name,
            is_larder: grain.is_larder(),
            step,
            parts: Vec::new(),
            comparison: Comparison::default(),
            failure: None,
        };
        let logs = self.work.join("logs").join(grain.name.replace(' ', "-"));
        fresh(&logs)?;
        let run = self.run(&mut pass, package, grain, &tree, &logs);
        grain.withdraw(&front)?;
        run?;
        let kept = self.work.join("kept");
        if grain.name == PLAIN {
            let failure = pass.failure.take();
            anyhow::ensure!(failure.is_none(), "the plain build fails: {}", failure.unwrap_or_default());
            move_to(&tree, &kept.join("plain"))?;
        } else if pass.failure.is_none() {
            let plain_logs = self.work.join("logs").join(PLAIN);
            for phase in self.phases {
                for said in [said_by(*phase), left_by(*phase)] {
                    let read = |dir: &Path| fs::read(dir.join(&said)).with_context(|| format!("cannot read {said}"));
                    pass.comparison.messages(&said, &read(&plain_logs)?, &read(&logs)?);
                }
            }
            pass.comparison.trees(&kept.join("plain"), &tree)?;
            if !pass.comparison.different.is_empty() {
                // For a look at what is wrong, and the plain tree beside it.
                let wrong = kept.join("wrong").join(package.name).join(step.dir()).join(grain.name.replace(' ', "-"));
                move_to(&tree, &wrong)?;
            }
        }
        remove(&tree)?;
        Ok(pass)
    }

    fn run(&self, pass: &mut Pass, package: &Package, grain: &Grain, tree: &Path, logs: &Path) -> Result<()> {
        let front = self.work.join("front");
        let dir = tree.join(if package.in_place { "src" } else { "build" });
        for &phase in self.phases {
            let words = package.words(phase, &tree.join("installed"), self.jobs);
            let before = grain.counts()?;
            let mut command = grain.command(&words, phase, &front);
            let ended = run::limited(command.current_dir(&dir), &logs.join(said_by(phase)), LIMIT)?;
            let counts = grain.counts()?.zip(before).map(|(after, before)| after - before);
            let mut part = Part { usage: ended.usage, calls: calls::take(&self.calls)?, counts, ..Part::default() };
            match &grain.log {
                Some(log) if grain.whole => {
                    for (_, pid, verdict) in calls::verdicts(log)? {
                        if pid == ended.pid {
                            part.whole = Some(verdict);
                        } else {
                            part.inner.push(verdict);
                        }
                    }
                }
                Some(log) => calls::judge(&mut part.calls, log)?,
                None => {}
            }
            pass.parts.push(part);
            if ended.failure.is_some() {
                pass.failure = ended.failure;
                return Ok(());
            }
            // What there is left to do must be what there is after a plain run: that the order of times is right.
            let mut left = Command::new(package.tool);
            left.arg("-n").current_dir(&dir).env_remove("MAKEFLAGS");
            run::limited(&mut left, &logs.join(left_by(phase)), LIMIT)?;
        }
        Ok(())
    }
}

fn said_by(phase: Phase) -> String {
    format!("messages of {}", phase.name())
}

fn left_by(phase: Phase) -> String {
    format!("left to do after {}", phase.name())
}

/// A checkout with the sources in `src`, their times those of the archive, and an empty `build`.
pub(super) fn lay_out(sources: &Path, tree: &Path) -> Result<()> {
    fresh(&tree.join("build"))?;
    remove(&tree.join("src"))?;
    run::output(Command::new("git").args(["init", "--quiet", "--template="]).arg(tree))?;
    run::output(Command::new("cp").arg("-a").arg(sources).arg(tree.join("src"))).map(drop)
}

/// Gives all below `dir` one time: the present.
fn touch(dir: &Path) -> Result<()> {
    let mut find = Command::new("find");
    find.arg(dir).args(["-exec", "touch", "-h", "-r"]).arg(dir.with_file_name("build")).args(["{}", "+"]);
    run::output(&mut find).map(drop)
}

/// Makes the object another, and nothing else.
fn change(source: &Path) -> Result<()> {
    let file = fs::OpenOptions::new().append(true).open(source);
    file.and_then(|mut file| {
        file.write_all(b"\n__asm__(\".pushsection .comment\\n.string \\\"changed\\\"\\n.popsection\");\n")
    })
    .with_context(|| format!("cannot change {}", source.display()))
}

fn move_to(tree: &Path, kept: &Path) -> Result<()> {
    remove(kept)?;
    let parent = kept.parent().context("a kept tree lies in a directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    fs::rename(tree, kept).with_context(|| format!("cannot move {} to {}", tree.display(), kept.display()))
}

fn said(pass: &Pass) -> String {
    let times =
        |part: &Part| format!("{:.1} s (CPU {:.1})", part.usage.wall.as_secs_f64(), part.usage.cpu.as_secs_f64());
    let times: Vec<String> = pass.parts.iter().map(times).collect();
    let end = match (&pass.failure, pass.comparison.compared) {
        (Some(_), _) => "failed".to_owned(),
        (None, 0) => "kept".to_owned(),
        (None, compared) => format!("{} of {compared} differ", pass.comparison.different.len()),
    };
    format!("{}, {}, {}: {}, {end}", pass.package, pass.grain, pass.step.name(), times.join(", "))
}
