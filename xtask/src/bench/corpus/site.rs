//! The directories of one package, and the builds in them.

use super::packages::Package;
use super::row::{Outcome, Row};
use crate::files::{self, fresh, remove};
use crate::launcher::{Counts, Launcher};
use crate::place::on_path;
use crate::run::{self, Usage};
use crate::tree::{self, Exclusion, Exclusions};
use anyhow::{Context, Result};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The names of compilers that builds call.
const COMPILERS: &[&str] =
    &["gcc", "g++", "cc", "c++", "x86_64-linux-gnu-gcc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-gcc"];
/// Where builds find all other programs.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What the benchmark appends to a source.
const EDIT: &[u8] = b"\nint larder_corpus_edit(void);\nint larder_corpus_edit(void) { return 42; }\n";
/// The directories of three places. Their lengths differ.
const PLACES: [&str; 3] = ["1", "22", "333"];

/// Files that two plain builds may leave equal by chance. The others that differ are found by
/// building twice.
const EXCLUDED: &[Exclusion] = &[
    ("*.log", "times, process ids, names of temporary files"),
    (".ninja_log", "times"),
    (".ninja_deps", "times, and the order in which jobs ended"),
    ("CMakeConfigureLog.yaml", "a log"),
];

/// What is done to a source after the first build.
#[derive(Clone, Copy)]
enum Change {
    Touch,
    Edit,
    Revert,
}

const CHANGES: [(Change, &str); 3] =
    [(Change::Touch, "touched"), (Change::Edit, "edited"), (Change::Revert, "changed back")];

/// The directories of one package.
struct Site<'a> {
    package: &'a Package,
    sources: PathBuf,
    work: PathBuf,
    home: PathBuf,
    /// Holds links with the names of compilers.
    tools: PathBuf,
}

/// Builds a package in all ways in the directory `work`.
pub(super) fn measure(work: &Path, larder: &Path, package: &Package, sources: PathBuf, keep: bool) -> Result<Row> {
    fresh(work)?;
    let site = Site { package, sources, work: work.to_path_buf(), home: work.join("home"), tools: work.join("tools") };
    files::make(&site.home)?;
    let mut row = Row::default();
    let excluded = site.compilers(larder, &mut row)?;
    site.whole(larder, &excluded, &mut row)?;
    if !keep {
        remove(work)?;
    }
    Ok(row)
}

