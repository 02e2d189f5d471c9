//! The same build in two places: whatever hits in the second, every file there is what the plain compiler makes there.
#![cfg(target_os = "linux")]

mod builds;
mod checks;
mod container;
mod rules;
mod sandboxes;
mod two;
