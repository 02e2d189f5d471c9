//! The launcher in front of a compiler: none, larder, or another cache, with its settings and
//! counters.

mod counts;

use crate::run;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use counts::Counts;

/// A cache in front of a compiler, with a store of its own.
#[derive(Clone)]
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    /// `None` for the plain compiler.
    pub(crate) program: Option<PathBuf>,
    settings: Vec<(&'static str, OsString)>,
    counter: Counter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counter {
    None,
    Larder,
    Ccache,
    Sccache,
    Kache,
}

const LARDER_DIR: &str = "LARDER_DIR";
const KACHE_SOCKET: &str = "KACHE_SOCKET_PATH";
const SCCACHE_SOCKET: &str = "SCCACHE_SERVER_UDS";

impl Launcher {
    /// Returns the launcher of the plain compiler.
    pub(crate) fn plain() -> Self {
        Self { name: "plain", program: None, settings: Vec::new(), counter: Counter::None }
    }

    /// Returns a program in front of the compiler that has no counters.
    pub(crate) fn uncounted(name: &'static str, program: &Path) -> Self {
        Self { name, program: Some(program.into()), settings: Vec::new(), counter: Counter::None }
    }

    /// Returns larder with its defaults and this store.
    pub(crate) fn larder(program: &Path, store: &Path) -> Result<Self> {
        let settings = vec![(LARDER_DIR, store.into())];
        Self { name: "larder", program: Some(program.into()), settings, counter: Counter::Larder }.checked()
    }

    /// Makes larder run the tool on each hit as well, and compare.
    pub(crate) fn verifying(mut self) -> Self {
        self.settings.push(("LARDER_VERIFY", "1".into()));
        self
    }

    /// Sets one more variable.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// Returns ccache with its defaults.
    pub(crate) fn ccache(program: &Path, store: &Path) -> Result<Self> {
        let settings = vec![("CCACHE_DIR", store.into()), ("CCACHE_CONFIGPATH", store.join("no-such.conf").into())];
        Self { name: "ccache", program: Some(program.into()), settings, counter: Counter::Ccache }.checked()
    }

    /// Returns sccache with its defaults, and a server on a socket beside its store.
    pub(crate) fn sccache(program: &Path, store: &Path) -> Self {
        let settings = vec![
            ("SCCACHE_DIR", store.into()),
            ("SCCACHE_CONF", store.join("no-such.conf").into()),
            (SCCACHE_SOCKET, store.with_extension("socket").into()),
        ];
        Self { name: "sccache", program: Some(program.into()), settings, counter: Counter::Sccache }
    }

    /// Returns kache with its defaults, and a daemon on a socket beside its store.
    pub(crate) fn kache(program: &Path, store: &Path) -> Self {
        let settings = vec![
            ("KACHE_CACHE_DIR", store.into()),
            ("KACHE_CONFIG", store.join("no-such.toml").into()),
            ("KACHE_HOST_CONFIG", OsString::new()),
            (KACHE_SOCKET, store.with_extension("socket").into()),
            // A daemon that a build starts although ours is running must end by itself.
            ("KACHE_DAEMON_IDLE_TIMEOUT", "120".into()),
        ];
        Self { name: "kache", program: Some(program.into()), settings, counter: Counter::Kache }
    }

    /// Changes the name.
    pub(crate) fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Returns the directory of larder's store, or `None` for other caches.
    pub(crate) fn store(&self) -> Option<PathBuf> {
        self.settings.iter().find(|(name, _)| *name == LARDER_DIR).map(|(_, path)| PathBuf::from(path))
    }

    /// Removes larder's stamps. Benchmarks change nothing else in a store; larder has no command
    /// for it.
    pub(crate) fn forget_stamps(&self) -> Result<()> {
        let store = self.store().context("only larder has stamps")?;
        // A store that was never written to has no stamps.
        for version in store.read_dir().into_iter().flatten() {
            let stamps = version?.path().join("stamps");
            for entry in stamps.read_dir().into_iter().flatten() {
                let path = entry?.path();
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Returns the socket of sccache's server or kache's daemon.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let is_socket = |name: &str| name == SCCACHE_SOCKET || name == KACHE_SOCKET;
        self.settings.iter().find(|(name, _)| is_socket(name)).map(|(_, path)| PathBuf::from(path))
    }

    /// Fails if the path has a space, because build tools split `CC="larder gcc"` at spaces.
    fn checked(self) -> Result<Self> {
        let path = self.program.as_deref().unwrap_or(Path::new("")).to_string_lossy();
        ensure!(
            !path.contains(char::is_whitespace),
            "the path {} has a space: set CARGO_TARGET_DIR to a path without spaces",
            path
        );
        Ok(self)
    }

    /// Returns the value of `CC` for this compiler.
    pub(crate) fn compiler(&self, compiler: &str) -> String {
        self.program.as_ref().map_or_else(|| compiler.to_owned(), |program| format!("{} {compiler}", program.display()))
    }

    /// Sets the environment of a build: the few variables that a build needs, and the launcher's
    /// settings.
    pub(crate) fn apply(&self, command: &mut Command, home: &Path) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", home).env("LANG", "C.UTF-8");
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
    }

    /// Returns the current counters, or `None` if there are none.
    pub(crate) fn counts(&self, home: &Path) -> Result<Option<Counts>> {
        let Some(program) = &self.program else { return Ok(None) };
        let mut command = Command::new(program);
        self.apply(&mut command, home);
        match self.counter {
            Counter::None => Ok(None),
            Counter::Larder => {
                let text =
                    run::output(command.args(["stats", "--json"])).context("larder does not print its statistics")?;
                counts::larder(&text).map(Some)
            }
            Counter::Ccache => Ok(Some(counts::ccache(&run::output(command.arg("--print-stats"))?))),
            Counter::Sccache => {
                let text = run::output(command.args(["--show-stats", "--stats-format", "json"]))?;
                counts::sccache(&text).map(Some)
            }
            Counter::Kache => counts::kache(&run::output(command.args(["stats", "--json"]))?).map(Some),
        }
    }
}
