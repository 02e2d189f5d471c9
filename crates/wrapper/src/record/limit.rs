//! Keeps the store within its size limit after something was added.

use std::os::unix::ffi::OsStrExt;

use larder_spawn::Command;
use larder_store::{Counters, Store};

use crate::commands;
use crate::context::Context;
use crate::daemon_autostart;

/// Starts `larderd` to evict in the background, if the store is over its limit. If it is not
/// installed, evicts here.
pub(crate) fn keep_within_limit(context: &Context, counters: &Counters, grown: u64) {
    let limit = context.loaded.settings.max_size_bytes;
    let size = counters.grew(grown);
    if limit == 0 || size <= limit {
        return;
    }
    let own = context.own_directory.clone().unwrap_or_default().join("larder");
    let started = commands::candidates(&own).into_iter().any(|path| {
        let argv = [&b"larder"[..], b"evict", b"--background"].map(<[u8]>::to_vec).to_vec();
        let program = path.as_os_str().as_bytes().to_vec();
        larder_spawn::start_apart(&Command::new(program, argv, daemon_autostart::environment(context))).is_ok()
    });
    if !started
        && let Some(dir) = &context.loaded.settings.dir
        && let Ok(store) = Store::open(dir)
    {
        let _ = store.evict(limit / 100 * larder_store::EVICT_TO_PERCENT);
    }
}
