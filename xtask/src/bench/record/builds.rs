//! The directories and programs of the benchmark, and how it starts them.

use crate::launcher::Launcher;
use crate::place::Place;
use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directories and programs of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) place: &'a Place,
    pub(super) work: PathBuf,
    pub(super) larder: PathBuf,
    pub(super) launcher: Launcher,
}

impl Bench<'_> {
    pub(super) fn records(&self) -> PathBuf {
        self.work.join("records")
    }

    /// Returns a larder command in `dir`, with the environment of `launcher`'s builds and without
    /// output.
    pub(super) fn larder(&self, launcher: &Launcher, dir: &Path) -> Command {
        let mut command = Command::new(&self.larder);
        self.silently(&mut command, launcher, dir);
        command
    }

    pub(super) fn silently(&self, command: &mut Command, launcher: &Launcher, dir: &Path) {
        launcher.apply(command, &self.work.join("home"));
        command.env("LARDER_RECORD_DIR", self.records()).current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    }

    /// Runs `larder WORDS` and returns the JSON that it prints.
    pub(super) fn said(&self, words: &[&str]) -> Result<Value> {
        let mut command = self.larder(&self.launcher, &self.work);
        let text = run::output(command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        serde_json::from_str(&text).with_context(|| format!("{} did not print JSON", run::shown(&command)))
    }
}

/// Runs a command, and fails if it fails.
pub(super) fn done(command: &mut Command) -> Result<run::Usage> {
    let (status, usage) = run::measured(command)?;
    ensure!(status.success(), "{} ended with {status}", run::shown(command));
    Ok(usage)
}
