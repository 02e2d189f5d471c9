//! `larder image mount` and `unmount`: by whoever may mount for us, else as `restore` does.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use larder_image::{Target, Unset};
use larder_model::ImageKey;
use larder_mount::Rung;
use larder_mount::broker::{Client, Wish};
use larder_store::Store;

use super::super::FINE;
use super::far::FarImages;
use super::find::find;
use super::restore::{Done, answer, image, targets};
use super::supply::name;
use super::{broker, cwd};
use crate::cli::{ImageMount, ImageRestore, ImageUnmount, Via};
use crate::say;
use crate::surroundings::Surroundings;

/// Where a machine's own broker listens.
const SOCKET: &str = "/run/larder/broker.sock";
const NOT_SQUASHFS: &str = "larder's own images are mounted as EROFS, by `lazy` or `mount`: for squashfs, \
                            `larder image export --key KEY FILE.squashfs`, and mount that";
const NOT_FUSE: &str = "larder's own images are not mounted by FUSE, which would decide about each read in a program: \
                        without rights to mount, `--via unpack`, or `larder image export --key KEY FILE.squashfs` and \
                        squashfuse";

/// Mount, or what else works.
pub(super) fn run(around: &Surroundings, options: &ImageMount, out: &mut dyn Write) -> Result<u8> {
    let have = |around: &Surroundings, key: &ImageKey, fallbacks: &[String], how: &ImageRestore| {
        had(around, key, fallbacks, how, options.via)
    };
    answer(around, &options.how, out, have)
}

fn had(
    around: &Surroundings,
    key: &ImageKey,
    fallbacks: &[String],
    how: &ImageRestore,
    via: Option<Via>,
) -> Result<Option<Done>> {
    let ways: &[Rung] = match via {
        None => &[Rung::Lazy, Rung::Mount],
        Some(Via::Lazy) => &[Rung::Lazy],
        Some(Via::Mount) => &[Rung::Mount],
        Some(Via::Unpack) => return image(around, key, fallbacks, how),
        Some(Via::Squashfs) => bail!("{NOT_SQUASHFS}"),
        Some(Via::Fuse) => bail!("{NOT_FUSE}"),
    };
    let mut trouble = None;
    for &rung in ways {
        match mounted(around, key, fallbacks, how, rung) {
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
) -> Result<Option<Done>> {
    let store = around.store()?;
    let far = FarImages::open(around, &store)?;
    let (found, _) = find(&store, far.as_ref(), key, fallbacks)?;
    let Some(record) = found.record() else { return Ok(None) };
    let targets = targets(around, record, &how.paths)?;
    let socket = socket(around, &store)?;
    let mut made: Vec<&Path> = Vec::new();
    for Target { saved, path } in &targets {
        let done = place(path, how.replace).and_then(|()| ask(&socket, &name(rung, *saved, &record.key), path));
        if let Err(error) = done {
            // All of them or none.
            made.iter().for_each(|path| drop(Client::unmount(&socket, path)));
            return Err(error);
        }
        made.push(path);
    }
    let via = if rung == Rung::Lazy { "lazy" } else { "mount" };
    let targets = targets.into_iter().map(|target| target.path).collect();
    Ok(Some(Done { found: found.clone(), targets, fetched_bytes: 0, unset: Unset::default(), via, why_unpacked: None }))
}

/// The machine's broker, else one of our own where we may mount.
fn socket(around: &Surroundings, store: &Store) -> Result<PathBuf> {
    if Path::new(SOCKET).exists() {
        return Ok(SOCKET.into());
    }
    if larder_sys::effective_user() != 0 {
        bail!("only root can mount, and no broker listens at {SOCKET}");
    }
    broker::begin(around, store)
}

/// An empty directory to mount on.
fn place(path: &Path, replace: bool) -> Result<()> {
    if replace && path.is_dir() {
        fs::remove_dir_all(path).with_context(|| format!("{}: cannot be replaced", path.display()))?;
    }
    fs::create_dir_all(path).with_context(|| format!("{}: cannot be made", path.display()))
}

/// Until it is unmounted where everybody sees it; among mounts of a job's own as long as who started us lives.
fn ask(socket: &Path, name: &str, path: &Path) -> Result<()> {
    let kept = Client::mount(socket, name, path, Wish::Kept);
    let Err(first) = kept else { return Ok(()) };
    use std::os::fd::AsFd;
    let parent = larder_sys::open_process(larder_sys::parent_process_id());
    let for_parent = parent.map(|parent| Client::mount(socket, name, path, Wish::Process(parent.as_fd())));
    match for_parent {
        Ok(Ok(_)) => Ok(()),
        _ => Err(first.into()),
    }
}

/// Take mounts away.
pub(super) fn unmount(around: &Surroundings, options: &ImageUnmount, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    let socket = socket(around, &store)?;
    for path in &options.paths {
        let path = cwd(around)?.join(path);
        Client::unmount(&socket, &path).with_context(|| format!("{}: not unmounted", path.display()))?;
        // What we made to mount on; where there is something in it, it is not ours.
        let _ = fs::remove_dir(&path);
        writeln!(out, "unmounted {}", say::one_line(&path.display().to_string()))?;
    }
    Ok(FINE)
}
