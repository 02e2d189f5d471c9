//! The wrapper: the program in front of a compiler. It answers from the store, or runs the tool and
//! records the result. Whatever goes wrong, the tool runs.
//!
//! A request goes down through these modules. None of them uses one above it.
//!
//! - `args` reads the command line, `context` reads the environment and the configuration once;
//! - `request` decides what happens next at each point of a request: `request/flow.rs` is its state
//!   machine, `request/miss.rs` runs and records the tool;
//! - `fetch` asks the remotes through `larderd`;
//! - `hit` puts a recorded result in place;
//! - `record` decides whether a run can be recorded, and makes the record;
//! - `run` starts tools: it waits for another process that runs the same action, waits for a job
//!   slot, runs the tool under an observer, and reports to a run that contains this one;
//! - `recorder` stores what a run left, or hands it over to `larderd`;
//! - `stats` counts and logs the outcome, `recording` adds it to the record of a build
//!   (`larder record`);
//! - `build_script` puts launchers in the place of cargo's build scripts (`rust_build_scripts`);
//! - `suggest` suggests a subcommand that was mistyped.
//!
//! It links no async runtime, argument parser, JSON or logging crate. Unaware of: what a remote is,
//! images, subcommands such as `larder stats`.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod args;
mod build_script;
mod caller;
mod commands;
mod context;
mod daemon_autostart;
mod fetch;
mod fetch_timeout;
mod hit;
mod log_file;
mod own_file;
mod record;
mod recorder;
mod recording;
mod request;
mod request_context;
mod run;
mod say;
mod stats;
mod suggest;
mod warn;

pub use request::run;
