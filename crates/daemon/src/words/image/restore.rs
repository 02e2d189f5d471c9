//! `larder image restore`.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use larder_image::{Existing, Found, LocalPacks, Target, Unset, restore};
use larder_model::{ImageKey, ImageRecord};
use larder_store::Store;
use serde_json::json;

use super::super::print_json;
use super::far::FarImages;
use super::find::{Opened, open};
use super::{FALLBACK, FINE, MISS, borne, cwd, grown, key, name_of, place_of, save, shown};
use crate::cli::{ImageRestore, Policy};
use crate::say;
use crate::surroundings::Surroundings;

/// What was restored or mounted.
pub(super) struct Done {
    pub(super) found: Found,
    pub(super) targets: Vec<PathBuf>,
    /// Bytes of packs that were fetched; none where it was mounted, since whoever mounts fetches them.
    pub(super) fetched_bytes: Option<u64>,
    pub(super) unset: Unset,
    /// By which way.
    pub(super) via: &'static str,
    /// Why it was had by no better way, where one was asked for.
    pub(super) passed_over: Option<String>,
}

/// Restore, and say what; where the key was not there and a command is given, run that and save what it made.
pub(super) fn run(around: &Surroundings, options: &ImageRestore, out: &mut dyn Write) -> Result<u8> {
    answer(around, options, out, image)
}

/// The same by any way to have an image.
pub(super) fn answer(
    around: &Surroundings,
    options: &ImageRestore,
    out: &mut dyn Write,
    have: impl Fn(&Surroundings, &ImageKey, &[String], &ImageRestore) -> Result<Option<Done>>,
) -> Result<u8> {
    let began = Instant::now();
    let (key, fallbacks) = key::wanted(around, &options.wanted)?;
    let (done, why_not) = match options.policy {
        Policy::Push => (None, "nothing is restored with --policy push".to_owned()),
        _ => match borne(have(around, &key, &fallbacks, options).map(Some), options.strict, None)? {
            Some(done) => (done, format!("nothing under {key}")),
            None => (None, format!("{key} could not be had")),
        },
    };
    let word = done.as_ref().map_or("miss", |done| done.found.word());
    say_done(&key, done.as_ref(), &why_not, began.elapsed().as_millis() as u64, options.json, out)?;
    match (&options.if_missing, word) {
        (_, "exact") => Ok(FINE),
        (Some(command), _) => make(around, &key, command, options, true),
        (None, "fallback") => Ok(FALLBACK),
        (None, _) => Ok(MISS),
    }
}

/// Find and restore; none where there is nothing.
pub(super) fn image(
    around: &Surroundings,
    key: &ImageKey,
    fallbacks: &[String],
    options: &ImageRestore,
) -> Result<Option<Done>> {
    let store = around.store()?;
    let far = FarImages::open(around, &store)?;
    let Some(opened) = open(&store, far.as_ref(), key, fallbacks)? else { return Ok(None) };
    let targets = targets(around, &opened.image.record, &options.paths)?;
    restored(around, &store, far.as_ref(), opened, &targets, options.replace).map(Some)
}

/// Put these paths of an image in place.
pub(super) fn restored(
    around: &Surroundings,
    store: &Store,
    far: Option<&FarImages>,
    Opened { found, lease, image, .. }: Opened,
    targets: &[Target],
    replace: bool,
) -> Result<Done> {
    let needed = image.needed(&targets.iter().map(|target| target.saved).collect::<Vec<_>>());
    let lacking = image.lacking(store, &needed);
    let fetched_bytes = lacking.iter().map(|&number| image.packs.packs[number].blob.size_bytes).sum();
    let existing = if replace { Existing::Replace } else { Existing::Refuse };
    let unset = super::bar::during(|progress| match far.filter(|_| !lacking.is_empty()) {
        Some(far) => restore(&image, targets, &far.packs(&image, &needed), existing, progress),
        None => restore(&image, targets, &LocalPacks::new(store, &image, needed), existing, progress),
    })
    .context("nothing was restored")?;
    store.note_image_use(&image.record.key);
    drop(lease);
    grown(around, store, fetched_bytes)?;
    let targets = targets.iter().map(|target| target.path.clone()).collect();
    let fetched_bytes = Some(fetched_bytes);
    Ok(Done { found, targets, fetched_bytes, unset, via: "unpack", passed_over: None })
}

