//! `larder image import` and `export`: conversion from and to archives of other programs.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use larder_image::{Exported, Format, FoundImage, ImageError, Rights, export as write_archive, unpack};
use serde_json::json;

use super::super::print_json;
use super::end::{FALLBACK, MISS, grown, or_continue};
use super::find::{Opened, Search};
use super::key::Wanted;
use super::paths::name_of;
use super::restore::wanted;
use super::{FINE, bar, key, save};
use crate::cli::{ImageExport, ImageImport, Policy};
use crate::say;
use crate::surroundings::Surroundings;

/// Saves the contents of an archive as an image.
pub(super) fn import(around: &Surroundings, options: &ImageImport, out: &mut dyn Write) -> Result<u8> {
    let key = key::key(around, &options.key)?;
    if let Some(why) = save::why_not(around, Policy::Both) {
        return save::say_nothing(&key, why, options.json, out);
    }
    let file = around.cwd()?.join(&options.file);
    let format = Format::of(&file)?;
    let staging = around.store()?.image_staging()?;
    let name = options.r#as.as_ref().map(|name| name_of(around, name));
    // A larger image would be evicted at once.
    let bytes_max = Some(around.settings().max_size_bytes).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX);
    let unpacked = bar::during(|progress| unpack(&file, format, name.as_deref(), &staging, bytes_max, progress));
    let unpacked = unpacked.context("no image was saved")?;
    for (count, what) in [
        (unpacked.owners_left, "belonged to other users, but belong to you in the image: only root can keep owners"),
        (unpacked.attributes_left, "lost some of their extended attributes"),
    ] {
        say::tell_count(count, "name", "names", what);
    }
    let rights = if options.keep_rights { Rights::Kept } else { Rights::Dropped };
    // An archive that cannot be read is the job's error (already returned above). An image that
    // cannot be saved is only the cache's problem.
    let done = or_continue(save::named(around, &key, &unpacked.paths, rights).map(Some), options.strict, None)?;
    save::say_done(&key, done.as_ref(), options.json, out)?;
    Ok(FINE)
}

/// Writes an image as an archive.
pub(super) fn export(around: &Surroundings, options: &ImageExport, out: &mut dyn Write) -> Result<u8> {
    let began = Instant::now();
    let wanted = key::wanted(around, &options.wanted)?;
    let key = &wanted.key;
    let file = around.cwd()?.join(&options.file);
    let format = Format::of(&file)?;
    let store = around.store()?;
    let had = or_continue(had(around, &wanted, &options.paths).map(Some), options.strict, None)?;
    let is_trouble = had.is_none();
    let Some((Opened { found, lease, image, .. }, saved, fetched_bytes)) = had.flatten() else {
        match options.json {
            true => print_json(&json!({ "outcome": "miss", "wanted": key.text() }), out)?,
            false if is_trouble => writeln!(out, "miss: {key} could not be fetched")?,
            false => writeln!(out, "miss: nothing under {key}")?,
        }
        return Ok(MISS);
    };
    let record = &image.record;
    let exported = bar::during(|progress| write_archive(&store, &image, &saved, format, &file, progress))?;
    store.note_image_use(&record.key);
    drop(lease);
    grown(around, &store, fetched_bytes)?;
    tell_what_is_left(&exported);
    let (size, ms) = (exported.archive_bytes, began.elapsed().as_millis() as u64);
    if options.json {
        let object = json!({
            "outcome": found.word(),
            "wanted": key.text(),
            "key": record.key.text(),
            "file": file.display().to_string(),
            "files": record.files,
            "archive_bytes": size,
            "fetched_bytes": fetched_bytes,
            "left_out": exported.left,
            "copied": exported.copied,
            "ms": ms,
        });
        print_json(&object, out)?;
    } else {
        let file = say::one_line(&options.file.display().to_string());
        writeln!(out, "{}: {}: {} in {file}", found.word(), record.key, say::bytes(size))?;
    }
    Ok(if matches!(found, FoundImage::Fallback(_)) { FALLBACK } else { FINE })
}

/// Finds the image, and returns it, its wanted paths, and how many bytes of packs were downloaded.
/// Returns `None` if there is no such image.
fn had(around: &Surroundings, asked: &Wanted, paths: &[PathBuf]) -> Result<Option<(Opened, Vec<usize>, u64)>> {
    let search = Search::new(around, asked)?;
    let Some(opened) = search.open(Rights::Kept)? else { return Ok(None) };
    let Search { store, remotes, .. } = &search;
    let image = &opened.image;
    let saved: Vec<usize> = wanted(around, &image.record, paths)?.iter().map(|(saved, _)| *saved).collect();
    let lacking = image.lacking(store, &image.needed(&saved));
    let lacking: Vec<_> = lacking.iter().map(|&number| image.packs.packs[number].blob).collect();
    let fetched_bytes = lacking.iter().map(|blob| blob.size_bytes).sum();
    match (remotes, lacking.first()) {
        (Some(remotes), _) => remotes.fetch(store, lacking.into_iter()).context("the image could not be downloaded")?,
        (None, Some(gone)) => return Err(ImageError::PackMissing(gone.digest).into()),
        (None, None) => {}
    }
    Ok(Some((opened, saved, fetched_bytes)))
}

fn tell_what_is_left(exported: &Exported) {
    for (count, what) in [
        (exported.left, "left out: the format does not support FIFOs"),
        (exported.copied, "written as separate files: the format does not support hard links"),
        (exported.attributes_left, "written without extended attributes: the format does not support them"),
    ] {
        say::tell_count(count, "name", "names", what);
    }
}
