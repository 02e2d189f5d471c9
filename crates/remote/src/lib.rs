//! Remotes: a shared cache for a team and its CI, kept on services that exist already (S3, Redis,
//! HTTP, …).
//!
//! A remote stores objects under keys (`key.rs`). A decorator is a [`Remote`] around a [`Remote`].
//!
//! | file | holds |
//! |---|---|
//! | `remote.rs` | the trait that every service implements, and its contract |
//! | `key.rs` | the names of objects |
//! | `url/` | parsing the URL of a remote, with errors that name the wrong part |
//! | `error.rs` | what can go wrong, and which errors are worth another try |
//! | `options.rs` | what the caller decides: environment, seeds, limits, keys |
//! | `remotes.rs`, `publish.rs` | all configured remotes together: what `larderd` uses |
//! | `used.rs`, `bundle.rs` | what builds of a commit used; many records in one object |
//! | `fill.rs` | copies what a farther remote had to the nearer ones |
//! | `images.rs` | finding images by key and by prefix, and uploading them |
//! | `record.rs`, `merge.rs`, `sign.rs` | records, concurrent updates of their lists, signatures |
//! | `tally.rs`, `wait.rs` | counters; waits with jitter |
//! | `leaf/` | one client for each service |
//! | `stack/` | decorators: logging, verification, retries, limits |
//!
//! Unaware of: tools, observers, where the local store is, what `larderd` does with the results.
#![forbid(unsafe_code)]

mod body;
mod bundle;
mod error;
mod fill;
mod filling;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod images;
mod items;
mod key;
mod leaf;
mod merge;
mod options;
mod publish;
mod record;
mod remote;
mod remotes;
mod sign;
mod stack;
mod tally;
mod url;
mod used;
mod wait;

pub use body::{Body, collect, file_body, whole};
pub use bundle::{Unpacked, Whole};
pub use error::{RemoteError, Trouble};
pub use images::BelievedImage;
pub use key::{Key, LAYOUT, ObjectKind};
pub use leaf::memory::Memory;
pub use options::{Options, Variables};
pub use publish::Published;
pub use remote::{Abilities, Answer, Fetched, Mark, Put, Remote, SMALL_BYTES_MAX, Stored};
pub use remotes::{One, Remotes, Sink};
pub use sign::{Keys, NotAKey};
pub use stack::{
    Asked, Breaker, BreakerPolicy, BreakerState, Counts, Limit, Log, PackPolicy, Packs, Parts, Retry, RetryPolicy,
    SIZE_CLASSES, Stall, Sum, Switch, Verify,
};
pub use tally::{Share, Tally};
pub use url::{Headers, Login, RemoteUrl, Service, Tls};
pub use used::{Bundle, Hint, Reading, USED_MAX, Used};

use std::sync::Arc;

/// Returns a client for the service of a URL, without decorators. It sends nothing yet.
pub fn leaf(url: &RemoteUrl, options: &Options) -> Result<Arc<dyn Remote>, RemoteError> {
    leaf::services::leaf(url, options)
}

/// The most requests that are under way at a gRPC server at once.
///
/// A server sends messages of several MiB, and each is in memory as a whole before the next one.
/// Small objects share a request, so more requests would hardly be faster.
const GRPC_REQUESTS_MAX: usize = 12;

/// A remote with its decorators, its counters and its breaker.
pub struct Connected {
    /// The outermost decorator: all requests go through it.
    pub remote: Arc<dyn Remote>,
    /// Counters and latencies of the requests.
    pub counts: Arc<Counts>,
    /// The breaker's state: whether requests are let through now.
    pub breaker: Arc<Switch>,
}

/// Returns the service of a URL with all decorators of `stack/`. It sends nothing yet.
pub fn connect(url: &RemoteUrl, options: &Options) -> Result<Connected, RemoteError> {
    let asked_for = url.requests_max.unwrap_or(options.requests_max);
    let requests_max = match url.service {
        Service::Grpc { .. } => asked_for.min(GRPC_REQUESTS_MAX),
        _ => asked_for,
    };
    Ok(stacked(leaf(url, options)?, &Options { requests_max, ..options.clone() }))
}

/// Puts all decorators of `stack/` but `parts` around a service.
pub fn stacked(leaf: Arc<dyn Remote>, options: &Options) -> Connected {
    let patient = Stall::new(leaf, options.stall);
    let limited = Limit::new(Arc::new(patient), options.requests_max);
    let breaker = Breaker::new(Arc::new(limited), options.breaker);
    let switch = breaker.switch().clone();
    let retried: Arc<dyn Remote> = Arc::new(Retry::new(Arc::new(breaker), options.retry, options.seed));
    let packed = match retried.abilities().writes_per_minute {
        Some(limit) => Arc::new(Packs::new(retried, limit, options.packs, options.seed)),
        None => retried,
    };
    let verified = Verify::new(packed);
    let counts = Arc::new(Counts::default());
    let remote = Arc::new(Log::new(Arc::new(verified), counts.clone()));
    Connected { remote, counts, breaker: switch }
}
