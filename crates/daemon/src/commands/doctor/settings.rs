//! Checks the wrapper, the configuration, and switches that are easily forgotten.

use super::check::{Check, note, ok, problem};
use crate::surroundings::Surroundings;

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let mut checks = vec![wrapper(around)];
    configuration(around, &mut checks);
    switches(around, &mut checks);
    checks
}

fn wrapper(around: &Surroundings) -> Check {
    match &around.wrapper {
        Some(path) => ok("wrapper", format!("{}, version {}", path.display(), env!("CARGO_PKG_VERSION"))),
        None => problem("wrapper", "larder is not beside larderd: install both files in one directory"),
    }
}

fn configuration(around: &Surroundings, checks: &mut Vec<Check>) {
    checks.extend(around.loaded.problems.iter().map(|found| problem("configuration", found.to_string())));
    checks.extend(around.loaded.notes.iter().map(|found| note("configuration", found.to_string())));
    if around.loaded.problems.is_empty() {
        let read = around.loaded.files.iter().filter(|file| file.found);
        let names: Vec<String> = read.map(|file| file.path.display().to_string()).collect();
        let from = if names.is_empty() { "no file".to_owned() } else { names.join(", ") };
        checks.push(ok("configuration", format!("read from {from}; see `larder config`")));
    }
}

fn switches(around: &Surroundings, checks: &mut Vec<Check>) {
    let settings = around.settings();
    let switches = [
        (settings.disable, "disable is set (LARDER_DISABLE): every tool runs untouched until it is unset"),
        (settings.read_only, "read_only is set (LARDER_READ_ONLY): nothing is recorded or counted until it is unset"),
        (settings.recache, "recache is set (LARDER_RECACHE): every tool runs, and there are no hits until it is unset"),
    ];
    checks.extend(switches.into_iter().filter(|(on, _)| *on).map(|(_, found)| note("switch", found)));
    if larder_sys::file_size_is_limited() {
        let found = "the size of files is limited (ulimit -f): every tool runs untouched until the limit is lifted";
        checks.push(note("limit", found));
    }
    if let Some(observer) = settings.observer {
        let found = format!("only the {} observer may be used (LARDER_OBSERVER)", observer.name());
        checks.push(note("switch", found));
    }
}
