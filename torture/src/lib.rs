//! The torture suite: a tool run plainly and run through a cache, from equal states of the same directory, must leave
//! the same behind: exit code, messages, every file. How to run it and how to add a case: `docs/torture.md`.
//!
//! | module | is | unaware of |
//! |---|---|---|
//! | `case`, `compilers`, `step`, `change` | what a case says: files, changes, commands, what is expected | how anything is run |
//! | `tree` | the files below a directory: read, put back | why |
//! | `machine` | what this machine has and allows | cases |
//! | `run`, `terminal`, `left` | one command, what it printed, what it left at work | caches |
//! | `caches/` | how one cache is called, started and asked for its counters | cases |
//! | `mask`, `compare` | what a caller could tell apart between two runs | who ran them |
//! | `drive` | one case from its first step to its last | other cases |
//! | `suite` | all chosen cases, several at once | what is printed |
//! | `report`, `table`, `known` | what is printed, kept as JSON, and excused | how it was found |
//! | `grain` | cases carried over to whole commands | everything but `case` and `step` |
//! | `cases/` | the cases | everything but `case`, `step` and `change` |
//!
//! A cache is used only as a program, and larder is one among others.
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
pub mod step;
pub mod suite;
pub mod table;
mod terminal;
pub mod tree;
