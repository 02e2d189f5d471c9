//! Checks what this machine has and allows. What it lacks is printed beside the cases that are
//! skipped.
//!
//! Unaware of: cases.

use crate::change::PATH;
use crate::spawn::output;
use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::sync::Mutex;

/// Something that a case may need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A program on the suite's `PATH`, or at this path.
    Program(&'static str),
    /// Root, for example to change the owner of files.
    Root,
    /// A mount namespace of its own, to mount file systems.
    Mounts,
    /// A shell script that must succeed, and what its success shows, as text.
    Works(&'static str, &'static str),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Program(name) => write!(f, "{name} is not installed"),
            Need::Root => f.write_str("not root"),
            Need::Mounts => f.write_str("no mount namespace"),
            Need::Works(_, what) => write!(f, "no {what}"),
        }
    }
}

/// The results of the checks. Each is made once.
pub struct Machine {
    mounts: bool,
    asked: Mutex<BTreeMap<Need, bool>>,
}

impl Machine {
    /// `mounts` says whether this process has a mount namespace of its own.
    pub fn new(mounts: bool) -> Self {
        Self { mounts, asked: Mutex::default() }
    }

    /// Returns the first need that is missing.
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
        let mut asked = self.asked.lock().expect("no thread panics during a check");
        *asked.entry(need).or_insert_with(|| works(text))
    }
}

/// Returns true if this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The first two numbers of a version.
pub type Version = (u32, u32);

/// Returns the version that a program on the suite's `PATH` prints. A distribution's name may come
/// before it, as in `gcc (Debian 12.2.0-14) 12.2.0`.
pub fn version(program: &str) -> Option<Version> {
    let said = output(Command::new("env").args(["-i", &format!("PATH={PATH}"), program, "--version"])).ok()?;
    let said = String::from_utf8_lossy(&said.stdout);
    let numbers = regex::Regex::new(r"(\d+)\.(\d+)").expect("is a pattern").captures(said.lines().next()?)?;
    Some((numbers[1].parse().ok()?, numbers[2].parse().ok()?))
}

/// Runs a check in a temporary directory, because a compiler may leave files.
fn works(text: &str) -> bool {
    let Ok(dir) = tempfile::tempdir() else { return false };
    let mut command = Command::new("sh");
    command.args(["-ec", text]).current_dir(dir.path()).env_clear().env("PATH", PATH);
    output(&mut command).is_ok_and(|output| output.status.success())
}
