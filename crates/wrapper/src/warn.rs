//! Warnings on standard error. Each is printed once and not for every compile, because people and
//! scripts read the output of a build.
//!
//! Unaware of: what is wrong.

use larder_config::problems_digest;
use larder_store::Store;

use crate::context::Context;

/// Prints the problems in the settings, once for each set of problems.
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
