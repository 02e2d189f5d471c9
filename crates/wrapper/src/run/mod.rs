//! Starts tools.
//!
//! | file | does |
//! |---|---|
//! | `single_flight` | waits for another process that runs the same action |
//! | `job_slot` | acquires a job slot, and sets the class in which the tool runs |
//! | `pre_run_snapshot` | notes the content of files before a command runs |
//! | `observed_run` | runs the tool under observers |
//! | `observer_trust` | learns which programs the preloaded library can observe |
//! | `parent_run` | reports to the run that contains us |
//! | `start` | becomes a tool, without observing it |
//! | `undo` | removes the files of a tool that was stopped |

pub(crate) mod job_slot;
pub(crate) mod observed_run;
pub(crate) mod observer_trust;
pub(crate) mod parent_run;
pub(crate) mod pre_run_snapshot;
pub(crate) mod single_flight;
pub(crate) mod start;
pub(crate) mod undo;
