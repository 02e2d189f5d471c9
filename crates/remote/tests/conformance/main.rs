//! One suite for every leaf and every stack, each against a real server that the test starts.
//!
//! | file | holds |
//! |---|---|
//! | `suite.rs` | what a service must do: `remote.rs` of the crate says it in words |
//! | `many.rs` | lists that many write, none losing another's |
//! | `sample.rs`, `bodies.rs` | bytes, manifests, bodies |
//! | `server.rs` | a process of a server, on a port of its own, ended with the test |
//! | `leaves.rs` | the services: a test each |
//! | `access.rs` | who may not: wrong keys and passwords, dead servers |

mod access;
mod bodies;
mod leaves;
mod many;
mod sample;
mod server;
mod suite;
