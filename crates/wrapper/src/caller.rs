//! What `larderd` and the kernel are told about a wrapper: its scheduling class, and the terms on
//! which records are sent to remotes.

use larder_config::{Class, Settings};
use larder_ipc::{Caller, Terms};

/// Returns the class and the terms of remotes for requests to `larderd`.
pub(crate) fn caller(settings: &Settings) -> Caller {
    let sends = !settings.remote_read_only;
    let terms = settings.remotes_digest().map(|remotes| Terms { remotes, trust: settings.trust_digest(), sends });
    Caller { class: class(settings), terms }
}

/// Returns the scheduling class of tools, and of work that `larderd` does for this command.
pub(crate) fn class(settings: &Settings) -> larder_spawn::Class {
    match settings.class {
        Class::Inherit => larder_spawn::Class::Inherit,
        Class::Utility => larder_spawn::Class::Utility,
        Class::Background => larder_spawn::Class::Background,
    }
}
