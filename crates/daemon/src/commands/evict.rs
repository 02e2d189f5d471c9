//! `larder evict`: brings the store within its limit, and removes the least recently used entries
//! first.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use larder_config::Settings;
use larder_store::{Counters, EVICT_TO_PERCENT, Eviction, Keep, Store};

use super::FINE;
use crate::cli::Evict;
use crate::say;
use crate::surroundings::Surroundings;

/// The interval of the progress bar's animation while no progress is known.
const TICK: Duration = Duration::from_millis(100);

/// Evicts, and prints what was removed.
pub(crate) fn run(around: &Surroundings, options: &Evict, out: &mut dyn Write) -> Result<u8> {
    if options.background {
        // Among the inherited descriptors can be the pipes of a job server. A process that waits
        // for their end must not wait for this one.
        larder_sys::close_others(3, &[]);
    }
    if options.images && options.max_size.is_none() && options.older_than.is_none() {
        bail!("--images needs a limit: add --max-size SIZE or --older-than AGE");
    }
    let limit_bytes = options.max_size.unwrap_or(around.settings().max_size_bytes);
    let store = around.store()?;
    if !store.directory().exists() || options.background && within(&store, limit_bytes, options) {
        if !options.background {
            writeln!(out, "{}: there is no store yet, so nothing to evict", store.directory().display())?;
        }
        return Ok(FINE);
    }
    let bar = if options.background { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    bar.set_message("reading the store");
    bar.enable_steady_tick(TICK);
    let done = evict(&store, limit_bytes, around.settings(), options);
    bar.finish_and_clear();
    let done = done.context("the store could not be evicted: `larder doctor` says more")?;
    if !options.background {
        report(&store, limit_bytes, options, &done, out)?;
    }
    Ok(FINE)
}

/// Returns true if the counters show that there is nothing to do. If many wrappers find the store
/// too large at the same time, this ends all but the first of the evictions that they start.
fn within(store: &Store, limit_bytes: u64, options: &Evict) -> bool {
    let no_limit = limit_bytes == 0 && options.max_size.is_none();
    no_limit || Counters::read(store).store_bytes <= limit_bytes
}

/// With options, evicts to exactly those limits. Without options, evicts to a share of the
/// configured limit if the store exceeds it.
fn evict(store: &Store, limit_bytes: u64, settings: &Settings, options: &Evict) -> Result<Eviction> {
    if options.max_size.is_none() && options.older_than.is_none() && !options.images {
        let images = images_to_limits(store, settings)?;
        let done = to_limit(store, limit_bytes)?;
        let Some(images) = images else { return Ok(done) };
        let (manifests, blobs) = (images.manifests + done.manifests, images.blobs + done.blobs);
        return Ok(Eviction { before_bytes: images.before_bytes, manifests, blobs, ..done });
    }
    let bytes_max = options.max_size.unwrap_or(u64::MAX);
    Ok(store.evict_all_but(&Keep { bytes_max, age_max: options.older_than, images_only: options.images })?)
}

/// Evicts images to their own limits of size and age. Returns `None` if the settings have no such
/// limits. Also removes the remains of processes that were killed while they restored images.
pub(crate) fn images_to_limits(store: &Store, settings: &Settings) -> Result<Option<Eviction>> {
    store.image_workplaces().iter().for_each(|dir| drop(larder_image::sweep(dir)));
    let is_set = |number: u64| (number > 0).then_some(number);
    let bytes_max = is_set(settings.image_max_size_bytes);
    let age_max = is_set(settings.image_max_days).map(|days| Duration::from_secs(days.saturating_mul(24 * 60 * 60)));
    if bytes_max.is_none() && age_max.is_none() {
        return Ok(None);
    }
    let keep = Keep { bytes_max: bytes_max.unwrap_or(u64::MAX), age_max, images_only: true };
    Ok(Some(store.evict_all_but(&keep)?))
}

/// Evicts to a share of the limit if the store exceeds it; 0 means no limit. Measures the size
/// first, because the counter is only approximate.
pub(crate) fn to_limit(store: &Store, limit_bytes: u64) -> Result<Eviction> {
    let measured = store.evict(u64::MAX)?;
    if limit_bytes == 0 || measured.after_bytes <= limit_bytes {
        return Ok(measured);
    }
    let done = store.evict(limit_bytes / 100 * EVICT_TO_PERCENT)?;
    Ok(Eviction { before_bytes: measured.before_bytes, blobs: measured.blobs + done.blobs, ..done })
}

fn report(store: &Store, limit_bytes: u64, options: &Evict, done: &Eviction, out: &mut dyn Write) -> Result<()> {
    let shown = store.directory().display();
    let mut limits = Vec::new();
    if options.max_size.is_some() || options.older_than.is_none() {
        let limit = if options.max_size == Some(0) { "0".to_owned() } else { say::limit(limit_bytes) };
        limits.push(format!("limit {}{limit}", if options.images { "of images " } else { "" }));
    }
    limits.extend(options.older_than.map(|_| "nothing older than the given age".to_owned()));
    let limit = limits.join(", ");
    let (before, after) = (say::bytes(done.before_bytes), say::bytes(done.after_bytes));
    if done.manifests == 0 && done.blobs == 0 {
        writeln!(out, "{shown}: nothing to evict: {after}, {limit}")?;
        return Ok(());
    }
    let records = say::count(done.manifests, "record", "records");
    let blobs = say::count(done.blobs, "blob", "blobs");
    writeln!(out, "{shown}: removed {records} and {blobs}: {before} before, {after} now, {limit}")?;
    Ok(())
}
