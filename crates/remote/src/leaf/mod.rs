//! Leaves: clients for the services, one file each.
//!
//! | file | talks to | compare-and-swap | concurrent writers |
//! |---|---|---|---|
//! | `file.rs` | a directory | yes, with a lock | |
//! | `object.rs`, `services.rs` | S3, GCS, Azure Blob (opendal) | yes | |
//! | `object.rs`, `services.rs` | GitHub's Actions cache (opendal) | no | the first wins |
//! | `retry_after.rs` | the HTTP transport of object stores, which obeys `Retry-After` | | |
//! | `redis.rs` | Redis (its own client) | no | the last wins |
//! | `memcached.rs` | memcached (Shopify's client) | no | the last wins |
//! | `http.rs` | a web server with PUT and GET, WebDAV | no | the last wins |
//! | `grpc/` | the Remote Execution API | no | the last wins |
//! | `memory.rs` | nothing: for tests | as set | as set |
//!
//! Unaware of: records, signatures.

pub(crate) mod client;
pub(crate) mod file;
pub(crate) mod grpc;
pub(crate) mod http;
#[cfg(unix)]
pub(crate) mod memcached;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod redis;
mod retry_after;
pub(crate) mod services;
