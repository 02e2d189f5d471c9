//! Runs a tool and observes which paths it reads and writes.
//!
//! An observer runs the tool as a child and returns a [`Trace`]: one event for each operation on a
//! path by the tool or by a process that it started. [`fold()`] reduces any observer's trace to
//! what the run relied on and what it changed, by the rules in `docs/observation.md`. After that
//! step it no longer matters which observer made the trace.
//!
//! | observer | how it observes |
//! |---|---|
//! | [`PreloadObserver`] | a preloaded library writes each operation into a shared log |
//! | [`KernelObserver`] | the kernel asks us before each system call (seccomp user notification) |
//! | [`DepfileObserver`] | works out the inputs of a compile afterwards, from its depfile |
//! | [`BothObservers`] | the library and the kernel on the same run, to compare them |
//! | [`SampledObserver`] | the library on the whole run, and the kernel on a few processes |
//!
//! Unaware of: compilers, the store, whether the result is worth keeping.
#![forbid(unsafe_code)]
// This crate is empty on systems other than Linux. Tools run unobserved there.
#![cfg(target_os = "linux")]

mod crosscheck;
mod depfile;
mod elf;
mod encoding;
mod event;
mod fold;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod kernel;
mod loader;
mod observer;
mod paths;
mod preload;
mod process_tree;
mod run_model;
mod sampled;
mod trace;

pub use crosscheck::{Access, AccessKind, BothObserved, BothObservers, LIBC_DIRECTORIES, LIBC_FILES, Verdict, compare};
pub use depfile::{DepfileObserver, UNPROVABLE};
pub use elf::{imported_symbols, linked_names, own_symbols};
pub use event::{
    Event, EventKind, IN_ANY_ORDER, IN_ANY_ORDER_OF_KINDS, INTERNET, OpenFlags, REPORTED_BELONGS, REPORTED_COMPARED,
    REPORTED_MODE, REPORTED_MODIFIED, REPORTED_OWNER, REPORTED_STATUS, REPORTED_UMASK, SOCKET, arguments, identity_of,
    mode_of, reported_output,
};
pub use fold::{Folded, HabitOf, Origin, Policy, fold};
pub use kernel::{Closing, INTERRUPTED, Interest, KernelObserver};
pub use loader::loader_looks;
pub use observer::{Observed, Observer};
pub use preload::{OuterLog, PreloadObserver, Program, dynamic_names, inspect_program};
pub use process_tree::Running;
pub use run_model::{Image, Open, Phase, RunModel, Start};
pub use sampled::{Sample, SampledObserved, SampledObserver};
pub use trace::Trace;
