//! `larder image mount` and `unmount`, `list --mounted`: by whoever may mount for us, else as `restore` does.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use larder_image::{Aside, Target, Unset, is_mounted_on};
use larder_model::ImageKey;
use larder_mount::broker::{Client, Wish};
use larder_mount::{MountError, Places, Rung};
use larder_store::Store;
use serde_json::json;

use super::super::{FINE, plain_table, print_json, print_table};
use super::far::FarImages;
use super::find::find;
use super::restore::{Done, answer, image, targets};
use super::supply::{Asked, asked_for, name};
use super::{borne, broker, cwd};
use crate::cli::{ImageList, ImageMount, ImageRestore, ImageUnmount, Via};
use crate::say;
use crate::surroundings::Surroundings;

/// Where a machine's own broker listens.
pub(in crate::words) const SOCKET: &str = "/run/larder/broker.sock";

/// Mount, or what else works.
pub(super) fn run(around: &Surroundings, options: &ImageMount, out: &mut dyn Write) -> Result<u8> {
    let have = |around: &Surroundings, key: &ImageKey, fallbacks: &[String], how: &ImageRestore| {
        had(around, key, fallbacks, how, options)
    };
    answer(around, &options.how, out, have)
}

fn had(
    around: &Surroundings,
    key: &ImageKey,
    fallbacks: &[String],
    how: &ImageRestore,
    options: &ImageMount,
) -> Result<Option<Done>> {
    let via = options.via;
    let ways: &[Rung] = match via {
        // A squashfs file has to be made first, which takes as long as unpacking: only where somebody wants that.
        None => &[Rung::Lazy, Rung::Mount],
        Some(Via::Lazy) => &[Rung::Lazy],
        Some(Via::Mount) => &[Rung::Mount],
        Some(Via::Unpack) => return image(around, key, fallbacks, how),
        Some(Via::Squashfs) => &[Rung::Squashfs],
        Some(Via::Fuse) => &[Rung::Fuse],
    };
    let mut trouble = None;
    for &rung in ways {
        match mounted(around, key, fallbacks, how, rung, options.process) {
            Ok(done) => return Ok(done),
            Err(error) => trouble = Some(error.context(format!("cannot be mounted by `{rung}`"))),
        }
    }
    match (via, trouble) {
        (None, trouble) => {
            let why = trouble.map(|trouble| say::one_line(&format!("{trouble:#}")));
            let done = image(around, key, fallbacks, how)?;
            if let (Some(why), Some(_)) = (&why, &done) {
                say::tell(&format!("unpacked, since it could not be mounted: {why}"));
            }
            Ok(done.map(|done| Done { why_unpacked: why, ..done }))
        }
        (Some(_), trouble) => Err(trouble.unwrap_or_else(|| anyhow!("there is no way"))),
    }
}

fn mounted(
    around: &Surroundings,
    key: &ImageKey,
    fallbacks: &[String],
    how: &ImageRestore,
    rung: Rung,
    process: Option<u32>,
) -> Result<Option<Done>> {
    let store = around.store()?;
    let far = FarImages::open(around, &store)?;
    let (found, _) = find(&store, far.as_ref(), key, fallbacks)?;
    let Some(record) = found.record() else { return Ok(None) };
    let targets = targets(around, record, &how.paths)?;
    let mut made: Vec<(&Path, Option<Aside>)> = Vec::new();
    for Target { saved, path } in &targets {
        match placed(around, &store, &name(rung, *saved, record), path, how.replace, process) {
            Ok(before) => made.push((path, before)),
            Err(error) => {
                // All of them or none.
                for (path, before) in made {
                    let _ = asked(around, &store, |socket| Client::unmount(socket, path));
                    drop(before);
                }
                return Err(error);
            }
        }
    }
    made.into_iter().filter_map(|(_, before)| before).for_each(Aside::replaced);
    let targets = targets.into_iter().map(|target| target.path).collect();
    Ok(Some(Done {
        found: found.clone(),
        targets,
        fetched_bytes: None,
        unset: Unset::default(),
        via: rung.word(),
        why_unpacked: None,
    }))
}

/// The machine's broker, else one of our own where we may mount.
pub(super) fn socket(around: &Surroundings, store: &Store) -> Result<PathBuf> {
    if Path::new(SOCKET).exists() {
        return Ok(SOCKET.into());
    }
    if larder_sys::effective_user() != 0 {
        bail!(
            "only root can mount where others see it, and no broker listens at {SOCKET}: `larder image run` mounts for one \
             command"
        );
    }
    broker::begin(around, store)
}

