//! The trait of all observers, and the result of an observed run.
//!
//! Unaware of: how a tool is observed.

use larder_spawn::{Command, Destinations, Finished};
use larder_sys::Rivalry;

use crate::trace::Trace;

/// Runs a tool and observes what it does.
pub trait Observer {
    /// The observer's name, which is stored in the record.
    fn name(&self) -> larder_model::Observer;

    /// Runs the tool as a child and passes on what it writes. If `rival` wins first, the tool is
    /// ended. An error means that the tool was not started, so it can still be run in another way.
    fn run(&self, command: &Command, to: &Destinations, rival: Rivalry) -> std::io::Result<Observed>;
}

/// The result of an observed run.
pub struct Observed {
    /// How the tool ended and what it wrote to its standard streams.
    pub finished: Finished,
    /// Every operation on a path.
    pub trace: Trace,
}
