//! One build of each package by one cache, step by step; what it cost, hit and got wrong.

use super::Package;
use super::caches::Cache;
use super::phases::Times;
use super::workspace::{Workspace, keep};
use crate::bench::calls::{self, Call};
use crate::launcher::Counts;
use crate::place::remove;
use crate::tree;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What precedes a build of all packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A new server and an empty store.
    Cold,
    /// Outputs and sandboxes removed: sandboxes of new numbers.
    Fresh,
    /// The same, and one header of each package changed.
    Changed,
    /// A new server, so the numbers of `Cold` again, with the changed headers.
    OldNumber,
}

/// In the order that they are measured in.
pub(super) const STEPS: &[Step] = &[Step::Cold, Step::Fresh, Step::Changed, Step::OldNumber];

/// One package by one cache in one step.
pub(super) struct Pass {
    pub(super) cache: &'static str,
    pub(super) cflags: &'static str,
    pub(super) step: Step,
    pub(super) package: &'static str,
    pub(super) times: Times,
    pub(super) calls: Vec<Call>,
    /// What a cache counted that keeps counters instead of a log.
    pub(super) counts: Option<Counts>,
    /// Files compared with those of the plain compiler, and names of those that differ.
    pub(super) compared: u64,
    pub(super) different: Vec<PathBuf>,
    /// Units that include the header that was changed, where this step shows that.
    pub(super) units: Option<u64>,
}

/// The benchmark as far as it went.
pub(super) struct Bench {
    pub(super) space: Workspace,
    pub(super) packages: Vec<&'static Package>,
    /// What the plain compiler made, by flags, step and package.
    pub(super) kept: PathBuf,
    pub(super) passes: Vec<Pass>,
}

impl Step {
    /// In tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Cold => "cold",
            Step::Fresh => "fresh sandbox",
            Step::Changed => "fresh sandbox, a header changed",
            Step::OldNumber => "old number, a header changed",
        }
    }

    /// In names of files.
    fn word(self) -> &'static str {
        match self {
            Step::Cold => "cold",
            Step::Fresh => "fresh",
            Step::Changed => "changed",
            Step::OldNumber => "old-number",
        }
    }
}

impl Bench {
    /// Measures `cache` in these steps. The plain compiler is to be measured first: it makes what the others are
    /// compared with.
    pub(super) fn measure(&mut self, cache: &Cache, cflags: &'static str, steps: &[Step]) -> Result<()> {
        self.space.clean()?;
        self.space.shut_down()?;
        self.space.restore()?;
        let running = cache.install(&self.space.compiler, &self.space.calls)?;
        for &step in steps {
            self.prepare(step)?;
            for package in self.packages.clone() {
                let pass = self
                    .pass(cache, cflags, step, package)
                    .with_context(|| format!("{}, {}, {}", cache.name, step.name(), package.name))?;
                let phases = pass.times.phases;
                eprintln!(
                    "{} ({cflags} flags), {}: {} configured in {:.1} s, made in {:.1} s, {} of {} files differ",
                    cache.name,
                    step.name(),
                    package.name,
                    phases[0].wall_s,
                    phases[1].wall_s,
                    pass.different.len(),
                    pass.compared
                );
                self.passes.push(pass);
            }
        }
        drop(running);
        Ok(())
    }

    fn prepare(&self, step: Step) -> Result<()> {
        self.space.clean()?;
        match step {
            Step::Cold | Step::Fresh => Ok(()),
            Step::Changed => self.packages.iter().try_for_each(|package| self.space.change(package.header)),
            Step::OldNumber => self.space.shut_down(),
        }
    }

    fn pass(&self, cache: &Cache, cflags: &'static str, step: Step, package: &Package) -> Result<Pass> {
        let before = cache.counts()?;
        let made = self.space.build(package.name, cache, cflags, step.word())?;
        let counts = cache.counts()?.zip(before).map(|(after, before)| after - before);
        let mut calls = calls::take(&self.space.calls)?;
        // Bazel asks the compiler about itself as well, the first time.
        calls.retain(|call| made.times.phases.iter().any(|phase| phase.holds(call.start_s)));
        if let Some(log) = &cache.log {
            calls::judge(&mut calls, log)?;
        }
        let reference = |step: Step| self.kept.join(cflags).join(step.word()).join(package.name);
        let is_plain = cache.name == "plain";
        let mine = if is_plain { reference(step) } else { self.kept.join("now") };
        keep(&made, &mine)?;
        let (mut compared, mut different) = (0, Vec::new());
        if !is_plain {
            self.same_place(cflags, step, package, &made.times)?;
            let found = tree::compare(&reference(step), &mine, &self.kept.join("no-sources"), &[])?;
            compared = found.compared;
            different = found.different.into_iter().map(|(path, _)| path).collect();
            if different.is_empty() {
                remove(&mine)?;
            } else {
                // For a look at what is wrong.
                let wrong = self.kept.join(format!("wrong-{}", cache.name).replace(' ', "-"));
                let to = wrong.join(cflags).join(step.word()).join(package.name);
                remove(&to)?;
                std::fs::create_dir_all(to.parent().context("kept in a directory")?)?;
                std::fs::rename(&mine, &to)?;
            }
        }
        let units = match (is_plain, step) {
            (true, Step::OldNumber) => Some(units(&reference(Step::Cold), &reference(step))?),
            _ => None,
        };
        Ok(Pass {
            cache: cache.name,
            cflags,
            step,
            package: package.name,
            times: made.times,
            calls,
            counts,
            compared,
            different,
            units,
        })
    }

    /// What is compared was made in sandboxes of one number.
    fn same_place(&self, cflags: &str, step: Step, package: &Package, times: &Times) -> Result<()> {
        let plain = self
            .passes
            .iter()
            .find(|pass| (pass.cache, pass.cflags, pass.step, pass.package) == ("plain", cflags, step, package.name));
        let place = &plain.context("the plain compiler was not measured first")?.times.place;
        ensure!(*place == times.place, "built in {}, by the plain compiler in {place}: not comparable", times.place);
        Ok(())
    }
}

/// How many objects the change of a header made different, the two that libtool makes of a unit counted as two.
fn units(before: &std::path::Path, after: &std::path::Path) -> Result<u64> {
    let [before, after] = [before, after].map(|dir| dir.join("objects"));
    let found = tree::compare(&before, &after, &before.join("no-sources"), &[])?;
    let mut differs: BTreeMap<PathBuf, ()> = BTreeMap::new();
    for (path, _) in found.different {
        if path.extension().is_some_and(|end| end == "o" || end == "lo") {
            differs.insert(path, ());
        }
    }
    Ok(differs.len() as u64)
}
