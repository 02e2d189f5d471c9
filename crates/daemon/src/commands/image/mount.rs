//! `larder image mount`, `unmount` and `list --mounted`. Mounts through a broker; if that is not
//! possible, unpacks as `restore` does.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use larder_image::{Aside, Rights, Step, Target, is_directory, is_mounted_on};
use larder_model::{Blob, ImageRecord};
use larder_mount::broker::{Client, Wish};
use larder_mount::{Backend, Listed, MountError, Places};
use larder_store::Store;
use serde_json::json;

use super::super::{FINE, plain_table, print_json, print_table};
use super::broker_socket::{of_machine, socket};
use super::end::or_continue;
use super::find::Search;
use super::key::Wanted;
use super::paths::tidy;
use super::restore::{Done, answer, image, restored, targets};
use super::supply::{Asked, asked_for, name};
use super::{attach, bar};
use crate::cli::{ImageList, ImageMount, ImageRestore, ImageUnmount};
use crate::say;
use crate::surroundings::Surroundings;

/// The size in bytes of the tree of a 16 GiB file. A larger tree is taken for that of a directory.
/// Even most directories with a thousand files have a smaller tree.
const FILE_TREE_BYTES_MAX: u64 = 64 << 10;

/// Mounts the image, or unpacks it if it cannot be mounted.
pub(super) fn run(around: &Surroundings, options: &ImageMount, out: &mut dyn Write) -> Result<u8> {
    answer(around, &options.how, out, |around, wanted, how| had(around, wanted, how, options))
}

fn had(around: &Surroundings, wanted: &Wanted, how: &ImageRestore, options: &ImageMount) -> Result<Option<Done>> {
    if options.via == Some(Backend::Unpack) {
        return image(around, wanted, how);
    }
    let search = Search::new(around, wanted)?;
    let (found, _) = search.find()?;
    let Some(record) = found.record() else { return Ok(None) };
    // If a pack is nowhere any more, no method can provide the image. Unpacking would only find that out
    // after it had downloaded the others.
    search.has_all(record)?;
    let ways = options.via.is_none().then(|| search.ways(record));
    let mut trouble: Vec<anyhow::Error> = Vec::new();
    for backend in options.via.into_iter().chain(ways.into_iter().flatten()) {
        match mounted(around, &search, record, how, backend, options.process) {
            Ok(targets) => {
                return Ok(Some(passed_over(Done::mounted(found.clone(), targets, backend, None), &trouble)));
            }
            Err(error) => trouble.push(error.context(format!("cannot be mounted via `{backend}`"))),
        }
    }
    if options.via.is_some() {
        return Err(trouble.pop().unwrap_or_else(|| anyhow!("no mount method is possible")));
    }
    Ok(image(around, wanted, how)?.map(|done| passed_over(done, &trouble)))
}

/// Prints why no better method was used.
fn passed_over(done: Done, trouble: &[anyhow::Error]) -> Done {
    if trouble.is_empty() {
        return done;
    }
    let why = say::one_line(&trouble.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("; "));
    match done.via {
        "unpack" => say::tell(&format!("unpacked, because it could not be mounted: {why}")),
        via => say::tell(&format!("mounted via `{via}`, because: {why}")),
    }
    Done { passed_over: Some(why), ..done }
}

/// Mounts the image of `record`, all its paths or none. Returns the paths that were mounted.
fn mounted(
    around: &Surroundings,
    search: &Search<'_>,
    record: &ImageRecord,
    how: &ImageRestore,
    backend: Backend,
    process: Option<u32>,
) -> Result<Vec<PathBuf>> {
    let store = &search.store;
    let targets = targets(around, record, how)?;
    search.holds_no_repository(how)?;
    tidy(targets.iter().map(|target| &*target.path));
    // For each mounted path: what was there before, and whether it did not exist.
    let mut made: Vec<(&Path, Option<Aside>, bool)> = Vec::new();
    let all = || -> Result<()> {
        let mut files = Vec::new();
        for target in &targets {
            let Target { saved, path } = target;
            if is_file(search, &record.saved[*saved].tree)? {
                files.push(target.clone());
                continue;
            }
            let is_new = !path.exists();
            let before = placed(around, store, &name(backend, *saved, record), path, how.replace, process)?;
            made.push((path, before, is_new));
        }
        if files.is_empty() {
            return Ok(());
        }
        let rights = if how.keep_rights { Rights::Kept } else { Rights::Dropped };
        let opened = search.open(rights)?.context("the image was removed in the meantime")?;
        restored(around, search, opened, &files, how.replace).map(drop)
    };
    if let Err(error) = { all }() {
        // Either all paths are mounted, or none.
        for (path, before, is_new) in made {
            let unmounted = asked(around, store, |socket| Client::unmount(socket, path));
            if unmounted.is_ok() && is_new {
                let _ = fs::remove_dir(path);
            }
            drop(before);
        }
        return Err(error);
    }
    made.into_iter().filter_map(|(_, before, _)| before).for_each(Aside::replaced);
    Ok(targets.into_iter().map(|target| target.path).collect())
}

/// Returns true if a saved path is a file, on which nothing can be mounted. A large tree is not
/// read, because the tree of a single file is short.
pub(super) fn is_file(Search { store, remotes, .. }: &Search<'_>, tree: &Blob) -> Result<bool> {
    if tree.size_bytes > FILE_TREE_BYTES_MAX {
        return Ok(false);
    }
    if let Some(remotes) = remotes {
        remotes.fetch(store, [*tree].into_iter())?;
    }
    Ok(!is_directory(store, tree)?)
}

