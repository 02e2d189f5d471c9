//! Remotes: one far cache for a team and its CI, over services that exist already.
//!
//! | file | holds |
//! |---|---|
//! | `remote.rs` | the trait of a service, its contract, what it is asked with |
//! | `key.rs` | what an object is called |
//! | `url/` | a remote as people name it, and what they got wrong |
//! | `error.rs` | what can go wrong, and which of it is worth another try |
//! | `options.rs` | what the caller decides: environment, seeds, limits, keys |
//! | `remotes.rs`, `publish.rs` | all remotes together: what `larderd` uses |
//! | `used.rs`, `bundle.rs` | what builds of a commit used, and many records in one object |
//! | `fill.rs` | what came from a far remote, put on nearer ones |
//! | `images.rs` | images: found by key and prefix, sent |
//! | `record.rs`, `merge.rs`, `sign.rs` | records on a remote, how their list grows, who is believed |
//! | `tally.rs`, `wait.rs` | counts; waits with jitter |
//! | `leaf/` | the services themselves |
//! | `stack/` | what is added around them |
//!
//! Unaware of: tools, observers, where the local store is, what `larderd` does with what it gets.
#![forbid(unsafe_code)]

mod body;
mod bundle;
mod error;
mod fill;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod images;
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

pub use body::{collect, file_body, whole};
pub use bundle::{Unpacked, Whole};
pub use error::{RemoteError, Trouble};
pub use images::BelievedImage;
pub use key::{Key, Kind, LAYOUT};
pub use leaf::memory::Memory;
pub use options::{Options, Variables};
pub use publish::Published;
pub use remote::{Abilities, Body, Fetched, Mark, Put, Remote, SMALL_BYTES_MAX, Stored};
pub use remotes::{Remotes, Sink};
pub use sign::{Keys, NotAKey};
pub use stack::{
    Asked, Breaker, BreakerPolicy, BreakerState, Counts, Fault, Faults, Limit, Log, Parts, Retry, RetryPolicy,
    SIZE_CLASSES, Stall, Sum, Switch, Verify,
};
pub use tally::{Share, Tally};
pub use url::{Headers, Login, RemoteUrl, Service, Tls};
pub use used::{Bundle, Hint, Reading, USED_MAX, Used};

use std::sync::Arc;

/// The service of a URL, without anything around it. Nothing is sent yet.
pub fn leaf(url: &RemoteUrl, options: &Options) -> Result<Arc<dyn Remote>, RemoteError> {
    leaf::services::leaf(url, options)
}

/// A server of gRPC sends pieces of several MiB, and each is whole here before the next: so many requests at once, and
/// small objects travel together in one.
const GRPC_REQUESTS_MAX: usize = 12;

/// A remote with all that is put around it, and what tells how it is.
pub struct Connected {
    /// To be asked.
    pub remote: Arc<dyn Remote>,
    /// What was asked of it and how long it took.
    pub counts: Arc<Counts>,
    /// Whether it is left alone now.
    pub breaker: Arc<Switch>,
}

/// The service of a URL with all that is put around it: see `stack/`. Nothing is sent yet.
pub fn connect(url: &RemoteUrl, options: &Options) -> Result<Connected, RemoteError> {
    let asked_for = url.requests_max.unwrap_or(options.requests_max);
    let requests_max = match url.service {
        Service::Grpc { .. } => asked_for.min(GRPC_REQUESTS_MAX),
        _ => asked_for,
    };
    Ok(stacked(leaf(url, options)?, &Options { requests_max, ..options.clone() }))
}

/// What is put around a service.
pub fn stacked(leaf: Arc<dyn Remote>, options: &Options) -> Connected {
    let patient = Stall::new(leaf, options.stall);
    let limited = Limit::new(Arc::new(patient), options.requests_max);
    let breaker = Breaker::new(Arc::new(limited), options.breaker);
    let switch = breaker.switch().clone();
    let retried = Retry::new(Arc::new(breaker), options.retry, options.seed);
    let verified = Verify::new(Arc::new(retried));
    let counts = Arc::new(Counts::default());
    let remote = Arc::new(Log::new(Arc::new(verified), counts.clone()));
    Connected { remote, counts, breaker: switch }
}
