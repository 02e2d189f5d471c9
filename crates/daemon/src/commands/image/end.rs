//! The end of a subcommand: its exit code, and how errors and the growth of the store are treated.
//!
//! Unaware of: what the subcommand did.

use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use larder_image::ImageError;
use larder_store::{Counters, Store, StoreError};

use super::super::evict;
use crate::say;
use crate::surroundings::Surroundings;

/// The exit code if an image of a fallback was restored.
pub(super) const FALLBACK: u8 = 10;
/// The exit code if no image was found.
pub(super) const MISS: u8 = 11;

/// Returns the result. Without `strict`, an error is printed, and `instead` is returned.
pub(super) fn or_continue<T>(done: Result<T>, strict: bool, instead: T) -> Result<T> {
    match done {
        Err(error) if !strict => {
            let next = next_step(&error);
            say::tell(&say::one_line(&format!("{error:#}{next}: continuing without it")));
            Ok(instead)
        }
        done => done.map_err(|error| match next_step(&error) {
            "" => error,
            next => anyhow::anyhow!("{error:#}{next}"),
        }),
    }
}

/// Returns what to do about an error of the store, after a colon, if its kind says that. Empty
/// otherwise.
fn next_step(error: &anyhow::Error) -> &'static str {
    let kinds = error.chain().filter_map(|cause| match (cause.downcast_ref(), cause.downcast_ref()) {
        (Some(StoreError::Io { source, .. }), _) => Some(source.kind()),
        (_, Some(ImageError::Store(StoreError::Io { source, .. }))) => Some(source.kind()),
        _ => None,
    });
    let mut steps = kinds.map(|kind| match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ": free disk space, or set LARDER_DIR to another disk",
        ErrorKind::ReadOnlyFilesystem => ": set LARDER_DIR to a directory that can be written",
        _ => "",
    });
    steps.find(|step| !step.is_empty()).unwrap_or_default()
}

/// Returns the time in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Adds `bytes` to the counted size of the store, and evicts if it exceeds its limit.
pub(super) fn grown(around: &Surroundings, store: &Store, bytes: u64) -> Result<()> {
    evict::images_to_limits(store, around.settings())?;
    let Ok(counters) = Counters::open(store) else { return Ok(()) };
    let now = counters.grew(bytes);
    let limit_bytes = around.settings().max_size_bytes;
    if limit_bytes > 0 && now > limit_bytes {
        evict::to_limit(store, limit_bytes)?;
    }
    Ok(())
}
