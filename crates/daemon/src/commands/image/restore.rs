//! `larder image restore`: unpacks an image's paths. The functions are also used by `image mount`
//! and `image run`.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use larder_image::{Existing, FoundImage, ImageError, LocalPacks, Rights, Target, Unset, restore};
use larder_model::{ImageKey, ImageRecord};
use larder_mount::{Backend, MountError};
use larder_store::Store;
use serde_json::json;

use super::super::print_json;
use super::end::{FALLBACK, MISS, grown, or_continue};
use super::find::{Opened, Search, holds_no_repository, is_bound};
use super::key::Wanted;
use super::paths::{local_path, local_path_below, name_of, shown, tidy};
use super::{FINE, key, save};
use crate::cli::{ImageRestore, Policy};
use crate::say;
use crate::surroundings::Surroundings;

/// An image that was restored or mounted.
pub(super) struct Done {
    pub(super) found: FoundImage,
    pub(super) targets: Vec<PathBuf>,
    /// The downloaded bytes of packs. `None` for a mount, because the broker or the server
    /// downloads them.
    pub(super) fetched_bytes: Option<u64>,
    pub(super) unset: Unset,
    /// The number of files that lost set-user-id, set-group-id or capabilities.
    pub(super) rights_dropped: u64,
    /// The method, for example `unpack`.
    pub(super) via: &'static str,
    /// Why no better method was used.
    pub(super) passed_over: Option<String>,
}

impl Done {
    /// Returns what was done by a mount.
    pub(super) fn mounted(found: FoundImage, targets: Vec<PathBuf>, via: Backend, passed_over: Option<String>) -> Done {
        let (fetched_bytes, unset, rights_dropped) = (None, Unset::default(), 0);
        Done { found, targets, fetched_bytes, unset, rights_dropped, via: via.word(), passed_over }
    }
}

/// Restores an image and prints the result. If the key does not exist and there is a command, runs
/// it and saves the paths.
pub(super) fn run(around: &Surroundings, options: &ImageRestore, out: &mut dyn Write) -> Result<u8> {
    answer(around, options, out, image)
}

/// Does the same as [`run`], but with any method to provide the image, given as `have`.
pub(super) fn answer(
    around: &Surroundings,
    options: &ImageRestore,
    out: &mut dyn Write,
    have: impl Fn(&Surroundings, &Wanted, &ImageRestore) -> Result<Option<Done>>,
) -> Result<u8> {
    let began = Instant::now();
    let wanted = key::wanted(around, &options.wanted)?;
    let key = &wanted.key;
    let mut unsaved = None;
    let (done, why_not) = match options.policy {
        Policy::Push => (None, "nothing is restored with --policy push".to_owned()),
        _ => {
            let had = have(around, &wanted, options);
            if had.as_ref().is_err_and(is_about_the_place) {
                unsaved = Some("an image was found, but the files in its way would be saved instead of it");
            }
            match or_continue(had.map(Some), options.strict, None)? {
                Some(done) => (done, format!("nothing under {key}")),
                None => (None, format!("{key} could not be provided")),
            }
        }
    };
    let word = done.as_ref().map_or("miss", |done| done.found.word());
    say_done(key, done.as_ref(), &why_not, began.elapsed().as_millis() as u64, options.json, out)?;
    match (&options.if_missing, word) {
        (_, "exact") => Ok(FINE),
        (Some(command), _) => make(around, key, command, options, true, unsaved),
        (None, "fallback") => Ok(FALLBACK),
        (None, _) => Ok(MISS),
    }
}

/// Returns true if an image was found but cannot be put in place. A missing part of the image is a
/// different error: then the key should be saved again.
fn is_about_the_place(error: &anyhow::Error) -> bool {
    use ImageError::{InTheWay, Io, LeftAside};
    let of_image = |error: &ImageError| matches!(error, InTheWay(_) | Io { .. } | LeftAside { .. });
    let is_of_system =
        || error.downcast_ref::<MountError>().is_some() || error.downcast_ref::<std::io::Error>().is_some();
    error.downcast_ref().is_some_and(of_image) || is_of_system()
}

/// Finds and restores an image. Returns `None` if there is none.
pub(super) fn image(around: &Surroundings, wanted: &Wanted, options: &ImageRestore) -> Result<Option<Done>> {
    let search = Search::new(around, wanted)?;
    let rights = if options.keep_rights { Rights::Kept } else { Rights::Dropped };
    let Some(opened) = search.open(rights)? else { return Ok(None) };
    let targets = targets(around, &opened.image.record, options)?;
    if is_bound(options) {
        holds_no_repository(&opened.image)?;
    }
    restored(around, &search, opened, &targets, options.replace).map(Some)
}

