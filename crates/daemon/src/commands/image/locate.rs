//! `larder image locate`: finds an image for a program that is not larder, such as the CSI plugin.
//! Prints the names by which a broker mounts it, the best method first.

use std::io::Write;

use anyhow::{Result, bail};
use serde_json::json;

use super::super::{FINE, print_json};
use super::end::{FALLBACK, MISS};
use super::find::Search;
use super::key;
use super::mount::is_file;
use super::restore::wanted;
use super::supply::name;
use crate::cli::ImageLocate;
use crate::surroundings::Surroundings;

/// Finds the image and prints one JSON object. The exit codes are those of `restore`.
pub(super) fn run(around: &Surroundings, options: &ImageLocate, out: &mut dyn Write) -> Result<u8> {
    let asked = key::wanted(around, &options.wanted)?;
    let search = Search::new(around, &asked)?;
    let (found, _) = search.find()?;
    let Some(record) = found.record() else {
        print_json(&json!({ "outcome": "miss", "names": [] }), out)?;
        return Ok(MISS);
    };
    search.has_all(record)?;
    let paths = options.path.as_slice();
    let saved = match wanted(around, record, paths)?[..] {
        [(saved, _)] => saved,
        _ => bail!("the image {} has {} saved paths: say which one is wanted", record.key, record.saved.len()),
    };
    if is_file(&search, &record.saved[saved].tree)? {
        bail!("the image {} holds a file there, and only directories can be mounted", record.key);
    }
    let names: Vec<String> = search.ways(record).map(|via| name(via, saved, record)).collect();
    print_json(&json!({ "outcome": found.word(), "key": record.key.text(), "names": names }), out)?;
    Ok(if found.word() == "exact" { FINE } else { FALLBACK })
}
