//! Options: what the caller decides for all remotes.

use crate::sign::Keys;
use crate::stack::{BreakerPolicy, RetryPolicy};
use std::sync::Arc;
use std::time::Duration;

/// What the caller decides. The environment and randomness come through here, so that tests say what they are.
#[derive(Clone)]
pub struct Options {
    /// A variable of the environment. The libraries of object stores read those of their services themselves.
    pub variable: Arc<dyn Fn(&str) -> Option<String> + Send + Sync>,
    /// Random, other in each process: for waits, and to tell writers apart.
    pub seed: u64,
    /// Nothing is ever put anywhere: the scope of a job that is not trusted.
    pub read_only: bool,
    /// Who signs and who is believed.
    pub keys: Keys,
    /// Where the last writer of a list wins: how long it is waited before the list is looked at again.
    pub settle: Duration,
    /// Requests under way at each remote, bodies included.
    pub requests_max: usize,
    /// Without a byte for so long a request has failed.
    pub stall: Duration,
    /// How often what passes by itself is asked again.
    pub retry: RetryPolicy,
    /// When a remote is left alone.
    pub breaker: BreakerPolicy,
}

impl Default for Options {
    /// Without an environment and keys, always the same.
    fn default() -> Self {
        Options {
            variable: Arc::new(|_| None),
            seed: 1,
            read_only: false,
            keys: Keys::default(),
            settle: Duration::from_millis(250),
            requests_max: 64,
            stall: Duration::from_secs(10),
            retry: RetryPolicy::default(),
            breaker: BreakerPolicy::default(),
        }
    }
}
