//! The other caches that larder is measured beside, as far as they can be installed here.

use super::server::Server;
use crate::fetch::{self, Build};
use crate::launcher::Launcher;
use crate::place::{Place, fresh};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(super) const SCCACHE: &str = "0.19.0";
pub(super) const KACHE: &str = "2.0.0";

/// The note on them in reports.
pub(crate) const NOTE: &str = "ccache loosened: file_stat_matches and all other sloppiness settings that still \
     notice a changed header, with hard links and without statistics. ccache inode cache: Debian's dynamic ccache, \
     because PyPI's static one has no inode cache. sccache and kache: the CPU time of their servers is included.";

/// Another cache.
pub(crate) struct Rival {
    pub(crate) launcher: Launcher,
    /// The directory of its store.
    pub(crate) store: PathBuf,
    pub(crate) server: Option<Server>,
}

/// Returns all caches that can be installed, each with an empty store below `stores`, and a note
/// for each of the others.
pub(crate) fn all(place: &Place, stores: &Path, home: &Path, build: Build) -> Result<(Vec<Rival>, Vec<String>)> {
    let ccache = fetch::ccache(place)?;
    let store = |name: &str| stores.join(name);
    let rival = |launcher: Launcher, name: &str| Rival { launcher, store: store(name), server: None };
    let mut rivals = vec![
        rival(Launcher::ccache(&ccache, &store("ccache"))?, "ccache"),
        rival(Launcher::ccache_loosened(&ccache, &store("ccache-loosened"))?, "ccache-loosened"),
    ];
    let inodes = fetch::ccache_dynamic(place).and_then(|(program, libraries)| {
        let launcher = Launcher::ccache_inodes(&program, &libraries, &store("ccache-inodes"))?;
        Ok(rival(launcher, "ccache-inodes"))
    });
    let mut skipped = Vec::new();
    rivals.extend(or_note("ccache with its inode cache", inodes, &mut skipped));
    let (served, more) = of_rust(place, stores, home, build);
    rivals.extend(served);
    skipped.extend(more);
    Ok((rivals, skipped))
}

/// Returns the caches that also answer rustc, as far as they can be installed, and a note for each of
/// the others.
pub(crate) fn of_rust(place: &Place, stores: &Path, home: &Path, build: Build) -> (Vec<Rival>, Vec<String>) {
    let store = |name: &str| stores.join(name);
    let served = |name: &'static str, launcher: Launcher| -> Result<Rival> {
        let server = Some(Server::of(&launcher, home).context("cannot start its server")?);
        Ok(Rival { launcher, store: store(name), server })
    };
    let sccache = fetch::installed(place, "sccache", SCCACHE, build)
        .and_then(|program| served("sccache", Launcher::sccache(&program, &store("sccache"))));
    let kache = fetch::installed(place, "kache", KACHE, build)
        .and_then(|program| served("kache", Launcher::kache(&program, &store("kache"))));
    let mut skipped = Vec::new();
    let found = [("sccache", sccache), ("kache", kache)];
    let found: Vec<Rival> = found.into_iter().filter_map(|(name, found)| or_note(name, found, &mut skipped)).collect();
    (found, skipped)
}

/// Returns a cache, or adds a note that it is missing.
fn or_note(name: &str, found: Result<Rival>, skipped: &mut Vec<String>) -> Option<Rival> {
    found
        .inspect_err(|error| {
            println!("skipped: {name}: {error:#}");
            // Only the outermost words, because the causes may contain paths of this machine.
            skipped.push(format!("Skipped: {name}: {error}."));
        })
        .ok()
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
