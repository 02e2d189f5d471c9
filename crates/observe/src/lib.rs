//! Running a tool and seeing what it looks at and writes.
//!
//! An observer runs a tool beside us and gives a trace: one event for each thing that it, or a process it started, did
//! with a path. `fold` turns any observer's trace into what was relied on and what was changed, by the rules that
//! `docs/observation.md` explains. Which observer made the trace does not matter from there on.
//!
//! Unaware of: compilers, the store, whether the result is worth keeping.
#![forbid(unsafe_code)]
// Linux by nature so far: elsewhere tools run untouched, and nothing of this is there.
#![cfg(target_os = "linux")]

mod depfile;
mod fold;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod judge;
mod kernel;
mod loader;
mod paths;
mod preload;
mod sampled;
mod trace;
mod who;

pub use depfile::{DepfileObserver, DepfilePlan, UNPROVABLE};
pub use fold::{Folded, HabitOf, Origin, Policy, fold};
pub use judge::{BothObserved, BothObservers, LIBC_DIRECTORIES, LIBC_FILES, Sight, Verdict, What, compare};
pub use kernel::{Closing, INTERRUPTED, KernelObserver};
pub use loader::loader_looks;
pub use paths::without_parents;
pub use preload::{IN_ANY_ORDER, IN_ANY_ORDER_OF_KINDS, OuterLog, PreloadObserver, Program, judge};
pub use sampled::{Interest, Sample, SampledObserved, SampledObserver};
pub use trace::{
    Event, INTERNET, Kind, OpenFlags, REPORTED_COMPARED, REPORTED_MODE, REPORTED_MODIFIED, REPORTED_STATUS,
    REPORTED_UMASK, REPORTED_WHOLE, SOCKET, Trace, arguments, identity_of, mode_of, reported_output,
};
pub use who::{Running, Who};

use larder_spawn::{Command, Destinations, Finished};
use larder_sys::Rivalry;

/// Runs a tool and sees what it does.
pub trait Observer {
    /// Which one it is, for the record.
    fn name(&self) -> larder_model::Observer;

    /// Run the tool beside us, passing on what it writes, until its rival wins, where it has one. An error means that
    /// it was not started and still can be.
    fn run(&self, command: &Command, to: &Destinations, rival: Rivalry) -> std::io::Result<Observed>;
}

/// What an observer saw.
pub struct Observed {
    /// How the tool ended and what it wrote.
    pub finished: Finished,
    /// Everything that it did with paths.
    pub trace: Trace,
}
