//! `larder clear`: everything goes but what is mounted, also what earlier versions of larder left. No question is asked:
//! what was in the store can be made again.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use super::FINE;
use crate::say;
use crate::surroundings::Surroundings;

/// How often it is tried while builds write.
const TRIES: usize = 5;

/// Remove everything, and say what went.
pub(crate) fn run(around: &Surroundings, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    let shown = store.directory().display().to_string();
    if !store.directory().exists() {
        writeln!(out, "{shown}: there is no store yet, so nothing to clear")?;
        return Ok(FINE);
    }
    // Eviction to nothing counts what it removes; it may leave what it thinks a writer needs, or fail half-way.
    let counted = store.evict(0).ok();
    // A build may put a file into a directory between its emptying and its removal.
    let cleared = (1..TRIES).find_map(|_| store.clear().ok());
    let used = cleared.map_or_else(|| store.clear(), Ok);
    let used = used.context("not everything could be removed: see whose files these are")?;
    match counted {
        Some(gone) => {
            let records = say::count(gone.manifests, "record", "records");
            writeln!(out, "{shown}: removed {records}, {}", say::bytes(gone.before_bytes))?;
        }
        None => writeln!(out, "{shown}: removed everything")?,
    }
    let earlier = store.earlier();
    store.remove_earlier(Duration::ZERO);
    for path in earlier {
        let what = if path.exists() { "in use, and stays" } else { "removed" };
        writeln!(out, "{}, of an earlier version of larder: {what}", path.display())?;
    }
    if used > 0 {
        let images = say::count(used as u64, "image", "images");
        writeln!(out, "{images} in use: what is mounted or being restored stays")?;
    }
    Ok(FINE)
}