/// Ask whoever mounts, and again where they ended just then.
fn asked<T>(around: &Surroundings, store: &Store, ask: impl Fn(&Path) -> Result<T, MountError>) -> Result<T> {
    let first = socket(around, store)?;
    match ask(&first) {
        Err(MountError::Path { path, error, .. }) if path == first && is_gone(&error) => {
            Ok(ask(&socket(around, store)?)?)
        }
        done => Ok(done?),
    }
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

/// Mount on a path. Returns what was there before: to go, once all is mounted.
fn placed(
    around: &Surroundings,
    store: &Store,
    name: &str,
    path: &Path,
    replace: bool,
    process: Option<u32>,
) -> Result<Option<Aside>> {
    if replace && path.exists() && is_mounted_on(path)? {
        // It cannot be moved aside.
        let unmounted = asked(around, store, |socket| Client::unmount(socket, path));
        unmounted.with_context(|| format!("{}: cannot be replaced", path.display()))?;
    }
    let before = if replace { Aside::begin(path)? } else { None };
    let is_new = !path.exists();
    fs::create_dir_all(path).with_context(|| format!("{}: cannot be made", path.display()))?;
    let mounted = asked(around, store, |socket| match process {
        Some(pid) => ask_for(socket, name, path, pid),
        None => ask(socket, name, path),
    });
    if mounted.is_err() && is_new {
        let _ = fs::remove_dir(path);
    }
    mounted.map(|()| before)
}

/// Until it is unmounted where everybody sees it; among mounts of a job's own as long as who started us lives.
fn ask(socket: &Path, name: &str, path: &Path) -> Result<(), MountError> {
    let kept = Client::mount(socket, name, path, Wish::Kept);
    let Err(first) = kept else { return Ok(()) };
    ask_for(socket, name, path, larder_sys::parent_process_id()).map_err(|_| first)
}

fn ask_for(socket: &Path, name: &str, path: &Path, pid: u32) -> Result<(), MountError> {
    let process =
        larder_sys::open_process(pid).map_err(MountError::path(path, "there is no process to mount it for"))?;
    Client::mount(socket, name, path, Wish::Process(process.as_fd())).map(drop)
}

/// Take mounts away. Where nothing is mounted, as where an image was unpacked instead, nothing is to be done.
pub(super) fn unmount(around: &Surroundings, options: &ImageUnmount, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    for path in &options.paths {
        let path = cwd(around)?.join(path);
        let done = taken_away(around, &store, &path);
        let done = done.with_context(|| format!("{}: not unmounted", path.display())).map(Some);
        let shown = say::one_line(&path.display().to_string());
        match borne(done, options.strict, None)? {
            Some(true) => writeln!(out, "unmounted {shown}")?,
            Some(false) => writeln!(out, "{shown}: no image is mounted there: what was unpacked stays")?,
            None => {}
        }
    }
    Ok(FINE)
}

/// False where nothing is mounted, or nothing of ours.
fn taken_away(around: &Surroundings, store: &Store, path: &Path) -> Result<bool> {
    if !is_mounted_on(path)? {
        return Ok(false);
    }
    match asked(around, store, |socket| Client::unmount(socket, path)) {
        Err(error) if matches!(error.downcast_ref(), Some(MountError::NotMounted(_))) => Ok(false),
        done => {
            done?;
            // What we made to mount on; where there is something in it, it is not ours.
            let _ = fs::remove_dir(path);
            Ok(true)
        }
    }
}

/// List what is mounted: by the machine's broker for this user, else by this store's.
pub(super) fn list(around: &Surroundings, options: &ImageList, out: &mut dyn Write) -> Result<u8> {
    let mounts = if Path::new(SOCKET).exists() {
        Client::mounts(Path::new(SOCKET))?
    } else {
        let (_, state) = around.store()?.image_broker()?;
        let mounts = Places::open(&state)?.list()?.into_iter().filter(|mount| mount.mounted);
        mounts.map(|mount| (mount.name, mount.target)).collect()
    };
    // Of a name that cannot be read nothing can be said.
    let known = mounts.into_iter().filter_map(|(name, path)| Some((asked_for(&name).ok()?, path)));
    let prefix = options.prefix.as_deref().unwrap_or_default();
    let mounts: Vec<_> = known.filter(|(image, _)| image.key.text().starts_with(prefix)).collect();
    if options.json {
        let object = |(image, path): &(Asked, PathBuf)| {
            let (path, via) = (path.display().to_string(), image.via.to_string());
            json!({ "path": path, "key": image.key.text(), "via": via })
        };
        print_json(&json!({ "mounts": mounts.iter().map(object).collect::<Vec<_>>() }), out)?;
        return Ok(FINE);
    }
    if mounts.is_empty() {
        writeln!(out, "no image is mounted: `larder image mount` does that")?;
        return Ok(FINE);
    }
    let mut table = plain_table();
    table.add_row(["path", "key", "via"]);
    for (image, path) in &mounts {
        table.add_row([&say::one_line(&path.display().to_string()), image.key.text(), &image.via.to_string()]);
    }
    print_table(&table, out)?;
    Ok(FINE)
}
