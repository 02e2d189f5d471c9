//! By which rungs images can be had here, and why a better one cannot.

use larder_mount::{Rung, Step, ladder};

use super::{Check, note, ok};
use crate::surroundings::Surroundings;

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    // Where images lie; what is tried is removed again.
    let Some(dir) = around.settings().dir.as_deref().filter(|dir| dir.is_dir() && !around.settings().read_only) else {
        return Vec::new();
    };
    let steps = ladder(dir);
    let best = steps.iter().position(|step| step.found.is_ok()).unwrap_or(steps.len());
    steps.iter().enumerate().map(|(at, step)| check(step, at == best)).collect()
}

fn check(step: &Step, is_best: bool) -> Check {
    let what = format!("via {}", step.rung);
    match &step.found {
        Ok(how) if is_best => ok(&what, format!("{how}: images are used so")),
        Ok(how) => ok(&what, how.clone()),
        Err(why) if step.rung == Rung::Unpack => note(&what, why.clone()),
        Err(why) => note(&what, format!("not possible: {why}")),
    }
}