/// Which saved path goes where: by name, or the only one anywhere.
pub(super) fn targets(around: &Surroundings, record: &ImageRecord, paths: &[PathBuf]) -> Result<Vec<Target>> {
    let cwd = cwd(around)?;
    if paths.is_empty() {
        let all = record.saved.iter().enumerate();
        return all.map(|(saved, path)| Ok(Target { saved, path: place_of(around, &path.path)? })).collect();
    }
    let mut targets: Vec<Target> = Vec::new();
    for path in paths {
        let name = name_of(around, path);
        let saved = match record.saved.iter().position(|saved| saved.path == name) {
            Some(saved) => saved,
            None if record.saved.len() == 1 && paths.len() == 1 => 0,
            None => {
                let held: Vec<String> = record.saved.iter().map(|saved| shown(&saved.path)).collect();
                bail!("{} is not in the image {}, which holds {}", path.display(), record.key, held.join(", "));
            }
        };
        if targets.iter().any(|known| known.saved == saved) {
            bail!("{} is named twice", path.display());
        }
        targets.push(Target { saved, path: cwd.join(path) });
    }
    Ok(targets)
}

/// Run the command, and save what it made. Its exit code is ours.
pub(super) fn make(
    around: &Surroundings,
    key: &ImageKey,
    command: &str,
    options: &ImageRestore,
    reads: bool,
) -> Result<u8> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if options.json {
        // What is printed is ours alone.
        shell.stdout(std::io::stderr());
    }
    if !reads {
        shell.stdin(std::process::Stdio::null());
    }
    let status = shell.status().context("sh could not be started")?;
    if !status.success() {
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        say::tell(&format!("the command ended with {code}: nothing is saved"));
        return Ok(u8::try_from(code).unwrap_or(1));
    }
    if save::why_not(around, options.policy).is_none() {
        let done = borne(save::paths(around, key, &options.paths).map(Some), options.strict, None)?;
        let mut text = Vec::new();
        save::say_done(key, done.as_ref(), false, &mut text)?;
        if !text.is_empty() {
            say::tell(&say::one_line(&String::from_utf8_lossy(&text)));
        }
    }
    Ok(FINE)
}

fn say_done(
    key: &ImageKey,
    done: Option<&Done>,
    why_not: &str,
    ms: u64,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    let Some((done, record)) = done.and_then(|done| Some((done, done.found.record()?))) else {
        if as_json {
            return print_json(&json!({ "outcome": "miss", "wanted": key.text(), "ms": ms }), out);
        }
        writeln!(out, "miss: {why_not}")?;
        return Ok(out.flush()?);
    };
    for (count, what) in [
        (done.unset.owners(), "belonged to others, and are yours now: only root can give files away"),
        (done.unset.attributes(), "could not get all of their attributes"),
    ] {
        if count > 0 {
            say::tell(&format!("{} {what}", say::count(count, "file", "files")));
        }
    }
    if as_json {
        let mut object = json!({
            "outcome": done.found.word(),
            "wanted": key.text(),
            "key": record.key.text(),
            "via": done.via,
            "passed_over": done.passed_over,
            "paths": done.targets.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
            "files": record.files,
            "size_bytes": record.size_bytes,
            "ms": ms,
        });
        if let Some(bytes) = done.fetched_bytes {
            object["fetched_bytes"] = json!(bytes);
        }
        print_json(&object, out)?;
    } else {
        let (files, size) = (say::count(record.files, "file", "files"), say::bytes(record.size_bytes));
        let fetched = match done.fetched_bytes {
            None if done.via == "lazy" => "mounted, fetched when touched".to_owned(),
            None => "mounted".to_owned(),
            Some(0) => "from the store".to_owned(),
            Some(bytes) => format!("{} fetched", say::bytes(bytes)),
        };
        writeln!(
            out,
            "{}: {}: {files}, {size}, {fetched}, {}",
            done.found.word(),
            record.key,
            say::duration_us(ms * 1000)
        )?;
    }
    // A command that follows may print as well.
    Ok(out.flush()?)
}

/// For `show`: whether all packs of an image are here.
pub(super) fn packs_here(store: &Store, record: &ImageRecord) -> Option<(u64, u64)> {
    let packs = store.packs_of(record).ok()?;
    let size = |here: bool| packs.iter().filter(|pack| !here || store.has_blob(pack)).map(|pack| pack.size_bytes).sum();
    Some((size(true), size(false)))
}
