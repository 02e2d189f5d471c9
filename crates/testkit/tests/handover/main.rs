//! Builds in sandboxes that may only read the store, and the `larderd` outside of them that records
//! their results.
#![cfg(target_os = "linux")]

mod here;
mod life;
mod sandboxes;
mod trouble;
mod untrusted;
