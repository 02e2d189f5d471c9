//! Recording a build: what it is, what it needs to be believed with, what every process did, what became of every
//! action; comparing two records; a page that shows one. `docs/record.md` is for people.
//!
//! | file | holds |
//! |---|---|
//! | `form.rs` | what the files of a record hold |
//! | `directory.rs` | their names; reading, writing, packing |
//! | `session.rs` | which runs there are, in which order |
//! | `run.rs`, `load.rs`, `stacks.rs` | one run; the machine's load; sampled stacks |
//! | `follow.rs`, `look.rs` | its processes as they come; a look at one |
//! | `context/` | what a measurement has to be believed with |
//! | `redact.rs`, `reproduce.rs` | what is taken out; the script that does it again |
//! | `processes.rs`, `critical.rs`, `summary.rs` | lines → processes, the critical path, counts and causes |
//! | `statistics.rs`, `compare/` | whether one is faster; two records side by side |
//! | `page/`, `export/` | the page; traces, Markdown, JSON |
//!
//! Unaware of: the store, how an action is looked up, the command line.
#![forbid(unsafe_code)]
// Linux by nature so far: elsewhere tools run untouched, and nothing of this is there.
#![cfg(target_os = "linux")]

pub mod compare;
mod context;
mod critical;
mod directory;
mod error;
pub mod export;

mod follow;
pub mod form;
mod load;
mod look;
mod page;

mod processes;
mod redact;
mod reproduce;
mod run;
mod session;
mod stacks;
pub mod statistics;
pub mod summary;

pub use context::Surroundings;
pub use critical::{Stretch, critical_path};
pub use directory::{Listed, PACKED, Record, RecordedRun, Writing, list, pack};
pub use error::RecordError;

pub use page::page;
pub use processes::{Outcome, Process, Processes, Program, processes};
pub use redact::Redact;
pub use run::{Command, Output};
pub use session::{Listener, Planned, Recorded, Session, SideOfSession, Trace, plan, record};
pub use stacks::perf;
