//! Leaves: the services themselves, a file each.
//!
//! | file | over | swaps | of several writers |
//! |---|---|---|---|
//! | `file.rs` | a directory | yes, under a lock | |
//! | `object.rs`, `services.rs` | opendal: S3, GCS, Azure Blob, Actions cache | object stores | Actions cache: the first wins |
//! | `redis.rs` | Redis' own client | no | the last wins |
//! | `memcached.rs` | Shopify's client | no | the last wins |
//! | `http.rs` | PUT and GET, WebDAV | no | the last wins |
//! | `grpc/` | the Remote Execution API | no | the last wins |
//! | `memory.rs` | nothing: for tests and simulations | as told | as told |

pub(crate) mod client;
pub(crate) mod file;
pub(crate) mod grpc;
pub(crate) mod http;
#[cfg(unix)]
pub(crate) mod memcached;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod redis;
pub(crate) mod services;
