//! The subjects of `bench hit` and `bench miss`: a program that does nothing, and one compile,
//! plain or through a cache.

use super::inputs::{Case, OUTPUTS};
use super::measure::Subject;
use super::rivals::{self, Rival};
use super::server::Server;
use crate::fetch::Build;
use crate::launcher::{Counts, Launcher};
use crate::place::Place;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `/bin/true`, the least that starting a program costs.
pub(crate) struct True;

/// One compile of a case, through a launcher.
pub(crate) struct Compile<'a> {
    pub(crate) case: &'a Case,
    pub(crate) launcher: Launcher,
    pub(crate) home: &'a Path,
    /// The outputs of the plain compile. Empty if the outputs are not compared.
    pub(crate) expected: &'a [Vec<u8>],
    pub(crate) server: Option<&'a Server>,
    pub(crate) every: usize,
    /// True if larder's stamps are removed before each run, as in a container that was just
    /// started. Then larder must read every input.
    pub(crate) forgets: bool,
}

/// The caches that are measured side by side.
pub(crate) struct Caches {
    larder: Launcher,
    /// larder, whose stamps are removed before each run.
    forgetful: Launcher,
    rivals: Vec<Rival>,
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
            ensure!(made == *expected, "{name} differs from the plain compile's");
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
        // Only stepping could count the instructions of kache's client, which would take many
        // minutes.
        self.every > 1 || self.forgets || self.launcher.name == "kache"
    }
}

impl<'a> Compile<'a> {
    /// Returns the plain compile, without expected outputs.
    pub(crate) fn plain(case: &'a Case, home: &'a Path) -> Self {
        Self { case, launcher: Launcher::plain(), home, expected: &[], server: None, every: 1, forgets: false }
    }

    /// Runs the compile once, without measuring.
    pub(crate) fn once(&self) -> Result<()> {
        self.prepare()?;
        let mut command = self.command();
        let output = command.output().with_context(|| format!("cannot start {}", crate::run::shown(&command)))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} ended with {}: {errors}", crate::run::shown(&command), output.status);
        self.check().with_context(|| format!("{}, {}", self.case.name, self.launcher.name))
    }

    /// Returns the counters of the cache.
    pub(crate) fn counts(&self) -> Result<Counts> {
        let counts = self.launcher.counting().counts(self.home)?;
        counts.with_context(|| format!("{} counts nothing", self.launcher.name))
    }

    /// Fills the cache, and checks that a run through the counting launcher hits.
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

impl Caches {
    /// Returns all caches that can be installed, each with an empty store below `stores`, and a
    /// note for each of the others.
    pub(crate) fn all(
        place: &Place,
        larder: &Path,
        stores: &Path,
        home: &Path,
        build: Build,
    ) -> Result<(Self, Vec<String>)> {
        let (rivals, skipped) = rivals::all(place, stores, home, build)?;
        Ok((Self::of(larder, stores, rivals)?, skipped))
    }

    fn of(larder: &Path, stores: &Path, rivals: Vec<Rival>) -> Result<Self> {
        let forgetful = Launcher::larder(larder, &stores.join("larder-empty"))?.called("larder, empty stamps");
        Ok(Self { larder: Launcher::larder(larder, &stores.join("larder"))?, forgetful, rivals })
    }

    /// Returns a compile through each cache, without expected outputs. The first is larder's.
    pub(crate) fn compiles<'a>(&'a self, case: &'a Case, home: &'a Path) -> Vec<Compile<'a>> {
        let compile = |launcher: &Launcher| Compile { launcher: launcher.clone(), ..Compile::plain(case, home) };
        let mut compiles = vec![compile(&self.larder), Compile { forgets: true, ..compile(&self.forgetful) }];
        let of_rival = |rival: &'a Rival| Compile { server: rival.server.as_ref(), ..compile(&rival.launcher) };
        compiles.extend(self.rivals.iter().map(of_rival));
        compiles
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// larder and all other caches, with programs that do not exist.
    pub(in crate::bench) fn caches(stores: &Path) -> Caches {
        let program = Path::new("/nonexistent/cache");
        let launchers = [
            Launcher::ccache(program, stores).expect("a path without spaces"),
            Launcher::ccache_loosened(program, stores).expect("a path without spaces"),
            Launcher::ccache_inodes(program, stores, stores).expect("a path without spaces"),
            Launcher::sccache(program, stores),
            Launcher::kache(program, stores),
        ];
        let rivals = launchers.map(|launcher| Rival { launcher, store: stores.into(), server: None });
        Caches::of(program, stores, rivals.into()).expect("a path without spaces")
    }

    #[test]
    fn larder_is_first_and_one_forgets() {
        let (caches, home) = (caches(Path::new("/nonexistent")), Path::new("/nonexistent"));
        let case = Case { name: "C", dir: home.into(), compiler: "gcc", arguments: Vec::new() };
        let compiles = caches.compiles(&case, home);
        let found: Vec<_> = compiles.iter().map(|compile| (compile.name(), compile.forgets)).collect();
        assert_eq!(
            found,
            [
                ("larder", false),
                ("larder, empty stamps", true),
                ("ccache", false),
                ("ccache loosened", false),
                ("ccache inode cache", false),
                ("sccache", false),
                ("kache", false),
            ]
        );
        assert_ne!(compiles[0].launcher.store(), compiles[1].launcher.store());
    }
}