impl Site<'_> {
    /// Builds plainly, and with compilers through larder. Returns what differs between two plain builds.
    fn compilers(&self, larder: &Path, row: &mut Row) -> Result<Exclusions> {
        let [first, second, _] = PLACES.map(|name| self.work.join(name));
        let (plain, kept) = (Launcher::plain(), self.work.join("kept"));
        self.masquerade(&plain)?;
        fresh(&kept)?;
        self.build(&second, &plain)?;
        keep(&second, &kept.join("other"))?;
        row.plain = self.build(&second, &plain)?;
        let mut excluded = Exclusions::known(EXCLUDED);
        let between = tree::compare(&kept.join("other"), &second, &self.sources, &excluded)?;
        excluded.found = between.different.into_iter().map(|(path, _)| path).collect();
        copy(&second, &kept.join("built"))?;
        for (change, name) in CHANGES {
            self.change(&second, &plain, change, name)?;
            copy(&second, &kept.join(name))?;
        }
        let through = self.through(larder, "store")?;
        row.cold = self.build(&first, &through)?;
        remove(&first)?;
        let before = self.counts(&through)?;
        row.warm = self.build(&second, &through)?;
        let after = self.counts(&through)?;
        row.counts = after.clone() - before;
        let mut compare = |expected: &Path, step| -> Result<()> {
            row.compared.push((step, tree::compare(expected, &second, &self.sources, &excluded)?));
            Ok(())
        };
        compare(&kept.join("built"), "warm")?;
        self.step(&second, &through, None, self.package.make, "again")?;
        row.again = reached(&(self.counts(&through)? - after));
        for (change, name) in CHANGES {
            self.change(&second, &through, change, name)?;
            compare(&kept.join(name), name)?;
        }
        remove(&second)?;
        Ok(excluded)
    }

    /// Runs whole commands in three places, and compares the files of the third.
    fn whole(&self, larder: &Path, excluded: &Exclusions, row: &mut Row) -> Result<()> {
        let (plain, kept) = (Launcher::plain(), self.work.join("kept"));
        let last = self.work.join(PLACES[2]);
        self.masquerade(&plain)?;
        self.build(&last, &plain)?;
        keep(&last, &kept)?;
        let through = self.through(larder, "store-of-whole")?;
        for name in PLACES {
            let dir = self.work.join(name);
            self.lay_out(&dir)?;
            let mut outcomes = [None, None];
            row.whole_usage = Usage::default();
            for (index, step) in [self.package.configure, self.package.make].into_iter().enumerate() {
                if !step.is_empty() {
                    let before = self.counts(&through)?;
                    let label = format!("whole-{name}-{index}");
                    let usage = self.step(&dir, &through, Some(larder), step, &label)?;
                    row.whole_usage = row.whole_usage + usage;
                    outcomes[index] = Some(outcome(&(self.counts(&through)? - before)));
                }
            }
            row.whole.push(outcomes);
            if dir != last {
                remove(&dir)?;
            }
        }
        row.compared.push(("whole", tree::compare(&kept, &last, &self.sources, excluded)?));
        let before = self.counts(&through)?;
        self.step(&last, &through, None, self.package.make, "whole-again")?;
        row.whole_again = reached(&(self.counts(&through)? - before));
        Ok(())
    }

    /// Returns larder with a store and a log of this name, and puts it in front of the compilers.
    fn through(&self, larder: &Path, store: &str) -> Result<Launcher> {
        let launcher = Launcher::larder(larder, &self.work.join(store))?;
        self.masquerade(&launcher)?;
        let log = self.work.join(format!("{store}.log"));
        Ok(launcher.with("LARDER_LOG", &log.to_string_lossy()))
    }

    /// Makes the links with the names of compilers. They lead to larder, or to the compilers.
    fn masquerade(&self, launcher: &Launcher) -> Result<()> {
        fresh(&self.tools)?;
        for name in COMPILERS {
            if let Some(compiler) = on_path(name) {
                let target = launcher.program.clone().unwrap_or(compiler);
                let link = self.tools.join(name);
                symlink(&target, &link).with_context(|| format!("cannot make the link {}", link.display()))?;
            }
        }
        Ok(())
    }

    /// Copies fresh sources into a place and builds them.
    fn build(&self, dir: &Path, launcher: &Launcher) -> Result<Usage> {
        self.lay_out(dir)?;
        let mut all = Usage::default();
        for (name, step) in [("configure", self.package.configure), ("make", self.package.make)] {
            if !step.is_empty() {
                all = all + self.step(dir, launcher, None, step, &format!("{}-{name}", launcher.name))?;
            }
        }
        Ok(all)
    }

    fn lay_out(&self, dir: &Path) -> Result<()> {
        fresh(dir)?;
        tree::copy(&self.sources, &dir.join("src"))?;
        // A file that is as new as the command that reads it may still change in the same tick of
        // the clock, so larder would not record the command.
        thread::sleep(Duration::from_millis(20));
        Ok(())
    }

    /// Changes the source and builds again.
    fn change(&self, dir: &Path, launcher: &Launcher, change: Change, name: &str) -> Result<()> {
        let (path, original) = (dir.join("src").join(self.package.edited), self.sources.join(self.package.edited));
        let saying = || format!("cannot change {}", path.display());
        let bytes = files::bytes(&original)?;
        // Writing sets the present time in each case.
        fs::write(&path, &bytes).with_context(saying)?;
        if let Change::Edit = change {
            OpenOptions::new()
                .append(true)
                .open(&path)
                .and_then(|mut file| file.write_all(EDIT))
                .with_context(saying)?;
        }
        self.step(dir, launcher, None, self.package.make, &format!("{}-{name}", launcher.name)).map(drop)
    }

    /// Runs one step of the build in a place, as a whole command of `whole` if that is given.
    fn step(&self, dir: &Path, launcher: &Launcher, whole: Option<&Path>, step: &str, label: &str) -> Result<Usage> {
        let mut command = match whole {
            Some(larder) => {
                let mut command = Command::new(larder);
                command.args(["run", "--", "sh"]);
                command
            }
            None => Command::new("sh"),
        };
        launcher.apply(command.arg("-c").arg(step).current_dir(dir.join("src")), &self.home);
        command.env("PATH", format!("{}:{SYSTEM_PATH}", self.tools.display())).env("CC", "gcc").env("CXX", "g++");
        let log = self.work.join(format!("{label}.log"));
        run::logged(&mut command, &log, || ()).with_context(|| format!("{}: {label} failed", self.package.name))
    }

    fn counts(&self, launcher: &Launcher) -> Result<Counts> {
        Ok(launcher.counts(&self.home)?.unwrap_or_default())
    }
}

/// Returns what became of a whole command, by the counters that changed.
fn outcome(delta: &Counts) -> Outcome {
    match (delta.hit, delta.runs()) {
        (1, 0) => Outcome::Hit,
        _ if delta.unrecorded() > 0 => Outcome::Unrecorded,
        _ => Outcome::Miss,
    }
}

/// Returns how many commands reached larder.
fn reached(counts: &Counts) -> u64 {
    counts.hit + counts.runs()
}

/// Moves a tree away, to compare others with it.
fn keep(dir: &Path, kept: &Path) -> Result<()> {
    remove(kept)?;
    files::rename(dir, kept)
}

/// Copies a tree that will be built in again.
fn copy(dir: &Path, kept: &Path) -> Result<()> {
    remove(kept)?;
    run::output(Command::new("cp").arg("-a").arg(dir).arg(kept)).map(drop)
}
