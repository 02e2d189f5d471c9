//! `larder image import` and `export`: archives that others made, and for others.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result};
use larder_image::{Exported, Format, Found, export as write_archive, unpack};
use serde_json::json;

use super::super::print_json;
use super::far::FarImages;
use super::find::{Opened, open};
use super::restore::targets;
use super::{FALLBACK, FINE, MISS, bar, cwd, grown, key, name_of, save};
use crate::cli::{ImageExport, ImageImport};
use crate::say;
use crate::surroundings::Surroundings;

/// Save what is in an archive.
pub(super) fn import(around: &Surroundings, options: &ImageImport, out: &mut dyn Write) -> Result<u8> {
    let key = key::key(around, &options.key)?;
    let file = cwd(around)?.join(&options.file);
    let format = Format::of(&file)?;
    let staging = around.store()?.image_staging()?;
    let name = options.r#as.as_ref().map(|name| name_of(around, name));
    let unpacked = bar::during(|progress| unpack(&file, format, name.as_deref(), &staging, progress));
    let unpacked = unpacked.context("nothing was saved")?;
    for (count, what) in [
        (unpacked.owners_left, "belonged to others, and are yours in the image: only root can keep owners"),
        (unpacked.attributes_left, "could not keep all of their attributes"),
    ] {
        if count > 0 {
            say::tell(&format!("{} {what}", say::count(count, "name", "names")));
        }
    }
    let done = save::named(around, &key, &unpacked.paths)?;
    save::say_done(&key, Some(&done), options.json, out)?;
    Ok(FINE)
}

/// Write an image as an archive.
pub(super) fn export(around: &Surroundings, options: &ImageExport, out: &mut dyn Write) -> Result<u8> {
    let began = Instant::now();
    let key = key::key(around, &options.key)?;
    let fallbacks = key::fallbacks(around, &options.fallback)?;
    let file = cwd(around)?.join(&options.file);
    let format = Format::of(&file)?;
    let store = around.store()?;
    let far = FarImages::open(around, &store)?;
    let Some(Opened { found, lease, image, .. }) = open(&store, far.as_ref(), &key, &fallbacks)? else {
        match options.json {
            true => print_json(&json!({ "outcome": "miss", "wanted": key.text() }), out)?,
            false => writeln!(out, "miss: nothing under {key}")?,
        }
        return Ok(MISS);
    };
    let record = &image.record;
    let saved: Vec<usize> = targets(around, record, &options.paths)?.iter().map(|target| target.saved).collect();
    let lacking = image.lacking(&store, &image.needed(&saved));
    let lacking: Vec<_> = lacking.iter().map(|&number| image.packs.packs[number].blob).collect();
    let fetched_bytes = lacking.iter().map(|blob| blob.size_bytes).sum();
    if let Some(far) = &far {
        far.fetch(&store, lacking.into_iter()).context("the image could not be fetched")?;
    }
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
    Ok(if matches!(found, Found::Fallback(_)) { FALLBACK } else { FINE })
}

fn tell_what_is_left(exported: &Exported) {
    for (count, what) in [
        (exported.left, "left out: the format has no FIFOs"),
        (exported.copied, "written as files of their own: the format has no hard links"),
        (exported.attributes_left, "without their attributes: the format has none"),
    ] {
        if count > 0 {
            say::tell(&format!("{} {what}", say::count(count, "name", "names")));
        }
    }
}
