//! Starts `larderd`, if remotes are set and no daemon listens.
//!
//! Unaware of: what the daemon is needed for.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use larder_config::larderd_needs;
use larder_ipc::listens;
use larder_spawn::{Command, start_by};
use larder_store::{Store, Summoned};

use crate::commands;
use crate::context::Context;
use crate::run::parent_run;

/// How long the daemon may take until it listens.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(2);

/// Makes sure that a daemon listens, and starts one if necessary. Returns false if none does.
///
/// None is started in these cases:
///
/// - This process cannot write the store, as in a sandbox. The daemon would end with the sandbox.
/// - We run inside another larder's command, which would take the daemon for a part of that
///   command.
/// - We run below a tool with a lowered priority, which the daemon would inherit while serving all
///   others.
/// - One was started a moment ago and did not listen in time.
pub(crate) fn ensure_daemon(context: &Context, store: &Store) -> bool {
    if parent_run::is_there() || store.may_be_written().is_err() {
        return false;
    }
    // If another process has just started a daemon, we wait for that one. `may_summon` notes an
    // attempt, so it is called only if we are allowed to start one; otherwise others would wait for
    // a daemon that is never started.
    let begins = store.daemon_runs()
        || !larder_sys::is_lowered()
            && match store.may_summon() {
                Summoned::Never => start(context),
                Summoned::JustNow => true,
                Summoned::Lately => false,
            };
    if !begins {
        return false;
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if listens(&store.daemon_socket()).is_ok() {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Returns the environment for `larderd`. It has nothing of the build's, so no descriptors of a
/// make job server.
pub(crate) fn environment(context: &Context) -> Vec<Vec<u8>> {
    let needed =
        context.place.environment.iter().filter(|(name, _)| larderd_needs(name, &context.loaded.settings.remote));
    needed.map(|(name, value)| [name, &b"="[..], value].concat()).collect()
}

fn start(context: &Context) -> bool {
    let own = context.own_directory.clone().unwrap_or_default().join("larder");
    commands::candidates(&own).into_iter().any(|path| {
        // `--apart` makes it start the real daemon and exit. A daemon that is our child would
        // outlive the tool.
        let argv = [&b"larderd"[..], b"serve", b"--apart"].map(<[u8]>::to_vec).to_vec();
        start_by(&Command::new(path.as_os_str().as_bytes().to_vec(), argv, environment(context))).is_ok()
    })
}
