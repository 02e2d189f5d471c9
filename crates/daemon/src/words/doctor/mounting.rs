//! By which rungs images can be had here, and why a better one cannot.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use larder_mount::broker::Client;
use larder_mount::{Rung, Step, ladder};
use serde_json::{Value, json};

use super::{Check, note, ok};
use crate::say;
use crate::surroundings::Surroundings;
use crate::words::image::{BROKER_SOCKET, own_mounts};
use crate::words::{FINE, print_json};

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let Some(dir) = around.settings().dir.as_deref().filter(|_| !around.settings().read_only) else {
        return Vec::new();
    };
    // Where images lie, or will lie if there is no store yet; what is tried is removed again.
    let Some(dir) = dir.ancestors().find(|dir| dir.is_dir()) else { return Vec::new() };
    let steps = steps(dir).unwrap_or_else(|_| ladder(dir));
    let best = steps.iter().position(|step| step.found.is_ok()).unwrap_or(steps.len());
    let own = steps.iter().enumerate().map(|(at, step)| check(step, at == best));
    broker().into_iter().chain(own).collect()
}

/// What another process of this program finds, which has mounts of its own: as `image run` has, so that an ordinary user's
/// ways are found, and so that nothing stays mounted if it is killed.
fn steps(dir: &Path) -> Result<Vec<Step>> {
    let program = std::env::current_exe().context("the file of larderd cannot be found")?;
    let mut command = Command::new(program);
    let found = command.args(["doctor", "--ways-in"]).arg(dir).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let said: Value = serde_json::from_slice(&found.stdout)?;
    let step = |said: &Value| {
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        let rung = text("rung")?.parse().ok()?;
        Some(Step { rung, found: text("how").map_or_else(|| Err(text("why").unwrap_or_default()), Ok) })
    };
    let steps: Option<Vec<Step>> = said["ways"].as_array().context("no ways were told")?.iter().map(step).collect();
    steps.context("a way was told that is not known")
}

/// Try each rung among mounts of our own, and print what came of it as JSON.
pub(super) fn tell_ways(dir: &Path, out: &mut dyn Write) -> Result<u8> {
    let own = own_mounts();
    let told = ladder(dir).into_iter().map(|Step { rung, found }| {
        let found = match (&own, rung) {
            (Err(error), Rung::Fuse) => found.map_err(|_| format!("no mounts of its own can be had here: {error}")),
            _ => found,
        };
        match found {
            Ok(how) => json!({ "rung": rung.word(), "how": how }),
            Err(why) => json!({ "rung": rung.word(), "why": why }),
        }
    });
    print_json(&json!({ "ways": told.collect::<Vec<_>>() }), out)?;
    Ok(FINE)
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
