//! Builds in sandboxes that may only read the store, and the `larderd` outside that records for them.
#![cfg(target_os = "linux")]

mod here;
mod life;
mod sandboxes;
mod trouble;
mod untrusted;
