//! Options: what the caller decides for all remotes.
//!
//! Unaware of: where a setting comes from.

use crate::sign::Keys;
use crate::stack::{BreakerPolicy, PackPolicy, RetryPolicy};
use std::sync::Arc;
use std::time::Duration;

/// Returns the value of an environment variable.
pub type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Options for all remotes. Environment and randomness are in here, so that tests can set them.
#[derive(Clone)]
pub struct Options {
    /// Looks up an environment variable. The object store libraries read those of their services
    /// directly.
    pub variable: Arc<Variables>,
    /// A random number that differs between processes. It varies waits and tells writers apart.
    pub seed: u64,
    /// Nothing is uploaded to any remote, for example in a job that is not trusted.
    pub read_only: bool,
    /// The key that signs and the keys that are trusted.
    pub keys: Keys,
    /// How long a writer waits before it checks a list, on services where the last writer wins.
    pub settle: Duration,
    /// The most requests under way at each remote, including their bodies.
    pub requests_max: usize,
    /// A request fails if no byte is transferred for so long.
    pub stall: Duration,
    /// How often and when failed requests are repeated.
    pub retry: RetryPolicy,
    /// When no requests are sent to a failing remote.
    pub breaker: BreakerPolicy,
    /// When small objects are packed, on services with a limit of uploads a minute.
    pub packs: PackPolicy,
}

impl Options {
    /// Returns the value of an environment variable, unless it is empty.
    pub(crate) fn set(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }
}

impl Default for Options {
    /// Returns options without environment and keys, and with a fixed seed.
    fn default() -> Self {
        Options {
            variable: Arc::new(|_| None),
            seed: 1,
            read_only: false,
            keys: Keys::default(),
            settle: Duration::from_millis(80),
            requests_max: 64,
            stall: Duration::from_secs(10),
            retry: RetryPolicy::default(),
            breaker: BreakerPolicy::default(),
            packs: PackPolicy::default(),
        }
    }
}
