//! The other caches that larder is measured beside, as far as they can be installed here.

use super::scene::Scene;
use super::server::Server;
use crate::fetch::{self, Build};
use crate::files::fresh;
use crate::launcher::Launcher;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(super) const SCCACHE: &str = "0.19.0";
pub(super) const KACHE: &str = "2.0.0";

/// The caches that also answer rustc, with their versions.
pub(super) const OF_RUST: [(&str, &str); 2] = [("sccache", SCCACHE), ("kache", KACHE)];

/// The note on them in reports.
pub(crate) const NOTE: &str = "sccache and kache: the CPU time of their servers is included.";

/// A cache with a store of its own.
pub(crate) struct Rival {
    pub(crate) launcher: Launcher,
    /// The directory of its store.
    pub(crate) store: PathBuf,
    pub(crate) server: Option<Server>,
}

/// Returns all caches that can be installed, each with an empty store, and a note for each of the
/// others.
pub(crate) fn all(scene: &Scene, build: Build) -> Result<(Vec<Rival>, Vec<String>)> {
    let (mut rivals, skipped) = of_rust(scene, build);
    let store = scene.store("ccache");
    let launcher = Launcher::ccache(&fetch::ccache(scene.place)?, &store)?;
    rivals.insert(0, Rival { launcher, store, server: None });
    Ok((rivals, skipped))
}

/// Returns the caches that also answer rustc, as far as they can be installed, and a note for each of
/// the others.
pub(crate) fn of_rust(scene: &Scene, build: Build) -> (Vec<Rival>, Vec<String>) {
    let (mut rivals, mut skipped) = (Vec::new(), Vec::new());
    for (name, version) in OF_RUST {
        let installed = fetch::installed(scene.place, name, version, build);
        let rival = installed.and_then(|program| {
            let store = scene.store(name);
            let launcher = if name == "kache" { Launcher::kache } else { Launcher::sccache }(&program, &store);
            let server = Some(Server::of(&launcher, &scene.home).context("cannot start its server")?);
            Ok(Rival { launcher, store, server })
        });
        match rival {
            Ok(rival) => rivals.push(rival),
            Err(error) => {
                println!("skipped: {name}: {error:#}");
                // Only the outermost words, because the causes may contain paths of this machine.
                skipped.push(format!("Skipped: {name}: {error}."));
            }
        }
    }
    (rivals, skipped)
}

impl Rival {
    /// Starts again with an empty store.
    pub(crate) fn empty(&mut self, home: &Path) -> Result<()> {
        // The server remembers the content of its store, so it must not run meanwhile.
        let had_one = self.server.take().is_some();
        fresh(&self.store)?;
        self.server = had_one.then(|| Server::of(&self.launcher, home)).transpose()?;
        Ok(())
    }
}
