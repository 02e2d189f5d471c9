//! By which rungs images can be had here, and why a better one cannot.

use std::path::Path;

use larder_mount::broker::Client;
use larder_mount::{Rung, Step, ladder};

use super::{Check, note, ok};
use crate::say;
use crate::surroundings::Surroundings;
use crate::words::image::BROKER_SOCKET;

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    // Where images lie; what is tried is removed again.
    let Some(dir) = around.settings().dir.as_deref().filter(|dir| dir.is_dir() && !around.settings().read_only) else {
        return Vec::new();
    };
    let steps = ladder(dir);
    let best = steps.iter().position(|step| step.found.is_ok()).unwrap_or(steps.len());
    let own = steps.iter().enumerate().map(|(at, step)| check(step, at == best));
    broker().into_iter().chain(own).collect()
}

/// The machine's own, where there is one: it mounts whatever we may.
fn broker() -> Option<Check> {
    let socket = Path::new(BROKER_SOCKET);
    socket.exists().then(|| match Client::mounts(socket) {
        Ok(mounts) => {
            let count = say::count(mounts.len() as u64, "image is", "images are");
            ok("image broker", format!("listens at {BROKER_SOCKET}; {count} mounted for this user"))
        }
        Err(error) => note("image broker", format!("{error}: start it again, or remove the socket")),
    })
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
