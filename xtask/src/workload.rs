//! One whole build of a project: fresh sources, configure and build, with its cost and the cache's
//! counters.
//!
//! Unaware of: what is compared. The demo and the benchmarks decide that.

use crate::fetch::Sources;
use crate::files::{self, fresh};
use crate::launcher::{Counts, Launcher};
use crate::progress::Bar;
use crate::projects::{Project, Recipe};
use crate::run::{self, Usage};
use crate::tree;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A project, its directories, and what all its builds share.
pub(crate) struct Workload<'a> {
    pub(crate) project: &'a Project,
    pub(crate) sources: &'a Sources,
    /// The tree with `src` and `build`. Each build makes it again.
    pub(crate) tree: PathBuf,
    /// The directory for logs.
    pub(crate) logs: PathBuf,
    /// An empty home directory, so that no settings of the user apply.
    pub(crate) home: PathBuf,
    pub(crate) jobs: usize,
}

/// The cost and the results of one build.
#[derive(Clone, Debug, Default)]
pub(crate) struct Built {
    pub(crate) configure: Usage,
    pub(crate) build: Usage,
    /// The number of object files, which is the number of translation units.
    pub(crate) objects: u64,
    /// The cache's counters for the build without configuring, or `None` if there are none.
    pub(crate) counts: Option<Counts>,
}

impl Workload<'_> {
    /// Copies fresh sources and builds them. `objects` is the expected number of objects, for the
    /// progress bar.
    pub(crate) fn build(&self, step: &str, launcher: &Launcher, objects: u64) -> Result<Built> {
        self.lay_out()?;
        let label = format!("{} {step}", self.project.name);
        let configure = self.configure(launcher, step)?;
        let start = launcher.counts(&self.home)?;
        let before = tree::objects(&self.tree);
        let bar = Bar::new(&label, objects);
        let log = self.log(step, "build");
        let ticks = || bar.at(tree::objects(&self.tree).saturating_sub(before));
        let build = run::logged(&mut self.build_command(launcher), &log, ticks)?;
        let end = launcher.counts(&self.home)?;
        let made = tree::objects(&self.tree).saturating_sub(before);
        bar.end(&format!(
            "{label}: {made} objects, {:.1} s, CPU {:.1} s",
            build.wall.as_secs_f64(),
            build.cpu.as_secs_f64()
        ));
        let counts = end.zip(start).map(|(end, start)| end - start);
        Ok(Built { configure, build, objects: made, counts })
    }

    fn lay_out(&self) -> Result<()> {
        fresh(&self.tree)?;
        files::make(self.tree.join("build"))?;
        // It is a checkout of its own. Otherwise it would be part of our checkout, at another path
        // in it each time.
        files::write(self.tree.join(".git/HEAD"), "ref: refs/heads/main\n")?;
        let src = self.tree.join("src");
        tree::copy(&self.sources.root, &src)?;
        self.project
            .extra
            .iter()
            .try_for_each(|(from, to)| tree::copy_file(&self.sources.package.join(from), &src.join(to)))
    }

    fn configure(&self, launcher: &Launcher, step: &str) -> Result<Usage> {
        let (src, build) = (self.tree.join("src"), self.tree.join("build"));
        let mut command = match &self.project.recipe {
            Recipe::Make { .. } => return Ok(Usage::default()),
            Recipe::Cmake { generator, options, .. } => {
                let mut command = Command::new("cmake");
                command.arg("-S").arg(&src).arg("-B").arg(&build).args(["-G", generator]).args(options.split(' '));
                for language in launcher.program.iter().flat_map(|_| ["C", "CXX"]) {
                    let program = launcher.compiler("");
                    command.arg(format!("-DCMAKE_{language}_COMPILER_LAUNCHER={}", program.trim()));
                }
                command
            }
            Recipe::Autotools { options, .. } => {
                let mut command = Command::new(src.join("configure"));
                command.args(options.split(' ')).arg(format!("CC={}", launcher.compiler("gcc")));
                command
            }
        };
        launcher.apply(command.current_dir(&build), &self.home);
        run::logged(&mut command, &self.log(step, "configure"), || ())
            .with_context(|| format!("{} cannot be configured ({step})", self.project.name))
    }

    fn build_command(&self, launcher: &Launcher) -> Command {
        let jobs = format!("-j{}", self.jobs);
        let (mut command, targets) = match &self.project.recipe {
            Recipe::Make { targets } => {
                let mut make = Command::new("make");
                make.current_dir(self.tree.join("src")).arg(format!("CC={}", launcher.compiler("gcc")));
                (make, targets)
            }
            Recipe::Autotools { targets, .. } => (self.tool_in_build("make"), targets),
            Recipe::Cmake { generator: "Ninja", targets, .. } => (self.tool_in_build("ninja"), targets),
            Recipe::Cmake { targets, .. } => (self.tool_in_build("make"), targets),
        };
        command.arg(jobs).args(targets.split(' '));
        launcher.apply(&mut command, &self.home);
        command
    }

    fn tool_in_build(&self, tool: &str) -> Command {
        let mut command = Command::new(tool);
        command.current_dir(self.tree.join("build"));
        command
    }

    fn log(&self, step: &str, phase: &str) -> PathBuf {
        self.logs.join(format!("{}-{}-{phase}.log", self.project.name, step.replace(' ', "-")))
    }

    /// Moves the built tree to `kept`, so that the next build can use its path.
    pub(crate) fn move_to(&self, kept: &Path) -> Result<()> {
        crate::files::remove(kept)?;
        files::rename(&self.tree, kept)
    }
}
