//! ccache with its defaults. Its statistics log gives the outcome of each call.

use super::cache::{Cache, Counts};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Ccache {
    program: PathBuf,
    store: PathBuf,
    log: PathBuf,
}

/// Beginnings of log lines that are not outcomes: details of lookups, and comments.
const DETAILS: &[&str] = &["#", "local_storage", "remote_storage", "direct_cache", "preprocessed_cache", "cleanups"];

impl Ccache {
    pub(crate) fn new(program: PathBuf, dir: &Path) -> Self {
        Self { program, store: dir.join("store"), log: dir.join("outcomes") }
    }
}

impl Cache for Ccache {
    fn before_tool(&self) -> Vec<OsString> {
        vec![self.program.clone().into()]
    }

    fn before_any(&self) -> Vec<OsString> {
        self.before_tool()
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        let log = self.log.clone().into();
        vec![("CCACHE_DIR".into(), self.store.clone().into()), ("CCACHE_STATSLOG".into(), log)]
    }

    fn store(&self) -> &Path {
        &self.store
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.program)
    }

    fn counts(&self) -> Option<Counts> {
        let text = fs::read(&self.log).unwrap_or_default();
        let mut counts = Counts::default();
        for line in String::from_utf8_lossy(&text).lines() {
            match line.trim() {
                "direct_cache_hit" | "preprocessed_cache_hit" => counts.hit += 1,
                "cache_miss" => counts.miss += 1,
                "" => {}
                detail if DETAILS.iter().any(|name| detail.starts_with(name)) => {}
                _ => counts.bypass += 1,
            }
        }
        Some(counts)
    }
}
