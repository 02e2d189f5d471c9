//! Starting `larderd`, where there are remotes and nobody listens.
//!
//! Unaware of: what is wanted of it.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use larder_config::larderd_needs;
use larder_ipc::listens;
use larder_spawn::{Command, start_by};
use larder_store::{Store, Summoned};

use crate::context::Context;
use crate::{outer, words};

/// How long it may take to begin.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(2);

/// Have one listen. False where none does: in a sandbox that may only read the store none is started, since it would
/// end with the sandbox, nor within a command of another larder, which would take it for a part of it, nor below a tool
/// that was lowered, as which it would serve everybody else; and where one could not begin just now it is not tried again.
pub(crate) fn summon(context: &Context, store: &Store) -> bool {
    if outer::is_there() || store.may_be_written().is_err() {
        return false;
    }
    // One that somebody has just started is not there yet, and is waited for as one's own. Who may not start one must
    // not note that he does, or others wait for it.
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

/// What `larderd` is started with: nothing of a build's, so no job server's descriptors are named there.
pub(crate) fn environment(context: &Context) -> Vec<Vec<u8>> {
    let needed =
        context.place.environment.iter().filter(|(name, _)| larderd_needs(name, &context.loaded.settings.remote));
    needed.map(|(name, value)| [name, &b"="[..], value].concat()).collect()
}

fn start(context: &Context) -> bool {
    let own = context.own_directory.clone().unwrap_or_default().join("larder");
    words::candidates(&own).into_iter().any(|path| {
        // It starts the one that serves, and ends: a child of ours would outlive the tool.
        let argv = [&b"larderd"[..], b"serve", b"--apart"].map(<[u8]>::to_vec).to_vec();
        start_by(&Command::new(path.as_os_str().as_bytes().to_vec(), argv, environment(context))).is_ok()
    })
}
