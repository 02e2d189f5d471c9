//! Reads the environment and the configuration files once, into one plain struct. It also records
//! where each value came from.
//!
//! Later sources override earlier ones: the default, `/etc/larder/larder.toml`, `larder.toml` next
//! to the wrapper, the user's file, the project's own file (which may set only some keys), the
//! environment. Nothing here fails: a mistake is ignored and becomes a [`Problem`] in
//! [`Loaded::problems`].
//!
//! | file | is |
//! |---|---|
//! | `settings.rs` | the table of all settings: add one there |
//! | `choices.rs` | the settings that have a few named values |
//! | `surroundings.rs` | what may be read; the source of a value |
//! | `places.rs` | the paths of files and of the store; which variables belong to larder |
//! | `document.rs` | TOML bytes → keys and values with their lines |
//! | `meaning.rs`, `size.rs` | text → path, switch, observer, size |
//! | `secret.rs` | URLs without secrets; the variables that `larderd` needs |
//! | `load.rs` | the order of the sources |
//! | `problem.rs` | what went wrong, one line each |
//!
//! Unaware of: the file system (the caller reads), the process's environment (an argument), and
//! what a setting does.
#![forbid(unsafe_code)]

mod choices;
mod document;
mod load;
mod meaning;
mod places;
mod problem;
mod secret;
mod settings;
mod size;
mod surroundings;
#[cfg(test)]
mod tests;

pub use choices::{Class, Handover};
pub use load::{Loaded, LookedAt, Value, load};
pub use meaning::REMOTE_SCHEMES;
pub use problem::{Fault, Position, Problem, problems_digest};
pub use secret::{larderd_needs, masked};
pub use settings::{OTHER_VARIABLES, SETTINGS, Setting, Settings, ValueKind};
pub use size::{NotASize, parse_size, show_size};
pub use surroundings::{Source, Surroundings};

/// The maximum size of a configuration file in bytes. A reader for [`load()`] may stop one byte
/// after it.
pub const FILE_BYTES_MAX: usize = 1 << 20;
