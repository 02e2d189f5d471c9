//! Caches as programs: how one is called, which variables it wants, how it is started, and what it counted.

mod ccache;
mod larder;
mod none;
mod sccache;

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One cache with a store of its own, for one case.
pub trait Cache: Send {
    /// What stands before a tool.
    fn before_tool(&self) -> Vec<OsString>;
    /// What stands before any command.
    fn before_any(&self) -> Vec<OsString>;
    /// Its variables.
    fn env(&self) -> Vec<(OsString, OsString)>;
    /// The directory that a case may harm.
    fn store(&self) -> &Path;
    /// What its masquerading links lead to.
    fn program(&self) -> Option<&Path>;
    /// Starts what has to be running.
    fn start(&mut self) -> Result<()> {
        Ok(())
    }
    /// Ends it.
    fn stop(&mut self) {}
    /// Ends it as a crash would.
    fn kill_server(&mut self) {}
    /// Processes that are no leftovers.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Whether it gets to know a tool by the first run of it, whose result it does not keep.
    fn learns(&self) -> bool {
        false
    }
    /// What it wrote into its log since it was last asked, in a line.
    fn said(&mut self) -> String {
        String::new()
    }
    /// What it counted so far; `None` where nothing counts, or it does not answer.
    fn counts(&self) -> Option<Counts>;
}

/// Outcomes, in larder's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answered from the store.
    pub hit: u64,
    /// The tool ran.
    pub miss: u64,
    /// Not the cache's to do.
    pub bypass: u64,
    /// The cache had trouble.
    pub fallback: u64,
}

impl Counts {
    /// What was counted since.
    pub fn since(self, before: Self) -> Self {
        Self {
            hit: self.hit.saturating_sub(before.hit),
            miss: self.miss.saturating_sub(before.miss),
            bypass: self.bypass.saturating_sub(before.bypass),
            fallback: self.fallback.saturating_sub(before.fallback),
        }
    }

    /// Hits and nothing else.
    pub fn only_hits(self) -> bool {
        self.hit > 0 && self.miss + self.bypass + self.fallback == 0
    }
}

/// Which cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// No cache: both runs are plain, and must not differ.
    None,
    /// larder.
    Larder,
    /// ccache.
    Ccache,
    /// Mozilla's sccache.
    Sccache,
}

/// How larder is to observe a tool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Observer {
    /// A preloaded library.
    Preload,
    /// The system calls.
    Kernel,
    /// What the compiler's depfile says.
    Depfile,
}

impl Kind {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Larder => "larder",
            Kind::Ccache => "ccache",
            Kind::Sccache => "sccache",
        }
    }

    /// Whether it takes any command, not tools only.
    pub fn takes_any(self) -> bool {
        matches!(self, Kind::None | Kind::Larder)
    }
}

/// A cache as the suite is asked to run it.
pub struct Chosen {
    /// Which.
    pub kind: Kind,
    /// Its program, absolute.
    pub program: PathBuf,
    /// How larder observes; without it as larder likes.
    pub observer: Option<Observer>,
    /// The locale in which everything runs, unless a case sets another one.
    pub locale: String,
}

impl Chosen {
    /// Finds the program: as given, else along `PATH`.
    pub fn find(kind: Kind, given: Option<&Path>, observer: Option<Observer>, locale: &str) -> Result<Self> {
        let program = match (kind, given) {
            (Kind::None, _) => PathBuf::new(),
            (_, Some(path)) => path.canonicalize().with_context(|| format!("there is no {}", path.display()))?,
            (_, None) => on_path(kind.name()).with_context(|| format!("there is no {} on PATH", kind.name()))?,
        };
        if program.to_string_lossy().contains(char::is_whitespace) {
            bail!("the path of {} has a space: a shell could not use it as CC", program.display());
        }
        Ok(Self { kind, program, observer, locale: locale.to_owned() })
    }

    /// One for a case, with its store and the like below `dir`. `basic` is the environment of everything.
    pub fn instance(&self, dir: &Path, basic: &[(OsString, OsString)]) -> Box<dyn Cache> {
        let program = self.program.clone();
        match self.kind {
            Kind::None => Box::new(none::Nothing::new(dir)),
            Kind::Larder => Box::new(larder::Larder::new(program, dir, basic, self.observer)),
            Kind::Ccache => Box::new(ccache::Ccache::new(program, dir)),
            Kind::Sccache => Box::new(sccache::Sccache::new(program, dir, basic)),
        }
    }
}

/// The first program of that name that is no script: a script of that name only looks for the program.
fn on_path(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let runs = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        runs && std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    };
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(is_program)
}
