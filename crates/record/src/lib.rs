//! Records builds: their context, every process, and the outcome of every action. Compares two
//! records, and makes an HTML page about one. `docs/record.md` is the documentation for users.
//!
//! | file | holds |
//! |---|---|
//! | `schema.rs` | the schema of a record's files |
//! | `directory.rs` | file names; reading, writing, packing |
//! | `session.rs` | which runs there are, and in which order |
//! | `run.rs`, `load.rs`, `stacks.rs` | one run; the machine's load; sampled stacks |
//! | `process_tracer.rs`, `process_reader.rs` | tracing processes; examining a stopped process |
//! | `spans/` | what build tools report about a run |
//! | `context/` | the context of a measurement |
//! | `redact.rs`, `reproduce.rs` | removing secrets; the script that repeats a recording |
//! | `processes.rs`, `critical.rs`, `summary.rs` | the process tree, critical path, counts, causes |
//! | `statistics.rs`, `compare/` | whether one record is faster; two records side by side |
//! | `page/`, `lanes.rs`, `export/` | the HTML page; lanes of a chart; traces, Markdown, JSON |
//!
//! Unaware of: the store, how an action is looked up, the command line.
#![forbid(unsafe_code)]
// Only Linux is supported so far: on other systems tools run without caching, and there is nothing
// to record.
#![cfg(target_os = "linux")]

mod command;
pub mod compare;
mod context;
mod critical;
mod directory;
mod error;
pub mod export;
mod lanes;
mod load;
mod page;
mod process_reader;
mod process_tracer;
pub mod schema;

mod processes;
mod redact;
mod reproduce;
mod run;
mod session;
mod spans;
mod stacks;
pub mod statistics;
pub mod summary;

pub use context::Surroundings;
pub use critical::{Stretch, critical_path};
pub use directory::{Listed, PACKED, Record, RecordedRun, Writing, list, pack};
pub use error::RecordError;

pub use command::Command;
pub use page::page;
pub use processes::{Outcome, Process, Processes, Program, processes};
pub use redact::Redact;
pub use run::Output;
pub use session::{Listener, Planned, Recorded, Session, SideOfSession, Trace, plan, record};
#[cfg(feature = "fuzzing")]
pub use spans::check_report;
pub use stacks::perf;
