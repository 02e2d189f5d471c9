//! The real `larderd`, in a fresh place for each test: what it prints, where, and with which exit code.
#![cfg(target_os = "linux")]

mod explain;
mod help;
mod place;
mod record;
mod store;
