//! The volumes of this node: mounts them, unmounts them, and removes what a killed plugin left.
//!
//! ```text
//! STATE/lock            held by the plugin that runs
//! STATE/images          the store in which `larder image locate` keeps records
//! STATE/volumes/DIGEST  a volume: its record, and what its pod wrote
//! ```
//!
//! A volume is mounted in the following order, and removed in the reverse order. So whatever a killed
//! plugin left has a directory. The next publish or unpublish of the volume, or the next start of the
//! plugin, removes it:
//!
//! 1. The directory and its record.
//! 2. The place for what the pod writes.
//! 3. A mount at the target, complete when it appears.
//!
//! Unaware of: gRPC, and how an image is found.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use larder_mount::broker::Client;
use larder_mount::{HARMLESS, Mount, MountError, Scratch, overlay};
use larder_sys::{MountAttributes, clone_mount, is_mount_root, open_place, set_mount_attributes};
use parking_lot::Mutex;

use crate::attributes::Wanted;
use crate::locate::Located;
use crate::record::Record;
use crate::writes::{self, Writes};

/// How often it is checked whether the broker has ended.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The most mounts on top of each other at one target. Two need a plugin that was killed.
const STACKED_MAX: usize = 16;

/// The volumes of this node.
pub struct Volumes {
    directory: PathBuf,
    broker: PathBuf,
    targets: PathBuf,
    writes_bytes_max: u64,
    /// For the name of each mounted volume's directory: its record, and the connection on which a
    /// broker fetches its data, or `None` after the broker ended.
    held: Mutex<HashMap<String, (Record, Option<Client>)>>,
    /// The volumes that a call works on, by identifier.
    busy: Mutex<HashSet<String>>,
    _lock: File,
}

/// A volume that no other call works on until this is dropped.
pub(crate) struct Turn {
    volumes: Arc<Volumes>,
    id: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.volumes.busy.lock().remove(&self.id);
    }
}

/// The state of the target of a volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TargetState {
    /// This volume.
    Mounted,
    /// Nothing.
    Nothing,
    /// The volume is mounted at another target.
    Elsewhere,
}

impl Volumes {
    /// Opens the state directory `state`, and removes what an earlier plugin or an earlier boot
    /// left. Volumes are mounted below `targets` only. A pod can write `writes_bytes_max` bytes to
    /// a volume; 0 means no limit. Fails if another plugin uses the directory, or if the limit
    /// cannot be enforced on this machine.
    pub fn open(state: &Path, broker: &Path, targets: &Path, writes_bytes_max: u64) -> Result<Arc<Volumes>> {
        let directory = state.join("volumes");
        // The process that finds images has a directory of its own in `state`.
        let made = |path: &Path, mode| fs::DirBuilder::new().recursive(true).mode(mode).create(path);
        let made = made(state, 0o711).and_then(|()| made(&directory, 0o700));
        made.with_context(|| format!("{}: cannot be made", directory.display()))?;
        let lock = File::create(state.join("lock")).context("the state directory cannot be locked")?;
        ensure!(lock.try_lock().is_ok(), "{}: another larder-csi uses this directory", state.display());
        writes::check(writes_bytes_max)?;
        let volumes = Arc::new(Volumes {
            directory: fs::canonicalize(directory)?,
            broker: broker.to_owned(),
            targets: fs::canonicalize(targets).with_context(|| format!("{}: cannot be found", targets.display()))?,
            writes_bytes_max,
            held: Mutex::default(),
            busy: Mutex::default(),
            _lock: lock,
        });
        volumes.resume()?;
        Ok(volumes)
    }

    /// Returns true if a broker answers.
    pub(crate) fn has_broker(&self) -> bool {
        larder_sys::Channel::connect(&self.broker, CHECK_EVERY).is_ok()
    }

    /// Reserves a volume for one call. Returns `None` if another call works on it.
    pub(crate) fn turn(self: &Arc<Volumes>, id: &str) -> Option<Turn> {
        let is_free = self.busy.lock().insert(id.to_owned());
        is_free.then(|| Turn { volumes: Arc::clone(self), id: id.to_owned() })
    }