/// Restores these paths of an image.
pub(super) fn restored(
    around: &Surroundings,
    Search { store, remotes, .. }: &Search<'_>,
    Opened { found, lease, image, .. }: Opened,
    targets: &[Target],
    replace: bool,
) -> Result<Done> {
    tidy(targets.iter().map(|target| &*target.path));
    let needed = image.needed(&targets.iter().map(|target| target.saved).collect::<Vec<_>>());
    let lacking = image.lacking(store, &needed);
    let fetched_bytes = lacking.iter().map(|&number| image.packs.packs[number].blob.size_bytes).sum();
    let existing = if replace { Existing::Replace } else { Existing::Refuse };
    let unset = super::bar::during(|progress| match remotes.as_ref().filter(|_| !lacking.is_empty()) {
        Some(remotes) => restore(&image, targets, &remotes.packs(&image, &needed), existing, progress),
        None => restore(&image, targets, &LocalPacks::new(store, &image, needed), existing, progress),
    })
    .context("no path was restored")?;
    store.note_image_use(&image.record.key);
    drop(lease);
    grown(around, store, fetched_bytes)?;
    let targets = targets.iter().map(|target| target.path.clone()).collect();
    let (fetched_bytes, rights_dropped) = (Some(fetched_bytes), image.rights_dropped);
    Ok(Done { found, targets, fetched_bytes, unset, rights_dropped, via: "unpack", passed_over: None })
}

/// Returns which saved path goes where. Paths that were typed may be anywhere; others follow
/// [`local_path_below`].
pub(super) fn targets(around: &Surroundings, record: &ImageRecord, how: &ImageRestore) -> Result<Vec<Target>> {
    let cwd = around.cwd()?;
    let target = |(saved, typed): (usize, Option<&PathBuf>)| {
        let name = &record.saved[saved].path;
        let path = match typed {
            Some(typed) => cwd.join(typed),
            None if how.anywhere => local_path(around, name)?,
            None => local_path_below(cwd, name)?,
        };
        Ok(Target { saved, path })
    };
    wanted(around, record, &how.paths)?.into_iter().map(target).collect()
}

/// Returns the wanted saved paths, each with the path that was typed for it, or all of them if none
/// was typed. A typed path selects the saved path with its name. If the image has a single path,
/// any typed path selects it.
pub(super) fn wanted<'p>(
    around: &Surroundings,
    record: &ImageRecord,
    paths: &'p [PathBuf],
) -> Result<Vec<(usize, Option<&'p PathBuf>)>> {
    if paths.is_empty() {
        return Ok((0..record.saved.len()).map(|saved| (saved, None)).collect());
    }
    let mut wanted: Vec<(usize, Option<&PathBuf>)> = Vec::new();
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
        if wanted.iter().any(|(known, _)| *known == saved) {
            bail!("{} is given twice", path.display());
        }
        wanted.push((saved, Some(path)));
    }
    Ok(wanted)
}

/// Runs the command and saves the paths, unless `unsaved` says why not. Returns the exit code of
/// the command.
pub(super) fn make(
    around: &Surroundings,
    key: &ImageKey,
    command: &str,
    options: &ImageRestore,
    reads: bool,
    unsaved: Option<&str>,
) -> Result<u8> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if options.json {
        // Standard output is reserved for our JSON.
        shell.stdout(std::io::stderr());
    }
    if !reads {
        shell.stdin(std::process::Stdio::null());
    }
    let status = shell.status().context("sh could not be started")?;
    if !status.success() {
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        say::tell(&format!("the command failed with exit code {code}: nothing is saved"));
        return Ok(u8::try_from(code).unwrap_or(1));
    }
    if let Some(why) = unsaved {
        say::tell(&format!("nothing is saved under {key}, because {why}: add --replace"));
    } else if save::why_not(around, options.policy).is_none() {
        let done = or_continue(save::paths(around, key, &options.paths).map(Some), options.strict, None)?;
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
        (done.unset.owners(), "belonged to other users, and belong to you now: only root can change owners"),
        (done.unset.attributes(), "lost some of their extended attributes"),
        (done.rights_dropped, "lost set-user-id, set-group-id or capabilities: --keep-rights keeps them"),
    ] {
        say::tell_count(count, "file", "files", what);
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
            None if done.via == "lazy" => "mounted, contents are fetched on access".to_owned(),
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
    // Flush, because a following command may print as well.
    Ok(out.flush()?)
}

/// Returns the bytes of packs that are in the store, and of all packs of the image; for `show`.
pub(super) fn packs_here(store: &Store, record: &ImageRecord) -> Option<(u64, u64)> {
    let packs = store.packs_of(record).ok()?;
    let size = |here: bool| packs.iter().filter(|pack| !here || store.has_blob(pack)).map(|pack| pack.size_bytes).sum();
    Some((size(true), size(false)))
}
