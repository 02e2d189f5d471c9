//! Tests of the real `larderd`, each in a fresh directory: what it prints, where, and its exit
//! code.
#![cfg(target_os = "linux")]

mod explain;
mod help;
mod place;
mod record;
mod store;
