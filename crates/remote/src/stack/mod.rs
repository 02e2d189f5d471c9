//! Decorators: what is added around a service. Each is a `Remote` around a `Remote`, in its own
//! file.
//!
//! | file | adds |
//! |---|---|
//! | `log.rs` | counts, bytes, latencies by size |
//! | `verify.rs` | an error for blobs with a wrong digest |
//! | `packs.rs`, `pack_index.rs` | many small objects in one, on a service with a limit of uploads a minute |
//! | `retry.rs` | repeats requests after transient errors |
//! | `breaker.rs` | stops sending requests to a failing remote for a while |
//! | `limit.rs` | a maximum of requests at once |
//! | `stall.rs` | an error if no byte is transferred for too long |
//! | `parts.rs` | large objects on a service with small values |
//!
//! [`crate::connect`] stacks them in this order, the first outermost. `parts.rs` is used by the
//! leaves that need it.

mod breaker;
mod guard;
mod limit;
mod log;
pub(crate) mod pack_index;
mod packs;
mod parts;
mod retry;
mod stall;
mod verify;

pub use breaker::{Breaker, BreakerPolicy, BreakerState, Switch};
pub use limit::Limit;
pub use log::{Asked, Counts, Log, SIZE_CLASSES, Sum};
pub use packs::{PackPolicy, Packs};
pub use parts::Parts;
pub use retry::{Retry, RetryPolicy};
pub use stall::Stall;
pub use verify::Verify;
pub(crate) use verify::verified;