/// Sends a request to the broker, and once more if the broker exited just then.
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

/// Mounts on a path. Returns the old contents, to be removed after all paths are mounted.
fn placed(
    around: &Surroundings,
    store: &Store,
    name: &str,
    path: &Path,
    replace: bool,
    process: Option<u32>,
) -> Result<Option<Aside>> {
    if replace && path.exists() && is_mounted_on(path)? {
        // A mount cannot be moved aside.
        let unmounted = asked(around, store, |socket| Client::unmount(socket, path));
        unmounted.with_context(|| format!("{}: cannot be replaced", path.display()))?;
    }
    let before = if replace { Aside::begin(path)? } else { None };
    let is_new = !path.exists();
    fs::create_dir_all(path).with_context(|| format!("{}: cannot be created", path.display()))?;
    let mounted = bar::during(|progress| {
        progress.begin(Step::Wait, 0);
        asked(around, store, |socket| match process {
            Some(pid) => ask_for(socket, name, path, pid),
            None => ask(socket, name, path),
        })
    });
    if mounted.is_err() && is_new {
        let _ = fs::remove_dir(path);
    }
    mounted.map(|()| before)
}

/// Asks the broker to mount until `unmount`. If it refuses, as it does in a job's own mount
/// namespace, asks it to mount as long as the parent process lives.
fn ask(socket: &Path, name: &str, path: &Path) -> Result<(), MountError> {
    let kept = Client::mount(socket, name, path, Wish::Kept);
    let Err(first) = kept else { return Ok(()) };
    ask_for(socket, name, path, larder_sys::parent_process_id()).map_err(|_| first)
}

fn ask_for(socket: &Path, name: &str, path: &Path, pid: u32) -> Result<(), MountError> {
    let process =
        larder_sys::open_process(pid).map_err(MountError::path(path, "the process to mount it for does not exist"))?;
    Client::mount(socket, name, path, Wish::Process(process.as_fd())).map(drop)
}

/// Unmounts paths. A path without a mount, for example because its image was unpacked instead, is
/// no error.
pub(super) fn unmount(around: &Surroundings, options: &ImageUnmount, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    for path in &options.paths {
        let path = around.cwd()?.join(path);
        let done = taken_away(around, &store, &path);
        let done = done.with_context(|| format!("{}: not unmounted", path.display())).map(Some);
        let shown = say::one_line(&path.display().to_string());
        match or_continue(done, options.strict, None)? {
            Some(true) => writeln!(out, "unmounted {shown}")?,
            Some(false) => writeln!(out, "{shown}: no image is mounted there; unpacked files stay")?,
            None => {}
        }
    }
    Ok(FINE)
}

/// Unmounts one path. Returns false if nothing is mounted there, or a mount that is not larder's.
fn taken_away(around: &Surroundings, store: &Store, path: &Path) -> Result<bool> {
    if !is_mounted_on(path)? {
        return Ok(false);
    }
    if attach::detach(store, path)? {
        let _ = fs::remove_dir(path);
        return Ok(true);
    }
    match asked(around, store, |socket| Client::unmount(socket, path)) {
        Err(error) if matches!(error.downcast_ref(), Some(MountError::NotMounted(_))) => Ok(false),
        done => {
            done?;
            // The directory was created as a mount point if it is empty now. If it is not, the
            // removal fails.
            let _ = fs::remove_dir(path);
            Ok(true)
        }
    }
}

/// Lists the mounts of this user, from the machine's broker if there is one, else from this store.
pub(super) fn list(around: &Surroundings, options: &ImageList, out: &mut dyn Write) -> Result<u8> {
    let mounts = if let Some(socket) = of_machine() {
        Client::mounts(socket)?
    } else {
        let (_, state) = around.store()?.image_broker()?;
        let mounts = Places::open(&state)?.list()?.into_iter().filter(|mount| mount.mounted);
        mounts.map(|mount| (mount.name, mount.target)).collect()
    };
    // Skips mounts whose name cannot be parsed.
    let known = mounts.into_iter().filter_map(|(name, path)| Some((asked_for(&name).ok()?, path)));
    let prefix = options.prefix.as_deref().unwrap_or_default();
    let mounts: Vec<_> = known.filter(|(image, _)| image.key.text().starts_with(prefix)).collect();
    let attached = if prefix.is_empty() { attach::attached(&around.store()?)? } else { Vec::new() };
    if options.json {
        let object = |(image, path): &(Asked, PathBuf)| {
            let (path, via) = (path.display().to_string(), image.via.to_string());
            json!({ "path": path, "key": image.key.text(), "via": via })
        };
        let of_file = |(mount, file): &(Listed, String)| json!({ "path": mount.target.display().to_string(), "file": file, "via": mount.via.to_string() });
        let all: Vec<_> = mounts.iter().map(object).chain(attached.iter().map(of_file)).collect();
        print_json(&json!({ "mounts": all }), out)?;
        return Ok(FINE);
    }
    if mounts.is_empty() && attached.is_empty() {
        writeln!(out, "no image is mounted; `larder image mount` mounts one")?;
        return Ok(FINE);
    }
    let mut table = plain_table();
    table.add_row(["path", "key", "via"]);
    for (image, path) in &mounts {
        table.add_row([&say::one_line(&path.display().to_string()), image.key.text(), &image.via.to_string()]);
    }
    for (mount, file) in &attached {
        table.add_row(
            [mount.target.display().to_string(), file.clone(), mount.via.to_string()].map(|t| say::one_line(&t)),
        );
    }
    print_table(&table, out)?;
    Ok(FINE)
}
