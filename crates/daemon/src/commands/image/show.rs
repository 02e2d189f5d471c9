//! `larder image list`, `show` and `drop`: lists images, prints one, and removes keys.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use larder_model::{ImageKey, ImageRecord};
use larder_store::StoredImage;
use serde_json::{Value, json};

use super::super::{plain_table, print_json, print_table};
use super::end::MISS;
use super::find::Search;
use super::key::Wanted;
use super::paths::shown;
use super::restore::packs_here;
use super::{FINE, key, mount};
use crate::cli::{ImageDrop, ImageList, ImageShow};
use crate::say;
use crate::surroundings::Surroundings;

/// Lists the images in the store.
pub(super) fn list(around: &Surroundings, options: &ImageList, out: &mut dyn Write) -> Result<u8> {
    if options.mounted {
        return mount::list(around, options, out);
    }
    let mut images = around.store()?.images()?;
    if let Some(prefix) = &options.prefix {
        images.retain(|image| image.record.key.text().starts_with(prefix));
    }
    if options.json {
        let object = |image: &StoredImage| {
            let mut object = object(&image.record);
            let used = image.used.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
            object["used_ms"] = json!(used);
            object
        };
        print_json(&json!({ "images": images.iter().map(object).collect::<Vec<_>>() }), out)?;
        return Ok(FINE);
    }
    if images.is_empty() {
        match &options.prefix {
            Some(prefix) => writeln!(out, "there is no image whose key starts with {}", say::one_line(prefix))?,
            None => writeln!(out, "there are no images: `larder help image` says how to save one")?,
        }
        return Ok(FINE);
    }
    let mut table = plain_table();
    table.add_row(["key", "saved", "used", "files", "size", "paths"]);
    for StoredImage { record, used, .. } in &images {
        let paths: Vec<String> = record.saved.iter().map(|saved| shown(&saved.path)).collect();
        let saved = UNIX_EPOCH + Duration::from_millis(record.created_ms);
        let (files, size) = (record.files.to_string(), say::bytes(record.size_bytes));
        table.add_row([record.key.text(), &ago(saved), &ago(*used), &files, &size, &paths.join(" ")]);
    }
    print_table(&table, out)?;
    Ok(FINE)
}

/// Prints what an image holds.
pub(super) fn show(around: &Surroundings, options: &ImageShow, out: &mut dyn Write) -> Result<u8> {
    let wanted = Wanted { key: key::key(around, &options.key)?, fallbacks: Vec::new() };
    let search = Search::new(around, &wanted)?;
    let (found, is_far) = search.find()?;
    let Some(record) = found.record() else {
        if options.json {
            print_json(&json!({ "outcome": "miss", "wanted": wanted.key.text() }), out)?;
        } else {
            writeln!(out, "miss: nothing under {}", wanted.key)?;
        }
        return Ok(MISS);
    };
    let packs = packs_here(&search.store, record).filter(|_| !is_far);
    if options.json {
        let mut object = object(record);
        object["outcome"] = json!("exact");
        object["packed_bytes"] = json!(packs.map(|packs| packs.1));
        object["packed_bytes_here"] = json!(packs.map_or(0, |packs| packs.0));
        print_json(&object, out)?;
        return Ok(FINE);
    }
    let mut table = plain_table();
    table.add_row(["key", record.key.text()]);
    table.add_row(["saved", &ago(UNIX_EPOCH + Duration::from_millis(record.created_ms))]);
    table.add_row(["files", &format!("{}, {}", record.files, say::bytes(record.size_bytes))]);
    let here = match packs {
        None => "on a remote only".to_owned(),
        Some((here, all)) if here == all => format!("{} packed, all of it in the store", say::bytes(all)),
        Some((here, all)) => format!("{} packed, {} of it in the store", say::bytes(all), say::bytes(here)),
    };
    table.add_row(["bytes", &here]);
    for saved in &record.saved {
        table.add_row(["path", &shown(&saved.path)]);
    }
    print_table(&table, out)?;
    Ok(FINE)
}

/// Drops keys.
pub(super) fn forget(around: &Surroundings, options: &ImageDrop, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    let mut code = FINE;
    for template in &options.keys {
        let key: ImageKey = key::key(around, template)?;
        if store.drop_image(&key)? {
            writeln!(out, "dropped {key}; the next eviction removes blobs that only it needed")?;
        } else {
            writeln!(out, "miss: nothing under {key}")?;
            code = MISS;
        }
    }
    Ok(code)
}

fn object(record: &ImageRecord) -> Value {
    json!({
        "key": record.key.text(),
        "created_ms": record.created_ms,
        "files": record.files,
        "size_bytes": record.size_bytes,
        "traced": record.trace.is_some(),
        "paths": record.saved.iter().map(|saved| shown(&saved.path)).collect::<Vec<_>>(),
    })
}

/// Formats how long ago a time was.
fn ago(time: SystemTime) -> String {
    let seconds = time.elapsed().map_or(0, |age| age.as_secs());
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}
