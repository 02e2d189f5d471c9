//! Decorators: what is added around a service, a file each. Each is a `Remote` around a `Remote`.
//!
//! | file | adds |
//! |---|---|
//! | `log.rs` | counts, bytes, latencies by size |
//! | `verify.rs` | blobs that are not what their name says are errors |
//! | `retry.rs` | what passes by itself is asked again |
//! | `breaker.rs` | a remote that failed often is left alone for a while |
//! | `limit.rs` | so many requests at once |
//! | `stall.rs` | without a byte for too long, a request has failed |
//! | `parts.rs` | large objects over a service of small values |
//! | `fault.rs` | wrong on purpose |
//!
//! [`crate::connect`] puts them together in this order, the first outermost; `parts.rs` belongs to a leaf, `fault.rs`
//! to tests.

mod breaker;
mod fault;
mod guard;
mod limit;
mod log;
mod parts;
mod retry;
mod stall;
mod verify;

pub use breaker::{Breaker, BreakerPolicy, BreakerState, Switch};
pub use fault::{Fault, Faults};
pub use limit::Limit;
pub use log::{Asked, Counts, Log, SIZE_CLASSES, Sum};
pub use parts::Parts;
pub use retry::{Retry, RetryPolicy};
pub use stall::Stall;
pub use verify::Verify;
pub(crate) use verify::verified;
