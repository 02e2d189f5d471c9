//! What stands in front of the compiler: nothing, larder, or another cache; its settings and its counters.

mod counts;

use crate::run;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use counts::Counts;

/// One way to put a cache in front of a compiler, with a store of its own.
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
    /// ccache with its statistics switched off: another launcher with the same store asks for them.
    CcacheSilent,
    Sccache,
    Kache,
}

const LARDER_DIR: &str = "LARDER_DIR";
const CCACHE_NOSTATS: &str = "CCACHE_NOSTATS";
const KACHE_SOCKET: &str = "KACHE_SOCKET_PATH";
const SCCACHE_SOCKET: &str = "SCCACHE_SERVER_UDS";

impl Launcher {
    /// The compiler alone.
    pub(crate) fn plain() -> Self {
        Self { name: "plain", program: None, settings: Vec::new(), counter: Counter::None }
    }

    /// A program in front of the compiler that counts nothing.
    pub(crate) fn uncounted(name: &'static str, program: &Path) -> Self {
        Self { name, program: Some(program.into()), settings: Vec::new(), counter: Counter::None }
    }

    /// larder with its defaults and its store in `store`.
    pub(crate) fn larder(program: &Path, store: &Path) -> Result<Self> {
        let settings = vec![(LARDER_DIR, store.into())];
        Self { name: "larder", program: Some(program.into()), settings, counter: Counter::Larder }.checked()
    }

    /// larder, running the tool on each hit as well and comparing.
    pub(crate) fn verifying(mut self) -> Self {
        self.settings.push(("LARDER_VERIFY", "1".into()));
        self
    }

    /// With one more variable.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// ccache with its defaults.
    pub(crate) fn ccache(program: &Path, store: &Path) -> Result<Self> {
        let settings = vec![("CCACHE_DIR", store.into()), ("CCACHE_CONFIGPATH", store.join("no-such.conf").into())];
        Self { name: "ccache", program: Some(program.into()), settings, counter: Counter::Ccache }.checked()
    }

    /// ccache with every check loosened that still notices a changed header: it looks at times and sizes instead of
    /// contents, keeps no statistics and links instead of copying.
    pub(crate) fn ccache_loosened(program: &Path, store: &Path) -> Result<Self> {
        let mut launcher = Self::ccache(program, store)?;
        launcher.name = "ccache loosened";
        let sloppiness = "file_stat_matches,include_file_mtime,include_file_ctime,time_macros,pch_defines,locale";
        launcher.settings.push(("CCACHE_SLOPPINESS", sloppiness.into()));
        launcher.settings.push((CCACHE_NOSTATS, "1".into()));
        launcher.settings.push(("CCACHE_HARDLINK", "1".into()));
        launcher.counter = Counter::CcacheSilent;
        Ok(launcher)
    }

    /// A dynamic ccache with its defaults and its inode cache, a table of what `stat` said of files that were hashed.
    /// `libraries` is where what it links lies.
    pub(crate) fn ccache_inodes(program: &Path, libraries: &Path, store: &Path) -> Result<Self> {
        let mut launcher = Self::ccache(program, store)?;
        launcher.name = "ccache inode cache";
        launcher.settings.push(("CCACHE_INODECACHE", "1".into()));
        launcher.settings.push(("LD_LIBRARY_PATH", libraries.into()));
        Ok(launcher)
    }

    /// sccache with its defaults, and a server on a socket in its store.
    pub(crate) fn sccache(program: &Path, store: &Path) -> Self {
        let settings = vec![
            ("SCCACHE_DIR", store.into()),
            ("SCCACHE_CONF", store.join("no-such.conf").into()),
            (SCCACHE_SOCKET, store.with_extension("socket").into()),
        ];
        Self { name: "sccache", program: Some(program.into()), settings, counter: Counter::Sccache }
    }

    /// kache with its defaults, and a daemon on a socket beside its store.
    pub(crate) fn kache(program: &Path, store: &Path) -> Self {
        let settings = vec![
            ("KACHE_CACHE_DIR", store.into()),
            ("KACHE_CONFIG", store.join("no-such.toml").into()),
            ("KACHE_HOST_CONFIG", OsString::new()),
            (KACHE_SOCKET, store.with_extension("socket").into()),
            // One that a build starts although ours runs shall not stay.
            ("KACHE_DAEMON_IDLE_TIMEOUT", "120".into()),
        ];
        Self { name: "kache", program: Some(program.into()), settings, counter: Counter::Kache }
    }

    /// The same under another name.
    pub(crate) fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Where larder's store is; `None` for others.
    pub(crate) fn store(&self) -> Option<PathBuf> {
        self.settings.iter().find(|(name, _)| *name == LARDER_DIR).map(|(_, path)| PathBuf::from(path))
    }

    /// Takes larder's stamps away; the one thing in a store that is touched here, since no word of larder's does that.
    pub(crate) fn forget_stamps(&self) -> Result<()> {
        let store = self.store().context("only larder has stamps")?;
        // One that was never written to has none.
        for version in store.read_dir().into_iter().flatten() {
            let stamps = version?.path().join("stamps");
            for entry in stamps.read_dir().into_iter().flatten() {
                let path = entry?.path();
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Where sccache's server or kache's daemon listens.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let is_socket = |name: &str| name == SCCACHE_SOCKET || name == KACHE_SOCKET;
        self.settings.iter().find(|(name, _)| is_socket(name)).map(|(_, path)| PathBuf::from(path))
    }

    /// The same, keeping statistics where it is measured without.
    pub(crate) fn counting(&self) -> Self {
        let mut counting = self.clone();
        if self.counter == Counter::CcacheSilent {
            counting.settings.retain(|(name, _)| *name != CCACHE_NOSTATS);
            counting.counter = Counter::Ccache;
        }
        counting
    }

    /// Whether it keeps statistics as it is.
    pub(crate) fn counts_while_measured(&self) -> bool {
        !matches!(self.counter, Counter::None | Counter::CcacheSilent)
    }

    /// Build tools split `CC="larder gcc"` at spaces.
    fn checked(self) -> Result<Self> {
        let path = self.program.as_deref().unwrap_or(Path::new("")).to_string_lossy();
        ensure!(
            !path.contains(char::is_whitespace),
            "the path of {} has a space: set CARGO_TARGET_DIR to one without",
            path
        );
        Ok(self)
    }

    /// What goes into `CC` for this compiler.
    pub(crate) fn compiler(&self, compiler: &str) -> String {
        self.program.as_ref().map_or_else(|| compiler.to_owned(), |program| format!("{} {compiler}", program.display()))
    }

    /// The environment of a build: the little that a build needs, and the launcher's settings.
    pub(crate) fn apply(&self, command: &mut Command, home: &Path) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", home).env("LANG", "C.UTF-8");
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
    }

    /// The counters by now; `None` where nothing counts.
    pub(crate) fn counts(&self, home: &Path) -> Result<Option<Counts>> {
        let Some(program) = &self.program else { return Ok(None) };
        let mut command = Command::new(program);
        self.apply(&mut command, home);
        match self.counter {
            Counter::None | Counter::CcacheSilent => Ok(None),
            Counter::Larder => {
                let text =
                    run::output(command.args(["stats", "--json"])).context("larder does not tell its statistics")?;
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
