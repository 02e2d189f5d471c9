//! The wrapper: the program in front of a compiler. It answers from the store, or runs the tool and
//! records the result. Whatever goes wrong, the tool runs.
//!
//! A request passes through these modules:
//!
//! - `typed` reads the command line, `context` reads the environment and the configuration once;
//! - `flow` decides what happens next at each point of a request;
//! - `hit` puts a recorded result in place;
//! - `turn` waits for another process that runs the same action, `fetch` asks the remotes through
//!   `larderd`;
//! - `miss` runs the tool under an observer and records what it did;
//! - `account` counts and logs the outcome, `recording` adds it to the record of a build
//!   (`larder record`).
//!
//! It links no async runtime, argument parser, JSON or logging crate. Unaware of: what a remote is,
//! images, subcommands such as `larder stats`.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod account;
#[cfg(target_os = "linux")]
mod before;
#[cfg(target_os = "linux")]
mod caller;
#[cfg(target_os = "linux")]
mod context;
#[cfg(target_os = "linux")]
mod dates;
#[cfg(target_os = "linux")]
mod fetch;
#[cfg(target_os = "linux")]
mod flow;
#[cfg(target_os = "linux")]
mod handover;
#[cfg(target_os = "linux")]
mod hit;
#[cfg(target_os = "linux")]
mod keep;
#[cfg(target_os = "linux")]
mod log_file;
#[cfg(target_os = "linux")]
mod miss;
#[cfg(target_os = "linux")]
mod ninja;
#[cfg(target_os = "linux")]
mod not_recorded;
#[cfg(target_os = "linux")]
mod outer;
#[cfg(target_os = "linux")]
mod own_file;
#[cfg(target_os = "linux")]
mod patience;
#[cfg(target_os = "linux")]
mod real;
#[cfg(target_os = "linux")]
mod recording;
#[cfg(target_os = "linux")]
mod sink;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod summon;
#[cfg(target_os = "linux")]
mod token;
#[cfg(target_os = "linux")]
mod turn;
#[cfg(target_os = "linux")]
mod typed;
#[cfg(target_os = "linux")]
mod undo;
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
