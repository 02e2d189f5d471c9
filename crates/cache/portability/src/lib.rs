//! Decides in which checkouts a result can be used: in every checkout of the same build, or only
//! where it was made.
//!
//! - `portability` decides, from the facts about a run (`facts`).
//! - `source_scan` searches the texts that a compiler read for ways in which a root path may have
//!   reached the result. It uses four modules about C text: `inactive_regions` finds the lines that
//!   no condition excludes, `macro_table` the macros that texts define, `unused_macros` macros that
//!   hold a root path and are not used, `file_macro` macros that expand to a file name. `c_words`
//!   says what a word is.
//! - `preprocessed_text` searches the output of the preprocessor, if the texts do not suffice.
//! - `compiled_text` says whether a compile gives the same result although headers have changed.
//! - `script_scan` searches scripts for words by which something that differs from run to run may
//!   reach the result, and `volatile_ids` searches the result for process ids and inode numbers.
//! - `rewrites` says how each content is rewritten elsewhere.
//!
//! Unaware of: the store, how a result is found, how a tool is run.
#![forbid(unsafe_code)]
// The crate is empty on other systems, because tools run unchanged there.
#![cfg(target_os = "linux")]

mod c_words;
mod compiled_text;
mod crate_of_rust;
mod facts;
mod file_macro;
mod holding;
mod inactive_regions;
mod macro_table;
mod portability;
mod pragmas;
mod preprocessed_text;
mod rewrites;
mod rust_text;
mod script_scan;
mod source_scan;
mod status;
mod unused_macros;
mod volatile_ids;

pub use c_words::names_files;
pub use compiled_text::{Header, Reading, compiled_text};
pub use facts::{CommandFacts, Content, Limit, Outcome, Output, OutputKind, Preprocess, RunFacts, SEARCHED_BYTES_MAX};
pub use portability::Decision;
pub use rewrites::{Rewrites, rule};
pub use script_scan::{HostName, ScriptScan, compares_dates, run_by_shells_alone};
pub use volatile_ids::{VolatileIds, holds_an_address, outside_the_system};
