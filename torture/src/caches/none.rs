//! No cache. A difference between two plain runs is a fault of the suite.

use super::cache::{Cache, Counts};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) struct Nothing {
    store: PathBuf,
}

impl Nothing {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { store: dir.join("store") }
    }
}

impl Cache for Nothing {
    fn before_tool(&self) -> Vec<OsString> {
        Vec::new()
    }

    fn before_any(&self) -> Vec<OsString> {
        Vec::new()
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    fn store(&self) -> &Path {
        &self.store
    }

    fn program(&self) -> Option<&Path> {
        None
    }

    fn counts(&self) -> Option<Counts> {
        None
    }
}