    /// Returns the target as a path without symbolic links, if volumes may be mounted there. kubelet
    /// makes the parent of a target.
    pub(crate) fn target(&self, path: &str) -> Result<PathBuf> {
        let path = Path::new(path);
        let name =
            path.file_name().filter(|_| path.is_absolute() && !path.to_string_lossy().contains(char::is_control));
        let (Some(name), Some(parent)) = (name, path.parent()) else {
            bail!("{path:?} is not the path of a directory")
        };
        let parent = fs::canonicalize(parent).with_context(|| format!("{}: cannot be found", parent.display()))?;
        let target = parent.join(name);
        ensure!(target.starts_with(&self.targets), "{} is not below {}", path.display(), self.targets.display());
        Ok(target)
    }

    /// Looks up what is at the target of a volume.
    pub(crate) fn find(&self, id: &str, target: &Path) -> Result<TargetState> {
        let Some(record) = Record::read(&self.of(id))? else { return Ok(TargetState::Nothing) };
        Ok(match is_mounted(&record.target)? {
            true if record.target == target => TargetState::Mounted,
            true => TargetState::Elsewhere,
            false => TargetState::Nothing,
        })
    }

    /// Returns true if this volume is mounted at this path.
    pub(crate) fn is_at(&self, id: &str, path: &str) -> bool {
        let target = self.target(path);
        target.is_ok_and(|target| matches!(self.find(id, &target), Ok(TargetState::Mounted)))
    }

