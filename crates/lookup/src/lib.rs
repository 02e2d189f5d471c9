//! From a command as typed to the record that answers it, if there is one: what the wrapper does before a hit, and what
//! `larder explain` shows. Both use this one code, so that the explanation cannot differ from the act.
//!
//! Stages: `tool` finds the program that is meant, `roots` finds what differs between places, `request` makes the
//! Action and its weak fingerprint, `answer` asks the manifest which recorded observations still hold, `relocated` has
//! a result as it would have been made here, `observer` chooses who would observe the tool. No stage looks back, none
//! changes anything but stamps. `bounds` says where a request may write, `secret` what of it is neither kept nor shown,
//! `turn` which other process to wait for.
//!
//! Unaware of: how a tool is run, how a result is put in place or recorded.
#![forbid(unsafe_code)]
// Linux by nature so far: elsewhere tools run untouched, and nothing of this is there.
#![cfg(target_os = "linux")]

mod abilities;
mod answer;
mod bounds;
mod chance;
mod observer;
mod paths;
pub mod relocated;
mod request;
mod roots;
mod scope;
pub mod secret;
mod tool;
mod turn;

pub use abilities::Abilities;
pub use answer::{Answer, Rejected, STREAMS, ask, first_that_holds, roots_digest};
pub use observer::{Choice, changes_key, choose_observer, command_key, made_program_key, program_key, tool_key};
pub use request::{FromDisk as ResponseFilesOnDisk, Place, Request, subject};
pub use roots::{RootRules, named_root};
pub use scope::{Scope, ScopeError};
pub use tool::{Ourselves, Tool, find};
pub use turn::{Known, is_compile, kind};
