//! The torture suite runs a tool plainly and through a cache, from the same state of the same
//! directory. Both runs must leave the same behind: exit code, messages, every file.
//! `docs/torture.md` says how to run it and how to add a case.
//!
//! | module | is | unaware of |
//! |---|---|---|
//! | `case`, `compilers`, `step`, `change` | the definition of a case | how it is run |
//! | `tree` | reads the files below a directory, and restores them | why |
//! | `machine` | what this machine has and allows | cases |
//! | `run`, `terminal`, `left` | run a command; what it printed and left behind | caches |
//! | `spawn` | starts a process while nothing is being written | why |
//! | `caches/` | how a cache is called and started, and its counters | cases |
//! | `mask`, `compare` | compares what two runs left | which run used a cache |
//! | `drive` | runs the steps of one case | other cases |
//! | `suite` | runs all chosen cases in parallel | what is printed |
//! | `report`, `table`, `known` | print and store results; list excused misses | how cases run |
//! | `grain` | derives cases of whole commands from other cases | all but `case` and `step` |
//! | `cases/` | the cases | all but `case`, `step` and `change` |
//!
//! The suite uses a cache only as a program. larder is one of several caches.
#![forbid(unsafe_code)]

pub mod caches;
pub mod case;
pub mod cases;
pub mod change;
pub mod compare;
pub mod compilers;
pub mod drive;
pub mod grain;
pub mod known;
mod left;
pub mod machine;
pub mod mask;
pub mod report;
pub mod run;
mod spawn;
pub mod step;
pub mod suite;
pub mod table;
mod terminal;
pub mod tree;
