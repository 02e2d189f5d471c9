//! `larder image save`: saves paths under a key, in the store and on the remotes.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use larder_image::{Request, Rights, Saved, save};
use larder_model::{Blob, ImageKey};
use larder_store::Store;
use serde_json::json;

use super::super::print_json;
use super::end::{grown, now_ms, or_continue};
use super::paths::{name_of, shown};
use super::remote_images::RemoteImages;
use super::{FINE, bar, key};
use crate::cli::{ImageSave, Policy};
use crate::say;
use crate::surroundings::Surroundings;

/// A saved image.
pub(super) struct Done {
    saved: Saved,
    /// The uploaded bytes that were not on the remotes before. `None` if nothing was uploaded.
    sent: Option<u64>,
    ms: u64,
}

/// Saves the paths and prints the result.
pub(super) fn run(around: &Surroundings, options: &ImageSave, out: &mut dyn Write) -> Result<u8> {
    let key = key::key(around, &options.key)?;
    if let Some(why) = why_not(around, options.policy) {
        return say_nothing(&key, why, options.json, out);
    }
    let done = or_continue(paths(around, &key, &options.paths).map(Some), options.strict, None)?;
    say_done(&key, done.as_ref(), options.json, out)?;
    Ok(FINE)
}

/// Returns why nothing is to be saved, if the options or settings say so.
pub(super) fn why_not(around: &Surroundings, policy: Policy) -> Option<&'static str> {
    match (policy, around.settings().read_only) {
        (Policy::Pull, _) => Some("nothing is saved with --policy pull"),
        (_, true) => Some("nothing is saved with read_only (LARDER_READ_ONLY)"),
        (_, false) => None,
    }
}

/// Prints that nothing was saved.
pub(super) fn say_nothing(key: &ImageKey, why: &str, as_json: bool, out: &mut dyn Write) -> Result<u8> {
    if as_json {
        print_json(&json!({ "key": key.text(), "saved": false }), out)?;
    } else {
        writeln!(out, "{why}")?;
    }
    Ok(FINE)
}

/// Saves these paths under a key, in the store and on the remotes.
pub(super) fn paths(around: &Surroundings, key: &ImageKey, paths: &[PathBuf]) -> Result<Done> {
    let cwd = around.cwd()?;
    for (at, path) in paths.iter().enumerate() {
        let mut others = paths.iter().enumerate().filter(|(other, _)| *other != at);
        // Nested paths could not be restored one after the other.
        if let Some((_, above)) = others.find(|(_, other)| cwd.join(path).starts_with(cwd.join(other))) {
            let (path, above) = (path.display(), above.display());
            bail!("nothing was saved: {path} lies in {above}, which is to be saved as well: give only one of them");
        }
    }
    let all: Vec<(Vec<u8>, PathBuf)> = paths.iter().map(|path| (name_of(around, path), cwd.join(path))).collect();
    named(around, key, &all, Rights::Kept)
}

/// Saves paths under given names.
pub(super) fn named(
    around: &Surroundings,
    key: &ImageKey,
    named: &[(Vec<u8>, PathBuf)],
    rights: Rights,
) -> Result<Done> {
    let began = Instant::now();
    let store = around.store()?;
    let remotes = RemoteImages::open(around, &store)?.filter(RemoteImages::writes);
    if let Some(remotes) = &remotes {
        fetch_bases(&store, remotes, key);
    }
    let elsewhere =
        |blobs: &[Blob]| remotes.as_ref().map_or_else(|| vec![false; blobs.len()], |remotes| remotes.has(blobs));
    let now_ms = now_ms().max(last_saved_ms(&store, remotes.as_ref(), key).saturating_add(1));
    let request = Request { key: key.clone(), paths: named, now_ms, elsewhere: &elsewhere, rights };
    let saved = bar::during(|progress| save(&store, &request, progress)).context("no image was saved")?;
    let sent = remotes.as_ref().map(|remotes| remotes.publish(&saved)).transpose();
    let sent = sent.context("the image is in the store, but not on every remote")?;
    grown(around, &store, saved.new_bytes)?;
    Ok(Done { saved, sent, ms: began.elapsed().as_millis() as u64 })
}

/// Returns when the key was last saved, as far as that is known. The new image gets a later time,
/// even if the clocks of the two machines disagree.
fn last_saved_ms(store: &Store, remotes: Option<&RemoteImages>, key: &ImageKey) -> u64 {
    let listed = remotes.and_then(|remotes| remotes.images(&key.digest()).ok()).unwrap_or_default();
    let known = store.image(key).ok().flatten().into_iter().chain(listed);
    let known_ms = known.filter(|record| record.key == *key).map(|record| record.created_ms).max().unwrap_or(0);
    known_ms.max(store.newest_image_ms(key))
}

/// Downloads the last image of this key (without its packs), and the piece lists of other images,
/// so that their packs are reused. If that fails, the upload is larger than necessary.
fn fetch_bases(store: &Store, remotes: &RemoteImages, key: &ImageKey) {
    if let Ok(None) = store.image(key)
        && let Ok(images) = remotes.images(&key.digest())
    {
        for record in images.into_iter().filter(|record| record.key == *key) {
            let fetched = remotes.fetch(store, record.blobs());
            let _ = fetched.and_then(|()| Ok(store.keep_image(&record, remotes.origin_of(&record), false)?));
        }
    }
    for image in store.images().unwrap_or_default() {
        if !store.has_blob(&image.record.pieces) {
            let _ = remotes.fetch(store, [image.record.pieces].into_iter());
        }
    }
}

/// Prints what was saved.
pub(super) fn say_done(key: &ImageKey, done: Option<&Done>, as_json: bool, out: &mut dyn Write) -> Result<()> {
    let Some(Done { saved, sent, ms }) = done else {
        if as_json {
            print_json(&json!({ "key": key.text(), "saved": false }), out)?;
        }
        return Ok(());
    };
    for path in &saved.left {
        say::tell(&format!(
            "{}: left out, because it is a socket, which is useless without its process",
            path.display()
        ));
    }
    if saved.attributes_left > 0 {
        let count = say::count(saved.attributes_left, "file has", "files have");
        say::tell(&format!("{count} extended attributes that are valid only on this machine and were left out"));
    }
    if saved.rights_dropped > 0 {
        let count = say::count(saved.rights_dropped, "name has", "names have");
        say::tell(&format!(
            "{count} set-user-id, set-group-id or capabilities, which were not saved; --keep-rights saves them"
        ));
    }
    let record = &saved.record;
    if as_json {
        let object = json!({
            "key": key.text(),
            "saved": true,
            "paths": record.saved.iter().map(|saved| shown(&saved.path)).collect::<Vec<_>>(),
            "files": record.files,
            "size_bytes": record.size_bytes,
            "packed_bytes": saved.all_bytes,
            "new_bytes": saved.new_bytes,
            "sent_bytes": sent,
            "left_out": saved.left.len(),
            "ms": ms,
        });
        return print_json(&object, out);
    }
    let (files, size) = (say::count(record.files, "file", "files"), say::bytes(record.size_bytes));
    let (all, new) = (say::bytes(saved.all_bytes), say::bytes(saved.new_bytes));
    let sent = sent.map(|bytes| format!(", {} sent", say::bytes(bytes))).unwrap_or_default();
    writeln!(out, "saved {key}: {files}, {size}; {all} packed, {new} of it new{sent}")?;
    Ok(())
}
