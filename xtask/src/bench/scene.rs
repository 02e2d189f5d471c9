//! The program and the directories of a benchmark.

use crate::files::{self, fresh};
use crate::place::Place;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The program that a benchmark measures, and directories that are empty at its begin.
pub(super) struct Scene<'a> {
    pub(super) place: &'a Place,
    pub(super) larder: PathBuf,
    /// Contains everything else.
    pub(super) work: PathBuf,
    /// The home directory of measured commands, so that no settings of the user apply.
    pub(super) home: PathBuf,
}

impl<'a> Scene<'a> {
    /// Makes the directories of the benchmark `name`.
    pub(super) fn begin(place: &'a Place, larder: &Path, name: &str) -> Result<Self> {
        let work = place.own(&format!("bench-{name}"))?;
        fresh(&work)?;
        let home = work.join("home");
        files::make(&home)?;
        Ok(Self { place, larder: larder.to_owned(), work, home })
    }

    /// Returns the directory of a store, which does not exist yet.
    pub(super) fn store(&self, name: &str) -> PathBuf {
        self.work.join("store").join(name)
    }
}
