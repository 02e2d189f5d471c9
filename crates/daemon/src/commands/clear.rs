//! `larder clear`: removes everything except images that are mounted or being restored, including
//! stores of earlier versions. It asks for no confirmation, because everything in the store can be
//! created again.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use super::FINE;
use crate::say;
use crate::surroundings::Surroundings;

/// The number of attempts while builds are writing.
const TRIES: usize = 5;

/// Removes everything, and prints what was removed.
pub(crate) fn run(around: &Surroundings, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    let shown = store.directory().display().to_string();
    if !store.directory().exists() {
        writeln!(out, "{shown}: there is no store yet, so nothing to clear")?;
        return Ok(FINE);
    }
    // Evicting everything first counts what is removed. It may leave files that look as if a writer
    // needs them, or fail half-way.
    let counted = store.evict(0).ok();
    // `clear` can fail because a build puts a file into a directory after it was emptied and before
    // it is removed.
    let cleared = (1..TRIES).find_map(|_| store.clear().ok());
    let used = cleared.map_or_else(|| store.clear(), Ok);
    let used = used.context("not everything could be removed: check the owner and permissions of the files")?;
    match counted {
        Some(gone) => {
            let records = say::count(gone.manifests, "record", "records");
            writeln!(out, "{shown}: removed {records}, {}", say::bytes(gone.before_bytes))?;
        }
        None => writeln!(out, "{shown}: removed everything")?,
    }
    let earlier = store.old_formats();
    store.remove_old_formats(Duration::ZERO);
    for path in earlier {
        let what = if path.exists() { "in use, so it stays" } else { "removed" };
        writeln!(out, "{}, of an earlier version of larder: {what}", path.display())?;
    }
    if used > 0 {
        let images = say::count(used as u64, "image", "images");
        writeln!(out, "{images} in use: images that are mounted or being restored stay")?;
    }
    Ok(FINE)
}
