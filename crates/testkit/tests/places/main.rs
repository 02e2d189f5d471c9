//! Runs one build in two directories. Commands in the second directory may hit, but every file must
//! be the one that the compiler makes there without larder.
#![cfg(target_os = "linux")]

mod builds;
mod checks;
mod container;
mod rules;
mod sandboxes;
mod two;
