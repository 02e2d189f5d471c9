//! Environment and configuration files, read once, as one plain struct that also knows where each value came from.
//!
//! Later wins: the default, `/etc/larder/larder.toml`, `larder.toml` beside the wrapper, the user's, the project's own
//! (which may set little), the environment. Nothing here fails: what is wrong is a [`Problem`] in [`Loaded::problems`],
//! and is ignored.
//!
//! | file | holds |
//! |---|---|
//! | `settings.rs` | the table of all settings: add one there |
//! | `places.rs` | where files and the store are looked for; which variables are ours |
//! | `document.rs` | TOML bytes → keys and values with their lines |
//! | `meaning.rs`, `size.rs` | text → path, switch, observer, size |
//! | `secret.rs` | a URL as it may be shown; what of an environment `larderd` needs |
//! | `load.rs` | the order of it all |
//! | `problem.rs` | what went wrong, one line each |
//!
//! Unaware of: the file system (the caller reads), the process's environment (an argument), and what a setting does.
#![forbid(unsafe_code)]

mod document;
mod load;
mod meaning;
mod places;
mod problem;
mod secret;
mod settings;
mod size;
#[cfg(test)]
mod tests;

pub use load::{Loaded, LookedAt, Source, Surroundings, Value, load};
pub use meaning::REMOTE_SCHEMES;
pub use problem::{Fault, Place, Problem, problems_digest};
pub use secret::{larderd_needs, masked};
pub use settings::{Class, Handover, Kind, OTHER_VARIABLES, SETTINGS, Setting, Settings};
pub use size::{NotASize, parse_size, show_size};

/// The largest configuration file that is believed, in bytes. Whoever reads for [`load()`] need not read further than
/// one byte past it.
pub const FILE_BYTES_MAX: usize = 1 << 20;
