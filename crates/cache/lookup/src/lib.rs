//! Finds the recorded result for a command, if there is one. The wrapper runs this code before a
//! hit, and `larder explain` runs the same code, so the explanation cannot differ from what the
//! wrapper does.
//!
//! The stages, in order. No stage reads what a later one produced, and none changes anything but
//! the stat cache.
//!
//! 1. `tool` finds the program that the command names.
//! 2. `roots` finds the directories that differ between two checkouts of the same build.
//! 3. `request` makes the Action (all that the key covers) and its weak fingerprint (the key).
//! 4. `answer` returns the manifest's newest entry whose observations all hold now.
//! 5. `relocated` rewrites the paths in a result that was recorded in another checkout.
//! 6. `observer` chooses the observer to run the tool under, if no entry holds.
//!
//! Besides the stages:
//!
//! - `place` is the context in which the command runs;
//! - `rust` has the roots and the session of a crate that rustc compiles;
//! - `by_text` finds entries that answer if the preprocessed text is the same;
//! - `bounds` says which paths a request may write;
//! - `secret` hides secrets in what is recorded and shown;
//! - `turn` makes the key by which two wrappers know that they run the same action.
//!
//! Unaware of: how a tool is run, how outputs are put in place, how a run is recorded.
#![forbid(unsafe_code)]
// The crate is empty on other systems, because the wrapper only runs tools unchanged there.
#![cfg(target_os = "linux")]

mod abilities;
mod answer;
mod bounds;
mod build_file;
mod by_text;
mod chance;
mod observer;
mod place;
pub mod relocated;
mod request;
mod roots;
mod rust;
mod scope;
mod search_path;
pub mod secret;
mod substring;
mod tool;
mod turn;

pub use abilities::Abilities;
pub use answer::{Answer, Rejected, STREAMS, ask, first_that_holds, remedy, roots_digest};
pub use by_text::{ByText, TextRequest, by_text, holds, is_text_worth_it};
pub use observer::{
    Choice, changes_key, choose_observer, command_key, made_program_key, open_key, program_key, tool_key, unseen_path,
};
pub use place::{Place, RootRules};
pub use request::{FromDisk as ResponseFilesOnDisk, Request, subject};
pub use roots::named_root;
pub use rust::{is_in_target_directory, remapped};
pub use scope::{Scope, ScopeError};
pub use search_path::{is_searched, left_out, searched_by_compilers};
pub use tool::{Ourselves, Tool, find};
pub use turn::{EarlierRecords, is_compile, kind};
