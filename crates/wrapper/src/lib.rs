//! The wrapper: in front of a compiler, it answers from the store, or runs the tool and records what it saw.
//!
//! `typed` says what the arguments ask for, `context` reads environment and configuration once, `flow` holds all
//! branching of a request; `hit` and `miss` do the two things that can happen, `fetch` has `larderd` ask remotes in
//! between, `account` counts and logs them, `recording` says them into the record of a build.
//! Whatever goes wrong, the tool runs.
//!
//! Links no async runtime, argument parser, JSON or logging crate. Unaware of: what a remote is, images, words for
//! people.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod account;
#[cfg(target_os = "linux")]
mod before;
#[cfg(target_os = "linux")]
mod context;
#[cfg(target_os = "linux")]
mod dates;
#[cfg(target_os = "linux")]
mod dead;
#[cfg(target_os = "linux")]
mod defined;
#[cfg(target_os = "linux")]
mod fetch;
#[cfg(target_os = "linux")]
mod file_names;
#[cfg(target_os = "linux")]
mod flow;
#[cfg(target_os = "linux")]
mod handover;
#[cfg(target_os = "linux")]
mod hit;
#[cfg(target_os = "linux")]
mod keep;
#[cfg(target_os = "linux")]
mod miss;
#[cfg(target_os = "linux")]
mod ninja;
#[cfg(target_os = "linux")]
mod numbers;
#[cfg(target_os = "linux")]
mod outer;
#[cfg(target_os = "linux")]
mod patience;
#[cfg(target_os = "linux")]
mod preprocess;
#[cfg(target_os = "linux")]
mod reach;
#[cfg(target_os = "linux")]
mod real;
#[cfg(target_os = "linux")]
mod recording;
#[cfg(target_os = "linux")]
mod sink;
#[cfg(target_os = "linux")]
mod summon;
#[cfg(target_os = "linux")]
mod texts;
#[cfg(target_os = "linux")]
mod token;
#[cfg(target_os = "linux")]
mod turn;
#[cfg(target_os = "linux")]
mod typed;
#[cfg(target_os = "linux")]
mod undo;
#[cfg(target_os = "linux")]
mod unnamed;
#[cfg(target_os = "linux")]
mod verify;
#[cfg(target_os = "linux")]
mod warn;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(target_os = "linux")]
mod words;

#[cfg(target_os = "linux")]
pub use flow::run;

#[cfg(not(target_os = "linux"))]
mod untouched;
#[cfg(not(target_os = "linux"))]
pub use untouched::run_untouched;
