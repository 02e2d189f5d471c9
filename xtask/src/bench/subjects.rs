//! The subjects of `bench hit` and `bench miss`: a program that does nothing, and one compile,
//! plain or through a cache.

use super::inputs::{Case, OUTPUTS};
use super::measure::Subject;
use super::rivals::{self, Rival};
use super::scene::Scene;
use super::server::Server;
use crate::fetch::Build;
use crate::files;
use crate::launcher::{Counts, Launcher};
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
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
    pub(crate) before: Before,
    /// The working directory.
    pub(crate) dir: PathBuf,
}

/// What is done before each run of a compile, besides removing its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    /// larder's stamps are removed, as in a container that was just started. Then larder must read
    /// every input.
    ForgetStamps,
    /// The working directory is made anew, as a copy of the case's. So there is no stamp for the
    /// sources, but there are stamps for the compiler and the system's headers.
    Copy,
    /// The working directory is made anew, with a symbolic link to each file of the case, as in a
    /// sandbox of Bazel.
    Link,
}

/// The caches that are measured side by side.
pub(crate) struct Caches {
    larder: Launcher,
    /// larder, whose stamps are removed before each run.
    forgetful: Launcher,
    /// larder, which finds copies of the sources, or links to them.
    fresh: [(Launcher, Before); 2],
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

    fn is_short(&self) -> bool {
        true
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
        command.args(&self.case.arguments).current_dir(&self.dir);
        command
    }

    fn prepare(&self) -> Result<()> {
        if let Before::Copy | Before::Link = self.before {
            files::remove(&self.dir)?;
            let how = if self.before == Before::Copy { "-a" } else { "-as" };
            run::silent(Command::new("cp").arg(how).args([&self.case.dir, &self.dir]))?;
        }
        for name in OUTPUTS {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        if self.before == Before::ForgetStamps { self.launcher.forget_stamps() } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        for (name, expected) in OUTPUTS.iter().zip(self.expected) {
            let path = self.dir.join(name);
            let made = files::bytes(&path)?;
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

    fn is_short(&self) -> bool {
        self.launcher.store().is_some() && self.before == Before::Nothing
    }
}

impl<'a> Compile<'a> {
    /// Returns the plain compile, without expected outputs.
    pub(crate) fn plain(case: &'a Case, home: &'a Path) -> Self {
        let (launcher, dir) = (Launcher::plain(), case.dir.clone());
        Self { case, launcher, home, expected: &[], server: None, every: 1, before: Before::Nothing, dir }
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
        let counts = self.launcher.counts(self.home)?;
        counts.with_context(|| format!("{} counts nothing", self.launcher.name))
    }

    /// Fills the cache, and checks that it hits then.
    pub(crate) fn warm_up(&self) -> Result<()> {
        if let Before::Copy | Before::Link = self.before {
            // A source as new as the run would not be recorded.
            let launcher = self.launcher.clone();
            Compile { launcher, expected: self.expected, ..Compile::plain(self.case, self.home) }.once()?;
        }
        self.once()?;
        self.once()?;
        let before = self.counts()?;
        self.once()?;
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
    /// Returns all caches that can be installed, each with an empty store, and a note for each of the
    /// others.
    pub(crate) fn all(scene: &Scene, build: Build) -> Result<(Self, Vec<String>)> {
        let (rivals, skipped) = rivals::all(scene, build)?;
        Ok((Self::of(scene, rivals)?, skipped))
    }

    fn of(scene: &Scene, rivals: Vec<Rival>) -> Result<Self> {
        let larder = |store: &str| Launcher::larder(&scene.larder, &scene.store(store));
        Ok(Self {
            larder: larder("larder")?,
            forgetful: larder("larder-empty")?.called("larder, empty stamps"),
            fresh: [
                (larder("larder-copies")?.called("larder, copied sources"), Before::Copy),
                (larder("larder-links")?.called("larder, linked sources"), Before::Link),
            ],
            rivals,
        })
    }

    /// Returns a compile through each cache, without expected outputs. The first is larder's.
    pub(crate) fn compiles<'a>(&'a self, case: &'a Case, home: &'a Path) -> Vec<Compile<'a>> {
        let compile = |launcher: &Launcher| Compile { launcher: launcher.clone(), ..Compile::plain(case, home) };
        let forgetful = Compile { before: Before::ForgetStamps, ..compile(&self.forgetful) };
        let mut compiles = vec![compile(&self.larder), forgetful];
        let of_rival = |rival: &'a Rival| Compile { server: rival.server.as_ref(), ..compile(&rival.launcher) };
        compiles.extend(self.rivals.iter().map(of_rival));
        compiles
    }

    /// Returns compiles through larder in a directory that is made before each run.
    pub(crate) fn in_fresh_places<'a>(&'a self, case: &'a Case, home: &'a Path) -> Vec<Compile<'a>> {
        let compile = |(launcher, before): &(Launcher, Before)| {
            let dir = case.dir.with_extension(if *before == Before::Copy { "copies" } else { "links" });
            Compile { launcher: launcher.clone(), before: *before, dir, ..Compile::plain(case, home) }
        };
        self.fresh.iter().map(compile).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::place::Place;

    /// Calls `check` with larder and all other caches, whose programs do not exist.
    pub(in crate::bench) fn with_caches(check: impl FnOnce(Scene, Caches)) {
        let path = Path::new("/nonexistent");
        let place = Place { repo: path.into(), target: path.into() };
        let scene = Scene { place: &place, larder: path.into(), work: path.into(), home: path.into() };
        let ccache = Launcher::ccache(path, path).expect("a path without spaces");
        let launchers = [ccache, Launcher::sccache(path, path), Launcher::kache(path, path)];
        let rivals = launchers.map(|launcher| Rival { launcher, store: path.into(), server: None });
        let caches = Caches::of(&scene, rivals.into()).expect("a path without spaces");
        check(scene, caches);
    }

    #[test]
    fn larder_is_first_and_one_forgets() {
        with_caches(|scene, caches| {
            let case = Case {
                name: "C",
                dir: scene.work.clone(),
                compiler: "gcc",
                arguments: Vec::new(),
                has_own_headers: false,
            };
            let compiles = caches.compiles(&case, &scene.home);
            let found: Vec<_> = compiles.iter().map(|compile| (compile.name(), compile.before)).collect();
            let others = ["ccache", "sccache", "kache"].map(|name| (name, Before::Nothing));
            let larders = [("larder", Before::Nothing), ("larder, empty stamps", Before::ForgetStamps)];
            assert_eq!(found, [&larders[..], &others].concat());
            assert_ne!(compiles[0].launcher.store(), compiles[1].launcher.store());
        });
    }
}
