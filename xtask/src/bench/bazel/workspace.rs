//! The example's workspace, laid out anew, and Bazel in it.

use super::caches::Cache;
use super::phases::{self, Times};
use crate::place::{fresh, remove};
use crate::run;
use crate::tree;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A workspace with a Bazel of its own; the server ends with this value.
pub(super) struct Workspace {
    dir: PathBuf,
    /// Where Bazel keeps everything.
    output: PathBuf,
    pub(super) home: PathBuf,
    logs: PathBuf,
    /// The compiler that Bazel is told of.
    pub(super) compiler: PathBuf,
    /// The log of its calls.
    pub(super) calls: PathBuf,
    sources: PathBuf,
    jobs: usize,
}

/// What one build of a package left.
pub(super) struct Made {
    pub(super) times: Times,
    /// What it installed: the action's output.
    pub(super) installed: PathBuf,
    /// An archive of its objects, and of the headers that it generated.
    pub(super) objects: PathBuf,
}

impl Workspace {
    /// Copies the example below `work`, with the sources that its script fetches into `downloads`.
    pub(super) fn lay_out(example: &Path, downloads: &Path, work: &Path, jobs: usize) -> Result<Self> {
        let fetched = downloads.join("bazel-sources");
        let script = example.join("fetch-sources");
        run::shown_to_user(Command::new(&script).arg(&fetched)).context("the packages' sources cannot be fetched")?;
        let dir = work.join("workspace");
        fresh(&dir)?;
        for entry in fs::read_dir(example).with_context(|| format!("cannot list {}", example.display()))? {
            let entry = entry.with_context(|| format!("cannot list {}", example.display()))?;
            let (from, to) = (entry.path(), dir.join(entry.file_name()));
            if from.is_symlink() || from.file_name().is_some_and(|name| name == "sources" || name == "user.bazelrc") {
                continue;
            }
            if from.is_dir() {
                tree::copy(&from, &to)?;
            } else {
                tree::copy_file(&from, &to)?;
            }
        }
        let space = Self {
            dir,
            output: work.join("bazel"),
            home: work.join("home"),
            logs: work.join("logs"),
            compiler: work.join("compiler/gcc"),
            calls: work.join("calls/log"),
            sources: fetched,
            jobs,
        };
        for dir in [&space.home, &space.logs, &work.join("calls")] {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        space.restore()?;
        Ok(space)
    }

    /// The directory that all sandboxes are below.
    pub(super) fn sandboxes(work: &Path) -> PathBuf {
        work.join("bazel")
    }

    /// The sources as they were fetched, with their own times: a timestamp decides what `make` generates again.
    pub(super) fn restore(&self) -> Result<()> {
        let to = self.dir.join("sources");
        remove(&to)?;
        run::output(Command::new("cp").arg("-a").arg(&self.sources).arg(&to))
            .context("cannot copy the sources")
            .map(drop)
    }

    /// Changes a header so that every object whose unit includes it becomes another.
    pub(super) fn change(&self, header: &str) -> Result<()> {
        let path = self.dir.join("sources").join(header);
        let mut text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.extend_from_slice(b"\n__asm__(\".pushsection .comment\\n.string \\\"changed\\\"\\n.popsection\");\n");
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Builds one package alone, so that the number of its sandbox is the same for every cache.
    pub(super) fn build(&self, package: &str, cache: &Cache, cflags: &str, step: &str) -> Result<Made> {
        let target = format!("//foreign:{package}");
        let mut command = self.bazel("build");
        command.arg(format!("--repo_env=CC={}", self.compiler.display()));
        command.args(["--define=measure=1".to_owned(), format!("--define=jobs={}", self.jobs)]);
        command.arg(format!("--define=cflags={cflags}")).args(cache.flags());
        let calls = self.calls.parent().context("a log lies in a directory")?;
        command.arg(format!("--sandbox_writable_path={}", calls.display())).arg(&target);
        let log = self.logs.join(format!("{}-{cflags}-{step}-{package}.log", cache.name).replace([' ', ','], "-"));
        run::logged(&mut command, &log, || ())?;
        let made = self.dir.join("bazel-bin/foreign");
        Ok(Made {
            times: phases::read(&made.join(format!("{package}.times")))?,
            installed: made.join(package),
            objects: made.join(format!("{package}.objects.tar")),
        })
    }

    /// Takes away all outputs and all sandboxes.
    pub(super) fn clean(&self) -> Result<()> {
        run::output(&mut self.bazel("clean")).map(drop)
    }

    /// Ends the server: the next one counts its sandboxes from one again.
    pub(super) fn shut_down(&self) -> Result<()> {
        run::output(&mut self.bazel("shutdown")).map(drop)
    }

    fn bazel(&self, word: &str) -> Command {
        let mut command = Command::new("bazel");
        command.arg(format!("--output_user_root={}", self.output.display())).arg(word).current_dir(&self.dir);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", &self.home).env("USER", "larder");
        command
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = self.shut_down();
    }
}

/// Copies what a build left to where the next one does not overwrite it: `installed` and `objects` below `to`.
pub(super) fn keep(made: &Made, to: &Path) -> Result<()> {
    fresh(to)?;
    let (installed, objects) = (to.join("installed"), to.join("objects"));
    run::output(Command::new("cp").arg("-a").arg(&made.installed).arg(&installed))?;
    // Bazel takes the right to write from outputs, directories too.
    run::output(Command::new("chmod").args(["-R", "u+w"]).arg(&installed))?;
    fs::create_dir_all(&objects).with_context(|| format!("cannot make {}", objects.display()))?;
    run::output(Command::new("tar").arg("-xf").arg(&made.objects).arg("-C").arg(&objects))?;
    ensure!(tree::objects(&objects) > 0, "{} holds no object", made.objects.display());
    Ok(())
}
