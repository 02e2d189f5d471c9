//! larder: `larder TOOL …`, `larder run -- COMMAND`, `larder stats --json`.

use super::cache::{Cache, Counts};
use crate::run;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// An observer of larder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Observer {
    /// A preloaded library
    Preload,
    /// The system calls
    Kernel,
    /// The depfile of the compiler
    Depfile,
}

pub(crate) struct Larder {
    program: PathBuf,
    dir: PathBuf,
    store: PathBuf,
    basic: Vec<(OsString, OsString)>,
    observer: Option<Observer>,
    log: PathBuf,
    read_bytes: usize,
}

impl Larder {
    pub(crate) fn new(
        program: PathBuf,
        dir: &Path,
        basic: &[(OsString, OsString)],
        observer: Option<Observer>,
    ) -> Self {
        let (store, log) = (dir.join("store"), dir.join("log"));
        Self { program, dir: dir.to_owned(), store, basic: basic.to_vec(), observer, log, read_bytes: 0 }
    }
}

impl Cache for Larder {
    fn before_tool(&self) -> Vec<OsString> {
        vec![self.program.clone().into()]
    }

    fn before_any(&self) -> Vec<OsString> {
        vec![self.program.clone().into(), "run".into(), "--".into()]
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        let store = ("LARDER_DIR".into(), self.store.clone().into());
        let log = ("LARDER_LOG".into(), self.log.clone().into());
        // On a terminal, `larder run` would say in one line why it did not cache a command.
        let mut env = vec![store, log, ("LARDER_QUIET".into(), "1".into())];
        let name = match self.observer {
            None => return env,
            Some(Observer::Preload) => "preload",
            Some(Observer::Kernel) => "kernel",
            Some(Observer::Depfile) => "depfile",
        };
        env.push(("LARDER_OBSERVER".into(), name.into()));
        env
    }

    fn store(&self) -> &Path {
        &self.store
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.program)
    }

    /// The first run of a tool in a store shows whether the observer sees all of what the tool
    /// does.
    fn learns(&self) -> bool {
        true
    }

    fn said(&mut self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let new = String::from_utf8_lossy(text.get(self.read_bytes..).unwrap_or_default()).into_owned();
        self.read_bytes = text.len();
        // Time and process ID at the start of each line are left out.
        let lines = new.lines().map(|line| line.splitn(3, ' ').last().unwrap_or(line));
        lines.collect::<Vec<_>>().join(" | ")
    }

    fn counts(&self) -> Option<Counts> {
        let argv = [self.program.clone().into(), "stats".into(), "--json".into()];
        let text = run::output(&argv, &[self.basic.clone(), self.env()].concat(), &self.dir).ok()?;
        let json: Value = serde_json::from_slice(&text).ok()?;
        let field = |name: &str| json[name].as_u64();
        Some(Counts {
            hit: field("hit")?,
            miss: field("miss")?,
            bypass: field("bypass")?,
            fallback: field("fallback")?,
        })
    }
}
