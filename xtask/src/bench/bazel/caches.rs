//! What is put where Bazel finds its compiler: nothing but the compiler, larder, or another cache.
//!
//! Each is the same program at the same path to Bazel and to the packages, since both write that path down.

use crate::bench::calls;
use crate::bench::server::Server;
use crate::launcher::{Counts, Launcher};
use crate::place::{Place, fresh, on_path};
use crate::{fetch, run};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cache with a store of its own, in a directory of its own.
pub(super) struct Cache {
    pub(super) name: &'static str,
    /// What runs when the compiler is called, before the arguments.
    behind: Vec<PathBuf>,
    /// Its settings, which Bazel is told to pass on. larder has none.
    settings: Vec<String>,
    /// What a sandbox may write to beside its own tree.
    pub(super) writable: Vec<PathBuf>,
    /// larder's log.
    pub(super) log: Option<PathBuf>,
    counter: Option<Launcher>,
    server: Option<Launcher>,
    daemon: Option<PathBuf>,
    home: PathBuf,
}

/// A server or daemon that runs while a cache is measured.
pub(super) enum Running {
    Server(#[expect(dead_code, reason = "ends when dropped")] Server),
    Daemon(PathBuf),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Daemon(larder) = self {
            let _ = run::output(Command::new(larder).args(["daemon", "stop"]));
        }
    }
}

/// The caches to measure, the plain compiler first. `sandboxes` is the directory above all sandboxes.
pub(super) fn all(place: &Place, larder: &Path, dir: &Path, sandboxes: &Path, quick: bool) -> Result<Vec<Cache>> {
    let gcc = on_path("gcc").context("there is no gcc on PATH")?;
    let mut caches = vec![Cache::new("plain", vec![gcc.clone()], dir), Cache::larder(larder, dir)?];
    if quick {
        return Ok(caches);
    }
    let ccache = fetch::ccache(place)?;
    let store = |name: &str| dir.join(name).join("store");
    let launchers = [
        Launcher::ccache(&ccache, &store("ccache"))?,
        Launcher::ccache_anywhere(&ccache, &store("ccache base_dir"), sandboxes)?,
    ];
    for launcher in launchers {
        let mut cache = Cache::other(launcher, &ccache, &gcc, dir);
        cache.writable = vec![store(cache.name)];
        caches.push(cache);
    }
    if let Some(sccache) = on_path("sccache") {
        let launcher = Launcher::sccache(&sccache, &store("sccache"));
        let mut cache = Cache::other(launcher, &sccache, &gcc, dir);
        cache.server = cache.counter.clone();
        caches.push(cache);
    }
    Ok(caches)
}

impl Cache {
    fn new(name: &'static str, behind: Vec<PathBuf>, dir: &Path) -> Self {
        Self {
            name,
            behind,
            settings: Vec::new(),
            writable: Vec::new(),
            log: None,
            counter: None,
            server: None,
            daemon: None,
            home: dir.join("home"),
        }
    }

    /// A link called gcc that leads to larder, with `larder.toml` beside the program: a store and a log of this
    /// benchmark.
    fn larder(program: &Path, dir: &Path) -> Result<Self> {
        let dir = dir.join("larder");
        let bin = dir.join("bin");
        fresh(&bin)?;
        for name in ["larder", "larderd"] {
            let from = program.with_file_name(name);
            fs::copy(&from, bin.join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let text = "dir = \"../store\"\nlog = \"../log/calls\"\n";
        fs::write(bin.join("larder.toml"), text).with_context(|| format!("cannot write into {}", bin.display()))?;
        let links = dir.join("links");
        fresh(&links)?;
        symlink(bin.join("larder"), links.join("gcc")).context("cannot make a link")?;
        let mut cache = Self::new("larder", vec![links.join("gcc")], &dir);
        let placed = bin.join("larder");
        // What is recorded in a sandbox is handed to larderd; a larder that cannot do that yet must write for itself.
        match run::output(Command::new(&placed).args(["help", "daemon"])) {
            Ok(_) => cache.daemon = Some(placed),
            Err(_) => cache.writable.push(dir.join("store")),
        }
        cache.log = Some(dir.join("log/calls"));
        cache.writable.push(dir.join("log"));
        Ok(cache)
    }

    fn other(launcher: Launcher, program: &Path, gcc: &Path, dir: &Path) -> Self {
        let mut cache = Self::new(launcher.name, vec![program.to_owned(), gcc.to_owned()], dir);
        cache.settings =
            launcher.settings().map(|(name, value)| format!("{name}={}", value.to_string_lossy())).collect();
        cache.counter = Some(launcher);
        cache
    }

    /// Makes its store anew and puts it where the compiler is expected; `calls` is the log of the calls.
    pub(super) fn install(&self, compiler: &Path, calls: &Path) -> Result<Option<Running>> {
        self.writable.iter().try_for_each(|dir| fresh(dir))?;
        fs::create_dir_all(&self.home).with_context(|| format!("cannot make {}", self.home.display()))?;
        calls::put_in_front(compiler, &self.behind, Some(calls))?;
        if let Some(launcher) = &self.server {
            return Server::of(launcher, &self.home).map(Running::Server).map(Some);
        }
        let Some(larder) = &self.daemon else { return Ok(None) };
        if let Some(dir) = larder.ancestors().nth(2) {
            fresh(&dir.join("store"))?;
        }
        run::output(Command::new(larder).args(["daemon", "start"])).context("larderd does not start")?;
        Ok(Some(Running::Daemon(larder.clone())))
    }

    /// What Bazel is told beside where the compiler is.
    pub(super) fn flags(&self) -> Vec<String> {
        let settings = self.settings.iter().map(|setting| format!("--action_env={setting}"));
        let writable = self.writable.iter().map(|dir| format!("--sandbox_writable_path={}", dir.display()));
        settings.chain(writable).collect()
    }

    /// Whether records leave the sandbox through `larderd`.
    pub(super) fn hands_over(&self) -> bool {
        self.daemon.is_some()
    }

    /// The counters of a cache that keeps its own.
    pub(super) fn counts(&self) -> Result<Option<Counts>> {
        self.counter.as_ref().map_or(Ok(None), |launcher| launcher.counts(&self.home))
    }
}
