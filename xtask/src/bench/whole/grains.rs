//! The grains: what stands where the package expects its compiler, and whether the commands around it run through
//! larder too.
//!
//! Each is the same program at the same path to the package, since packages write that path down.

use super::packages::Phase;
use crate::bench::calls;
use crate::fetch;
use crate::launcher::{Counts, Launcher};
use crate::place::{Place, fresh, remove};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the grain that everything is compared with.
pub(super) const PLAIN: &str = "plain";
/// The same once more: what differs between two plain runs is nobody's fault.
pub(super) const PLAIN_AGAIN: &str = "plain again";
/// The names that `--grain` takes.
pub(super) const NAMES: [&str; 5] = ["ccache", "ccache base_dir", "larder off", "larder compiler", "larder run"];
const COMPILERS: [&str; 2] = ["gcc", "g++"];

/// One grain, with a store of its own.
pub(super) struct Grain {
    pub(super) name: &'static str,
    launcher: Launcher,
    store: PathBuf,
    home: PathBuf,
    /// Where the programs that stand in front lie while another grain is measured.
    front: PathBuf,
    /// larder's log.
    pub(super) log: Option<PathBuf>,
    /// `LARDER_DISABLE` while configuring.
    off_in_configure: bool,
    /// The whole command through `larder run`.
    pub(super) whole: bool,
}

/// All of them, the plain compiler first. `calls` is the log of the programs in front.
pub(super) fn all(place: &Place, larder: &Path, work: &Path, calls: &Path, quick: bool) -> Result<Vec<Grain>> {
    let at = |name: &str| work.join("stores").join(name.replace(' ', "-"));
    let grain = |name, launcher| Grain {
        name,
        launcher,
        store: at(name),
        home: work.join("home"),
        front: work.join("fronts").join(name.replace(' ', "-")),
        log: None,
        off_in_configure: false,
        whole: false,
    };
    let with_larder = |name| -> Result<Grain> {
        let grain = grain(name, Launcher::larder(larder, &at(name))?);
        Ok(Grain { log: Some(work.join("calls").join(name.replace(' ', "-"))), ..grain })
    };
    let mut grains = vec![grain(PLAIN, Launcher::plain()), grain(PLAIN_AGAIN, Launcher::plain())];
    if !quick {
        let ccache = fetch::ccache(place)?;
        grains.push(grain("ccache", Launcher::ccache(&ccache, &at("ccache"))?));
        grains.push(grain("ccache base_dir", Launcher::ccache_anywhere(&ccache, &at("ccache base_dir"), work)?));
        grains.push(Grain { off_in_configure: true, ..with_larder("larder off")? });
    }
    grains.push(with_larder("larder compiler")?);
    grains.push(Grain { whole: true, ..with_larder("larder run")? });
    grains.iter().try_for_each(|grain| grain.compile(calls))?;
    Ok(grains)
}

impl Grain {
    /// Whether it is a plain one.
    pub(super) fn is_plain(&self) -> bool {
        self.launcher.program.is_none()
    }

    /// Whether what it gets wrong is larder's.
    pub(super) fn is_larder(&self) -> bool {
        self.log.is_some()
    }

    /// Makes its store anew.
    pub(super) fn empty(&self) -> Result<()> {
        fresh(&self.store)
    }

    /// Puts its programs to where the compilers are expected, until [`Grain::withdraw`].
    pub(super) fn install(&self, front: &Path) -> Result<()> {
        rename(&self.front, front)
    }

    pub(super) fn withdraw(&self, front: &Path) -> Result<()> {
        rename(front, &self.front)
    }

    /// The command of one phase.
    pub(super) fn command(&self, words: &[String], phase: Phase, front: &Path) -> Command {
        let mut all = Vec::new();
        if let (true, Some(larder)) = (self.whole, &self.launcher.program) {
            all.extend([larder.to_string_lossy().into_owned(), "run".to_owned(), "--".to_owned()]);
        }
        all.extend_from_slice(words);
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]);
        self.launcher.apply(&mut command, &self.home);
        for (variable, compiler) in ["CC", "CXX"].iter().zip(COMPILERS) {
            command.env(variable, front.join(compiler));
        }
        // Meson writes Python's sets down, in an order that is else another one each time.
        command.env("PYTHONHASHSEED", "0");
        if let Some(log) = &self.log {
            command.env("LARDER_LOG", log);
        }
        if self.off_in_configure && phase == Phase::Configure {
            command.env("LARDER_DISABLE", "1");
        }
        command
    }

    /// The counters of a cache that has no log.
    pub(super) fn counts(&self) -> Result<Option<Counts>> {
        if self.is_larder() { Ok(None) } else { self.launcher.counts(&self.home) }
    }

    /// The programs in front write down each call; not within a whole command, where that would be part of what it did.
    fn compile(&self, calls: &Path) -> Result<()> {
        remove(&self.front)?;
        for compiler in COMPILERS {
            let behind: Vec<PathBuf> = self.launcher.program.iter().cloned().chain([compiler.into()]).collect();
            calls::put_in_front(&self.front.join(compiler), &behind, (!self.whole).then_some(calls))?;
        }
        Ok(())
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}