    /// Mounts a volume at a target: the image if there is one, otherwise an empty directory. If
    /// that fails, it leaves nothing behind. Fails if the image cannot be mounted, or the target
    /// cannot.
    pub(crate) fn publish(&self, id: &str, target: &Path, wanted: &Wanted, image: Option<&Located>) -> Result<()> {
        let directory = self.of(id);
        self.forget(&directory)?;
        match fs::create_dir(target) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("{}: cannot be made", target.display()));
            }
            _ => {}
        }
        fs::create_dir(&directory).with_context(|| format!("{}: cannot be made", directory.display()))?;
        let record = Record { id: id.to_owned(), target: target.to_owned(), owner: wanted.owner, name: String::new() };
        let done = match image {
            Some(image) => self.mount_image(&directory, record, image, wanted.read_only),
            None => self.mount_empty(&directory, record, wanted.read_only),
        };
        done.inspect_err(|_| drop(self.forget(&directory)))
    }

    /// Tries the methods of mounting, the best first.
    fn mount_image(&self, directory: &Path, mut record: Record, image: &Located, read_only: bool) -> Result<()> {
        let mut errors = Vec::new();
        for name in &image.names {
            match Client::layer(&self.broker, name, record.owner) {
                Ok((client, layer)) => {
                    record.name.clone_from(name);
                    record.write(directory)?;
                    let writes = Writes::make(directory, self.writes_bytes_max)?;
                    let scratch = Scratch::make(&writes.path())?;
                    let mount = overlay(&layer, &scratch)?;
                    scratch.keep();
                    attach(mount, &record.target, read_only)?;
                    self.held.lock().insert(name_of(directory), (record, Some(client)));
                    return Ok(());
                }
                Err(error) => errors.push(error),
            }
        }
        Err(MountError::all(errors).map_or_else(|| anyhow::anyhow!("no method of mounting is possible"), Into::into))
    }

    fn mount_empty(&self, directory: &Path, record: Record, read_only: bool) -> Result<()> {
        record.write(directory)?;
        let writes = Writes::make(directory, self.writes_bytes_max)?;
        fs::create_dir(writes.path())?;
        // As an `emptyDir`: the user of the pod is not known, and only the pod sees it.
        fs::set_permissions(writes.path(), Permissions::from_mode(0o777))?;
        let mount = clone_mount(open_place(&writes.path())?).context("a directory cannot be mounted")?;
        set_mount_attributes(mount.as_fd(), HARMLESS)?;
        attach(Mount::passed(mount), &record.target, read_only)
    }

    /// Unmounts a volume from a target, and removes it with what the pod wrote. A volume or a
    /// target that does not exist is no error. Fails if the kernel refuses, or if the target has
    /// files that do not belong to a volume.
    pub(crate) fn unpublish(&self, id: &str, target: Option<&Path>) -> Result<()> {
        if let Some(target) = target {
            unmount_all(target)?;
            match fs::remove_dir(target) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("{}: cannot be removed", target.display()));
                }
                _ => {}
            }
        }
        self.forget(&self.of(id))
    }

    /// Makes sure that a broker fetches the data of mounted volumes: if the broker ended, asks the next
    /// one for the same images. Does not return.
    pub(crate) async fn watch(self: Arc<Volumes>) {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let volumes = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || volumes.hold_again()).await;
        }
    }

    fn hold_again(&self) {
        let mut lost = Vec::new();
        for (volume, (record, client)) in self.held.lock().iter_mut() {
            if client.as_ref().is_none_or(Client::is_lost) {
                *client = None;
                lost.push((volume.clone(), record.clone()));
            }
        }
        for (volume, record) in lost {
            match Client::layer(&self.broker, &record.name, record.owner) {
                Ok((client, _)) => {
                    if let Some((_, held)) = self.held.lock().get_mut(&volume) {
                        *held = Some(client);
                    }
                }
                // No broker answers yet. Each second would fill the log.
                Err(MountError::Path { .. }) => return,
                Err(error) => {
                    eprintln!("larder-csi: {}: its data can no longer be fetched: {error}", record.target.display());
                    self.held.lock().remove(&volume);
                }
            }
        }
    }

    /// Removes the volumes that are no longer mounted, and takes over the others.
    fn resume(&self) -> Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let directory = entry?.path();
            let taken = || -> Result<()> {
                match Record::read(&directory)? {
                    Some(record) if is_mounted(&record.target)? => {
                        // If the plugin was killed while it made the volume.
                        writes::let_go(&directory)?;
                        if !record.name.is_empty() {
                            self.held.lock().insert(name_of(&directory), (record, None));
                        }
                        Ok(())
                    }
                    _ => self.forget(&directory),
                }
            };
            // One volume that cannot be removed does not keep pods from starting.
            if let Err(error) = taken() {
                eprintln!("larder-csi: {}: what is left of a volume cannot be removed: {error:#}", directory.display());
            }
        }
        Ok(())
    }

    /// Removes the directory of a volume that is not mounted any more, its record last.
    fn forget(&self, directory: &Path) -> Result<()> {
        let held = self.held.lock().remove(&name_of(directory));
        held.and_then(|(_, client)| client).into_iter().for_each(Client::release);
        if !directory.exists() {
            return Ok(());
        }
        let removed = writes::remove(directory).and_then(|()| Record::remove(directory));
        let removed = removed.and_then(|()| fs::remove_dir(directory));
        removed.with_context(|| format!("{}: cannot be removed", directory.display()))
    }

    fn of(&self, id: &str) -> PathBuf {
        self.directory.join(blake3::hash(id.as_bytes()).to_hex().as_str())
    }
}

fn name_of(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn attach(mount: Mount, target: &Path, read_only: bool) -> Result<()> {
    set_mount_attributes(mount.descriptor(), MountAttributes { read_only, ..HARMLESS })?;
    mount.place(target)?.keep();
    Ok(())
}

/// Returns true if something is mounted on a path.
fn is_mounted(path: &Path) -> Result<bool> {
    match open_place(path) {
        Ok(place) => Ok(is_mount_root(place)?),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        // A FUSE server that was killed. It is mounted.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(true),
        Err(error) => Err(error).with_context(|| format!("{}: cannot be examined", path.display())),
    }
}

fn unmount_all(target: &Path) -> Result<()> {
    for _ in 0..STACKED_MAX {
        if !is_mounted(target)? {
            return Ok(());
        }
        let away = open_place(target).and_then(larder_sys::unmount);
        away.with_context(|| format!("{}: cannot be unmounted", target.display()))?;
    }
    bail!("{}: something is mounted there again and again", target.display())
}
