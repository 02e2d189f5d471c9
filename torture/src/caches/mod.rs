//! Caches as programs: how one is called and started, its variables, and its counters.
//!
//! Unaware of: cases.

mod cache;
mod ccache;
mod larder;
mod none;
mod served;
mod server;

pub use cache::{Cache, Counts};
pub use larder::Observer;

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum CacheKind {
    /// No cache: both runs are plain, and must not differ
    None,
    /// larder
    Larder,
    /// ccache
    Ccache,
    /// Mozilla's sccache
    Sccache,
    /// kache
    Kache,
}

impl CacheKind {
    /// The name as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            CacheKind::None => "none",
            CacheKind::Larder => "larder",
            CacheKind::Ccache => "ccache",
            CacheKind::Sccache => "sccache",
            CacheKind::Kache => "kache",
        }
    }

    /// Returns true if it can run any command, not only compilers.
    pub fn takes_any(self) -> bool {
        matches!(self, CacheKind::None | CacheKind::Larder)
    }
}

/// The cache that the suite was asked to test.
pub struct Chosen {
    /// The cache.
    pub kind: CacheKind,
    /// The absolute path of its program.
    pub program: PathBuf,
    /// The observer that larder uses, or `None` for its own choice.
    pub observer: Option<Observer>,
    /// The locale that everything runs in, unless a case sets another one.
    pub locale: String,
}

impl Chosen {
    /// Finds the program: the given one, or the one on `PATH`.
    pub fn find(kind: CacheKind, given: Option<&Path>, observer: Option<Observer>, locale: &str) -> Result<Self> {
        let program = match (kind, given) {
            (CacheKind::None, _) => PathBuf::new(),
            (_, Some(path)) => path.canonicalize().with_context(|| format!("there is no {}", path.display()))?,
            (_, None) => on_path(kind.name()).with_context(|| format!("there is no {} on PATH", kind.name()))?,
        };
        if program.to_string_lossy().contains(char::is_whitespace) {
            bail!("the path of {} has a space: a shell could not use it as CC", program.display());
        }
        Ok(Self { kind, program, observer, locale: locale.to_owned() })
    }

    /// Makes the cache for one case, with its store below `dir`. `basic` are the variables of all
    /// commands.
    pub fn instance(&self, dir: &Path, basic: &[(OsString, OsString)]) -> Box<dyn Cache> {
        let program = self.program.clone();
        match self.kind {
            CacheKind::None => Box::new(none::Nothing::new(dir)),
            CacheKind::Larder => Box::new(larder::Larder::new(program, dir, basic, self.observer)),
            CacheKind::Ccache => Box::new(ccache::Ccache::new(program, dir)),
            CacheKind::Sccache => Box::new(served::Served::new(&served::SCCACHE, program, dir, basic)),
            CacheKind::Kache => Box::new(served::Served::new(&served::KACHE, program, dir, basic)),
        }
    }
}

/// The first program of that name on `PATH` that is not a script. A script of that name would only
/// be another wrapper.
fn on_path(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        let runs = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        runs && std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    };
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(is_program)
}
