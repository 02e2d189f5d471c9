//! `larder image attach`: mounts an existing squashfs file, with a writable overlay. It uses FUSE,
//! because the kernel's squashfs trusts the contents of the file. Root can choose the kernel's
//! squashfs.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use larder_mount::{Ask, Backend, Image, Lease, Life, Listed, MountError, Places, by_fuse, squashfs};
use larder_store::Store;

use super::super::FINE;
use super::broker_socket::may_mount_for_others;
use super::run::{ended_so, own_mounts, supervised};
use crate::cli::{ImageAttach, ViaFile};
use crate::say;
use crate::surroundings::Surroundings;

/// The prefix of the name of such a mount; the path of the file follows.
const NAME: &str = "attached ";
/// The first bytes of a squashfs file: the kernel's `SQUASHFS_MAGIC`.
const MAGIC: &[u8; 4] = b"hsqs";

/// Mounts the file until it is unmounted, or for one command.
pub(super) fn run(around: &Surroundings, options: &ImageAttach, out: &mut dyn Write) -> Result<u8> {
    let cwd = around.cwd()?;
    let file = squashfs_file(&cwd.join(&options.file))?;
    let target = cwd.join(&options.path);
    let store = around.store()?;
    let (_, state) = store.image_broker()?;
    let places = Places::open(&state)?;
    let (name, image) = (format!("{NAME}{}", file.display()), Image::Squashfs(file));
    let ask = Ask {
        name: &name,
        user: larder_sys::effective_user(),
        image: &image,
        target: &target,
        layer: None,
        via: if options.via == ViaFile::Fuse { Backend::Fuse } else { Backend::Squashfs },
        writable: true,
        owners: None,
        lease: Lease::Kept,
        life: Life::AsMount,
        over: false,
        inside: None,
    };
    if !options.command.is_empty() {
        return for_command(around, &places, &state, &ask, &options.command);
    }
    may_mount_for_others()?;
    let is_new = !target.exists();
    fs::create_dir_all(&target).with_context(|| format!("{}: cannot be created", target.display()))?;
    match places.mount(&ask) {
        Ok(stay) => stay.leave(),
        Err(error) => {
            if is_new {
                let _ = fs::remove_dir(&target);
            }
            return Err(error.into());
        }
    }
    let (file, path) = (options.file.display().to_string(), options.path.display().to_string());
    writeln!(out, "mounted {} on {}", say::one_line(&file), say::one_line(&path))?;
    Ok(FINE)
}

/// Returns the absolute path of the file, if it is a squashfs file.
fn squashfs_file(path: &Path) -> Result<PathBuf> {
    let mut first = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.with_context(|| format!("{}: cannot be read", path.display()))?;
    ensure!(
        first == *MAGIC,
        "{}: is not a squashfs file; for other archives use `larder image import`",
        path.display()
    );
    fs::canonicalize(path).with_context(|| format!("{}: cannot be found", path.display()))
}

fn for_command(
    around: &Surroundings,
    places: &Places,
    state: &Path,
    ask: &Ask,
    command: &[std::ffi::OsString],
) -> Result<u8> {
    own_mounts().context("no mount namespace can be created here")?;
    places.sweep_held();
    fs::create_dir_all(ask.target).with_context(|| format!("{}: cannot be created", ask.target.display()))?;
    let near = state.parent().unwrap_or(state);
    let layer = match (ask.via, ask.image) {
        (Backend::Squashfs, Image::Squashfs(file)) => squashfs(file),
        _ => by_fuse(ask.image, near, Life::AsThread),
    }?;
    let (mount, stay) =
        places.detached(&Ask { layer: Some(&layer), lease: Lease::Held, life: Life::AsThread, ..ask.clone() })?;
    let placed = mount.place(ask.target)?;
    let end = supervised(around, command);
    drop(placed);
    drop(stay);
    end.map(ended_so)
}

/// Returns the attached mounts of this user's store, each with its file.
pub(super) fn attached(store: &Store) -> Result<Vec<(Listed, String)>> {
    let (_, state) = store.image_broker()?;
    let mounts = Places::open(&state)?.list()?.into_iter().filter(|mount| mount.mounted);
    Ok(mounts.filter_map(|mount| mount.name.strip_prefix(NAME).map(str::to_owned).map(|file| (mount, file))).collect())
}

/// Unmounts the attached file at a path. Returns false if none is mounted there.
pub(super) fn detach(store: &Store, path: &Path) -> Result<bool> {
    let Ok(place) = fs::canonicalize(path) else { return Ok(false) };
    let Some((mount, _)) = attached(store)?.into_iter().find(|(mount, _)| mount.target == place) else {
        return Ok(false);
    };
    let (_, state) = store.image_broker()?;
    match Places::open(&state)?.end(&mount.id) {
        Ok(()) => Ok(true),
        Err(MountError::NotMounted(_)) => Ok(false),
        Err(error) => bail!("{error}"),
    }
}
