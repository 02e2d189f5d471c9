//! `larder doctor`: checks whether larder works on this machine. It prints one line per check, and
//! for each problem what to do.
//!
//! | file | checks |
//! |---|---|
//! | `check.rs` | nothing: it has the result of a check |
//! | `settings.rs` | configuration, switches, the wrapper itself |
//! | `disk.rs` | the store's directory, its file system, its size; the stat cache |
//! | `daemon.rs` | whether a larderd records for sandboxes |
//! | `mounting.rs` | which mount methods for images work |
//! | `beside.rs` | job slots; FUSE servers, VPNs and `larderd` that compilers would starve |
//! | `observing.rs` | `/proc`, memory files, one real observed run |
//! | `compiling.rs` | one line compiled twice by each compiler |
//! | `tools.rs` | masquerading links and their order, compilers, links to other caches |
//! | `rivals.rs` | variables, and files of cargo and CMake, that call another cache |

mod beside;
mod check;
mod compiling;
mod daemon;
mod disk;
mod mounting;
mod observing;
mod rivals;
mod settings;
mod tools;

pub(super) use self::disk::uncreatable;

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use self::check::{Check, State};
use super::{FINE, PROBLEM, print_json};
use crate::cli::Doctor;
use crate::say;
use crate::surroundings::Surroundings;

/// Runs all checks. The exit code is 1 if there is a problem.
pub(crate) fn run(around: &Surroundings, options: &Doctor, out: &mut dyn Write) -> Result<u8> {
    if let Some(directory) = &options.ways_in {
        return mounting::tell_ways(directory, out);
    }
    let mut checks = settings::checks(around);
    checks.extend(disk::checks(around));
    checks.extend(daemon::checks(around));
    checks.extend(beside::checks(around));
    checks.extend(observing::checks(around));
    checks.extend(tools::checks(around));
    checks.extend(rivals::checks(around));
    checks.extend(mounting::checks(around));
    let problems = checks.iter().filter(|check| check.state == State::Problem).count();
    if options.json {
        let object = |check: &Check| json!({ "state": check.state.name(), "what": check.what, "found": check.found });
        print_json(&json!({ "problems": problems, "checks": checks.iter().map(object).collect::<Vec<_>>() }), out)?;
    } else {
        for Check { state, what, found } in &checks {
            writeln!(out, "{:<8} {what:<13} {}", state.name(), say::one_line(found))?;
        }
    }
    Ok(if problems == 0 { FINE } else { PROBLEM })
}
