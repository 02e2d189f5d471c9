//! Checks which mount methods for images work here, and why a better one does not.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use larder_image::can_squash;
use larder_mount::broker::Client;
use larder_mount::{Backend, Step, ladder};
use serde_json::{Value, json};

use super::check::{Check, note, ok};
use crate::commands::image::{BROKER_SOCKET, own_mounts};
use crate::commands::{FINE, print_json};
use crate::say;
use crate::surroundings::{Surroundings, own_program};

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let Some(dir) = around.settings().dir.as_deref().filter(|_| !around.settings().read_only) else {
        return Vec::new();
    };
    // The directory of images, or its nearest existing parent if there is no store yet. The test
    // files are removed again.
    let Some(dir) = dir.ancestors().find(|dir| dir.is_dir()) else { return Vec::new() };
    let squashes = can_squash();
    let steps = steps(dir).unwrap_or_else(|_| ladder(dir)).into_iter();
    let steps: Vec<Step> = steps.map(|step| with_mksquashfs(step, &squashes)).collect();
    let best = steps.iter().position(|step| step.found.is_ok()).unwrap_or(steps.len());
    let own = steps.iter().enumerate().map(|(at, step)| check(step, at == best));
    broker().into_iter().chain(own).collect()
}

/// Returns the step of a method that needs a squashfs file as not possible if `mksquashfs` cannot make
/// one. `squashes` says why.
fn with_mksquashfs(step: Step, squashes: &Result<(), String>) -> Step {
    match (step.backend, &step.found, squashes) {
        (Backend::Squashfs | Backend::Fuse, Ok(how), Err(why)) => {
            let why = format!("{why}; only `larder image attach` of a squashfs file works ({how})");
            Step { found: Err(why), ..step }
        }
        _ => step,
    }
}

/// Runs the test in another process of this program, in a mount namespace of its own. So the
/// methods of an ordinary user are found, because `image run` uses such a namespace too, and
/// nothing stays mounted if the process is killed.
fn steps(dir: &Path) -> Result<Vec<Step>> {
    let program = own_program()?;
    let mut command = Command::new(program);
    let found = command.args(["doctor", "--ways-in"]).arg(dir).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let said: Value = serde_json::from_slice(&found.stdout)?;
    let step = |said: &Value| {
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        let backend = text("rung")?.parse().ok()?;
        Some(Step { backend, found: text("how").map_or_else(|| Err(text("why").unwrap_or_default()), Ok) })
    };
    let steps: Option<Vec<Step>> =
        said["ways"].as_array().context("the test printed no mount methods")?.iter().map(step).collect();
    steps.context("the test printed an unknown mount method")
}

/// Tries each mount method in a mount namespace of its own, and prints the results as JSON.
pub(super) fn tell_ways(dir: &Path, out: &mut dyn Write) -> Result<u8> {
    let own = own_mounts();
    let told = ladder(dir).into_iter().map(|Step { backend, found }| {
        let found = match (&own, backend) {
            (Err(error), Backend::Fuse) => {
                found.map_err(|_| format!("no mount namespace can be created here: {error}"))
            }
            _ => found,
        };
        match found {
            Ok(how) => json!({ "rung": backend.word(), "how": how }),
            Err(why) => json!({ "rung": backend.word(), "why": why }),
        }
    });
    print_json(&json!({ "ways": told.collect::<Vec<_>>() }), out)?;
    Ok(FINE)
}

/// Checks the machine's broker, if there is one. It mounts for this user, no matter what this user
/// may do.
fn broker() -> Option<Check> {
    let socket = Path::new(BROKER_SOCKET);
    socket.exists().then(|| match Client::mounts(socket) {
        Ok(mounts) => {
            let count = say::count(mounts.len() as u64, "image is", "images are");
            ok("image broker", format!("listens on {BROKER_SOCKET}; {count} mounted for this user"))
        }
        Err(error) => note("image broker", format!("{error}: restart the broker, or remove the socket")),
    })
}

fn check(step: &Step, is_best: bool) -> Check {
    let what = format!("via {}", step.backend);
    match &step.found {
        Ok(how) if is_best => ok(&what, format!("{how}: this method is used for images")),
        Ok(how) => ok(&what, how.clone()),
        Err(why) if step.backend == Backend::Unpack => note(&what, why.clone()),
        Err(why) => note(&what, format!("not possible: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_by_squashfs_need_a_program_that_makes_it() {
        let old = Err("mksquashfs 4.4.0 cannot read a tar".to_owned());
        let step = |backend| Step { backend, found: Ok("by a loop device".to_owned()) };
        for backend in Backend::ALL {
            let needs_it = matches!(backend, Backend::Squashfs | Backend::Fuse);
            assert!(with_mksquashfs(step(backend), &Ok(())).found.is_ok());
            assert_eq!(with_mksquashfs(step(backend), &old).found.is_err(), needs_it, "{backend}");
        }
        let shown = with_mksquashfs(step(Backend::Squashfs), &old).found.expect_err("is not possible");
        assert!(shown.contains("cannot read a tar; only `larder image attach`"), "{shown}");
    }
}
