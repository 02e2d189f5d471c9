//! Checks whether a larderd records for sandboxes that can only read the store.

use super::check::{Check, note, ok};
use crate::commands::daemon::{Reachability, find, unanswered};
use crate::surroundings::Surroundings;

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let Ok(store) = around.store() else { return Vec::new() };
    if around.settings().read_only {
        return Vec::new();
    }
    vec![match find(&store) {
        Reachability::Runs(state) => {
            ok("larderd", format!("runs, process {}: sandboxes that can only read the store can record", state.pid))
        }
        Reachability::OnDemand => {
            ok("larderd", "is started on demand: sandboxes that can only read the store can record")
        }
        Reachability::Silent(why) => note("larderd", format!("{}: {why}", unanswered(&store))),
        Reachability::Nothing => note(
            "larderd",
            "does not run: a sandbox that can only read the store, such as Bazel's, gets hits but records nothing; \
             run `larder daemon start` before the build, or `larder daemon install` once",
        ),
    }]
}
