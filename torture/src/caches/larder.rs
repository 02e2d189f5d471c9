//! larder: `larder TOOL …`, `larder run -- COMMAND`, `larder stats --json`.

use super::{Cache, Counts, Observer};
use crate::run;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) struct Larder {
    program: PathBuf,
    dir: PathBuf,
    store: PathBuf,
    basic: Vec<(OsString, OsString)>,
    observer: Option<Observer>,
}

impl Larder {
    pub(crate) fn new(
        program: PathBuf,
        dir: &Path,
        basic: &[(OsString, OsString)],
        observer: Option<Observer>,
    ) -> Self {
        Self { program, dir: dir.to_owned(), store: dir.join("store"), basic: basic.to_vec(), observer }
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
        let mut env = vec![("LARDER_DIR".into(), self.store.clone().into())];
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

    /// Whether a tool is seen whole by the observer at hand is learnt, once for a store, from its first run.
    fn learns(&self) -> bool {
        true
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
