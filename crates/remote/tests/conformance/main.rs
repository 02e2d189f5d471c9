//! One test suite for every leaf and every stack, against real servers that the tests start.
//!
//! | file | holds |
//! |---|---|
//! | `suite.rs` | the contract of `remote.rs`, as tests |
//! | `many.rs` | a list with many concurrent writers |
//! | `sample.rs`, `bodies.rs` | bytes, manifests, bodies |
//! | `server.rs` | skips a test whose server is not installed |
//! | `leaves.rs` | one test for each service |
//! | `encrypted.rs` | certificates and headers, over HTTPS and gRPC |
//! | `actions.rs` | the cache of GitHub Actions, against a stand-in |
//! | `setup_action.rs` | the action `setup-larder`, with that stand-in |
//! | `flat.rs` | memory of 64 concurrent transfers |
//! | `access.rs` | wrong keys and passwords, dead servers |

mod access;
mod actions;
mod bodies;
mod encrypted;
mod flat;
mod leaves;
mod many;
mod sample;
mod server;
mod setup_action;
mod suite;
