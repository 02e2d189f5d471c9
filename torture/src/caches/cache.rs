//! The interface of all caches, and their counters.
//!
//! Unaware of: which caches there are.

use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;

/// A cache with a store of its own, for one case.
pub trait Cache: Send {
    /// Returns the words before a tool that run it through the cache.
    fn before_tool(&self) -> Vec<OsString>;
    /// Returns the words before any command that run it through the cache.
    fn before_any(&self) -> Vec<OsString>;
    /// Returns the variables that the cache needs.
    fn env(&self) -> Vec<(OsString, OsString)>;
    /// The store's directory, which a case may damage.
    fn store(&self) -> &Path;
    /// Returns the program that masquerading links point to.
    fn program(&self) -> Option<&Path>;
    /// Starts the cache's server, if it has one.
    fn start(&mut self) -> Result<()> {
        Ok(())
    }
    /// Stops the server.
    fn stop(&mut self) {}
    /// Kills the server, as a crash would.
    fn kill_server(&mut self) {}
    /// The processes of the cache, which do not count as left behind.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Returns true if the cache learns about a tool from its first run, whose result it does not
    /// store.
    fn learns(&self) -> bool {
        false
    }
    /// Returns the new text in its log since the last call, in one line.
    fn said(&mut self) -> String {
        String::new()
    }
    /// Its counters, or `None` if it has none or does not answer.
    fn counts(&self) -> Option<Counts>;
}

/// The counters of a cache, by larder's names for the outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of results that came from the store.
    pub hit: u64,
    /// The number of times that the tool was run.
    pub miss: u64,
    /// The number of commands that the cache does not handle.
    pub bypass: u64,
    /// The number of commands that were run without the cache because of an error.
    pub fallback: u64,
}

impl Counts {
    /// Returns the difference to earlier counters.
    pub fn since(self, before: Self) -> Self {
        Self {
            hit: self.hit.saturating_sub(before.hit),
            miss: self.miss.saturating_sub(before.miss),
            bypass: self.bypass.saturating_sub(before.bypass),
            fallback: self.fallback.saturating_sub(before.fallback),
        }
    }

    /// Returns true if there were only hits.
    pub fn only_hits(self) -> bool {
        self.hit > 0 && self.miss + self.bypass + self.fallback == 0
    }
}
