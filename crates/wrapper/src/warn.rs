//! Warnings on standard error, each of them once rather than once a compile: a build's output is read by people and by
//! scripts.
//!
//! Unaware of: what is wrong.

use larder_config::problems_digest;
use larder_store::Store;

use crate::context::Context;

/// Say what is wrong with the settings, once for each set of faults.
pub(crate) fn of_settings(context: &Context, store: &Store) {
    let problems = &context.loaded.problems;
    let quiet = context.loaded.settings.read_only;
    if problems.is_empty() || quiet || !store.first_time(&problems_digest(problems)) {
        return;
    }
    for problem in problems {
        eprintln!("larder: warning: {problem}");
    }
}
