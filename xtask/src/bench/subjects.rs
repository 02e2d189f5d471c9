//! What the hit benchmark measures: a program that does nothing, and one compile, plain or through a cache.

use super::inputs::{Case, OUTPUTS};
use super::measure::Subject;
use super::server::Server;
use crate::launcher::{Counts, Launcher};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The least that starting any program costs.
pub(crate) struct True;

/// One compile of a case, with a launcher in front of it.
pub(crate) struct Compile<'a> {
    pub(crate) case: &'a Case,
    pub(crate) launcher: Launcher,
    pub(crate) home: &'a Path,
    /// What the plain compile makes; empty where nothing is compared.
    pub(crate) expected: &'a [Vec<u8>],
    pub(crate) server: Option<&'a Server>,
    pub(crate) every: usize,
    /// Before each run larder's stamps are taken away, as in a container that was just started: it must read every
    /// input.
    pub(crate) forgets: bool,
}

impl Subject for True {
    fn name(&self) -> &str {
        "/bin/true"
    }

    fn command(&self) -> Command {
        let mut command = Command::new("/bin/true");
        Launcher::plain().apply(&mut command, Path::new("/"));
        command
    }

    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Subject for Compile<'_> {
    fn name(&self) -> &str {
        self.launcher.name
    }

    fn command(&self) -> Command {
        let mut command = match &self.launcher.program {
            None => Command::new(self.case.compiler),
            Some(program) => {
                let mut command = Command::new(program);
                command.arg(self.case.compiler);
                command
            }
        };
        self.launcher.apply(&mut command, self.home);
        command.args(&self.case.arguments).current_dir(&self.case.dir);
        command
    }

    fn prepare(&self) -> Result<()> {
        for name in OUTPUTS {
            let path = self.case.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        if self.forgets { self.launcher.forget_stamps() } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        for (name, expected) in OUTPUTS.iter().zip(self.expected) {
            let path = self.case.dir.join(name);
            let made = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(made == *expected, "{name} is not what the plain compile makes");
        }
        Ok(())
    }

    fn server_cpu(&self) -> Result<Duration> {
        self.server.map_or(Ok(Duration::ZERO), Server::cpu)
    }

    fn hits(&self) -> Result<Option<u64>> {
        Ok(self.launcher.counts(self.home)?.map(|counts| counts.hit))
    }

    fn every(&self) -> usize {
        self.every
    }

    fn is_long(&self) -> bool {
        // Of kache's client nothing here counts the instructions but stepping, for many minutes.
        self.every > 1 || self.forgets || self.launcher.name == "kache"
    }
}

impl<'a> Compile<'a> {
    /// The plain compile, of which nothing is expected.
    pub(crate) fn plain(case: &'a Case, home: &'a Path) -> Self {
        Self { case, launcher: Launcher::plain(), home, expected: &[], server: None, every: 1, forgets: false }
    }

    /// Runs the compile once, unmeasured.
    pub(crate) fn once(&self) -> Result<()> {
        self.prepare()?;
        let mut command = self.command();
        let output = command.output().with_context(|| format!("cannot start {}", crate::run::shown(&command)))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} ended with {}: {errors}", crate::run::shown(&command), output.status);
        self.check().with_context(|| format!("{}, {}", self.case.name, self.launcher.name))
    }

    /// What the cache has counted, by a launcher that counts.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let counts = self.launcher.counting().counts(self.home)?;
        counts.with_context(|| format!("{} counts nothing", self.launcher.name))
    }

    /// Fills the cache, and makes sure that a run through the counting launcher hits.
    pub(crate) fn warm_up(&self) -> Result<()> {
        let counting = Compile { launcher: self.launcher.counting(), ..*self };
        counting.once()?;
        counting.once()?;
        let before = self.counts()?;
        counting.once()?;
        let found = self.counts()? - before;
        ensure!(
            found.hit == 1 && found.miss == 0,
            "{}: {} still does not hit after two runs ({found:?})",
            self.case.name,
            self.launcher.name
        );
        Ok(())
    }
}
