//! What this machine has and allows; what it lacks is printed beside the cases that are skipped for it.

use crate::change::PATH;
use std::collections::BTreeMap;
use std::fmt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// What a case may need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A program on the plain `PATH`, or at this path.
    Program(&'static str),
    /// The superuser, who may give files away.
    Root,
    /// File systems of one's own.
    Mounts,
    /// A shell script that succeeds, and what it shows in words.
    Works(&'static str, &'static str),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Program(name) => write!(f, "{name} is not here"),
            Need::Root => f.write_str("not root"),
            Need::Mounts => f.write_str("no mounts of one's own"),
            Need::Works(_, what) => write!(f, "no {what}"),
        }
    }
}

/// Answers of probes, each asked once.
pub struct Machine {
    mounts: bool,
    asked: Mutex<BTreeMap<Need, bool>>,
}

impl Machine {
    /// `mounts`: whether this process has a mount namespace of its own.
    pub fn new(mounts: bool) -> Self {
        Self { mounts, asked: Mutex::default() }
    }

    /// The first thing that is missing.
    pub fn lacks(&self, needs: &[Need]) -> Option<Need> {
        needs.iter().copied().find(|&need| !self.has(need))
    }

    fn has(&self, need: Need) -> bool {
        match need {
            Need::Root => is_root(),
            Need::Mounts => self.mounts,
            Need::Program(name) => self.asked(need, &format!("command -v {name}")),
            Need::Works(text, _) => self.asked(need, text),
        }
    }

    fn asked(&self, need: Need, text: &str) -> bool {
        let mut asked = self.asked.lock().expect("nobody panics while asking");
        *asked.entry(need).or_insert_with(|| works(text))
    }
}

/// Whether this is the superuser.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// In a directory of its own, since a compiler that is asked leaves files.
fn works(text: &str) -> bool {
    let Ok(dir) = tempfile::tempdir() else { return false };
    let mut command = Command::new("sh");
    command.args(["-ec", text]).current_dir(dir.path()).env_clear().env("PATH", PATH);
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    silent.status().is_ok_and(|status| status.success())
}
