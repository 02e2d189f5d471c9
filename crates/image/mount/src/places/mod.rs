//! The mounts that larder made, in a state directory: each mount has a directory with its record
//! and its scratch space.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | mounts, unmounts, lists, and sweeps after jobs that died |
//! | `ask.rs` | a request to mount an image |
//! | `record.rs` | the record of a mount, as text |
//! | `lease.rs` | how long a mount stays, and whether that time is over |
//!
//! ```text
//! DIR/ID/record   the image, the target, the backend, the lease
//! DIR/ID/upper    what was written
//! DIR/ID/work     the kernel's work directory of the overlay
//! ```
//!
//! The record is written before the mount is made. So a process that is killed in between leaves
//! nothing that `sweep` does not find.
//!
//! Unaware of: how an image is found, and what a job does with it.

mod ask;
mod lease;
mod record;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_sys::MountNumber;

pub use self::ask::{Ask, Inside};
pub use self::lease::Lease;
use self::record::{MountIdentity, Record};
use crate::overlay::{overlay_by_program, remove_scratch, source};
use crate::{Backend, Image, Life, Mount, MountError, Placed, Scratch, fuse, layer, overlay};

const RECORD: &str = "record";
/// The limit for a record, in bytes. It holds a few paths.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// An incomplete record of this age is removed, because writing one takes far less time.
const UNBEGUN_MAX: Duration = Duration::from_secs(60);

/// A recorded mount, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its identifier: the name of its directory.
    pub id: String,
    /// The name of the image.
    pub name: String,
    /// The user that the mount belongs to.
    pub user: u32,
    /// The kernel's number for the mount.
    pub number: Option<MountNumber>,
    /// The path where it is mounted.
    pub target: PathBuf,
    /// The first file of the image.
    pub image: PathBuf,
    /// The backend that it was mounted by.
    pub via: Backend,
    /// How long it stays.
    pub lease: Lease,
    /// True if the mount exists. It is also true if that cannot be determined.
    pub mounted: bool,
}

/// A state directory, of one user on one machine.
#[derive(Clone, Debug)]
pub struct Places {
    directory: PathBuf,
}

/// A mount that is removed when this is dropped. After `leave`, it stays as its lease says.
#[derive(Debug)]
pub struct Stay {
    // `drop` unmounts, then it removes the directory. The lock is released last.
    placed: Option<Placed>,
    directory: PathBuf,
    lock: File,
}

impl Places {
    /// Opens a state directory, which is created if it does not exist. Fails if it cannot be
    /// created.
    pub fn open(directory: &Path) -> Result<Places, MountError> {
        use std::os::unix::fs::DirBuilderExt;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(MountError::path(directory, "the state directory cannot be made"))?;
        let directory = fs::canonicalize(directory).map_err(MountError::path(directory, "cannot be found"))?;
        Ok(Places { directory })
    }

    /// Mounts an image by one backend. If this fails, it leaves nothing behind. Fails if an image
    /// is mounted on the target, if the target is not empty, or if the backend does not work here.
    pub fn mount(&self, ask: &Ask) -> Result<Stay, MountError> {
        let target = match ask.inside {
            Some(_) => ask.target.to_owned(),
            None => {
                fs::canonicalize(ask.target).map_err(MountError::path(ask.target, "is not a directory to mount on"))?
            }
        };
        let place = match ask.inside {
            Some(inside) => inside.place.try_clone_to_owned(),
            None => larder_sys::open_place(&target),
        };
        let place = place.map_err(MountError::path(&target, "is not a directory to mount on"))?;
        if self.find(place.as_fd())?.is_some() {
            return Err(MountError::Taken(target));
        }
        if !ask.over && !is_empty(place.as_fd()).map_err(MountError::path(&target, "cannot be listed"))? {
            return Err(MountError::NotEmpty(target));
        }
        let (mount, mut stay) = self.detached(&Ask { target: &target, ..ask.clone() })?;
        stay.placed = Some(match ask.inside {
            None => mount.place_on(place.as_fd(), &target)?,
            Some(inside) => {
                let namespace = inside.namespace.try_clone_to_owned();
                let namespace = namespace.map_err(MountError::path(&target, "cannot be mounted on"))?;
                mount.place_inside(namespace, place.as_fd(), &target)?
            }
        });
        Ok(stay)
    }

    /// Makes a detached mount, which the caller attaches itself. `target` is only recorded. What is
    /// written to the mount is deleted when the returned `Stay` is dropped. Fails if the backend
    /// does not work here.
    pub fn detached(&self, ask: &Ask) -> Result<(Mount, Stay), MountError> {
        let (directory, lock) = self.begin(ask, ask.target)?;
        // From here on, dropping `stay` removes everything if a step fails.
        let stay = Stay { placed: None, directory, lock };
        self.make(ask, &stay.directory, &stay.lock).map(|mount| (mount, stay))
    }

    /// Writes the record of a mount that is about to be made.
    fn begin(&self, ask: &Ask, target: &Path) -> Result<(PathBuf, File), MountError> {
        let directory = self.directory.join(format!("{:016x}", larder_sys::random_u64()));
        let noted = || {
            // A sweep in another process removes empty directories, so this one may vanish before
            // it holds a record. Then it is created again.
            let file = loop {
                fs::create_dir(&directory)?;
                match File::options().create_new(true).read(true).write(true).open(directory.join(RECORD)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    done => break done?,
                }
            };
            file.lock()?;
            let record = Record::new(ask, target)?;
            (&file).write_all(record.encode().as_bytes())?;
            Ok(file)
        };
        let noted = noted().map_err(MountError::path(&directory, "the record of a mount cannot be written"));
        noted.inspect_err(|_| drop(remove(&directory))).map(|file| (directory.clone(), file))
    }

    /// Makes the detached mount, and appends its number to its record.
    fn make(&self, ask: &Ask, directory: &Path, record: &File) -> Result<Mount, MountError> {
        let (made, owned);
        let mut layer = match ask.layer {
            Some(layer) => layer,
            None => {
                made = self.layer(ask)?;
                &made
            }
        };
        if let Some(owners) = ask.owners.filter(|owners| !owners.is_plain()) {
            owned = layer::owned_by(layer, owners)?;
            layer = &owned;
        }
        let (mount, source) = if ask.writable {
            let scratch = Scratch::make(directory)?;
            let made = match (overlay(layer, &scratch), ask.life) {
                // The source of this mount is the program's name.
                (Err(refused), Life::AsThread) => (overlay_by_program(layer, &scratch, refused)?, None),
                (made, _) => (made?, Some(source(directory))),
            };
            scratch.keep();
            made
        } else {
            (layer.another()?, None)
        };
        let numbered = MountIdentity::of(mount.descriptor(), source).and_then(|known| {
            let mut to = record;
            to.write_all(known.line().as_bytes())
        });
        // A held mount is not looked up by its number later, so an error is ignored. Kernels before
        // 5.8 have no mount numbers.
        let numbered = if ask.lease == Lease::Held { numbered.or(Ok(())) } else { numbered };
        numbered.map_err(MountError::path(directory, "the record of a mount cannot be written"))?;
        Ok(mount)
    }

    fn layer(&self, ask: &Ask) -> Result<Mount, MountError> {
        match (ask.via, ask.image) {
            (backend @ (Backend::Lazy | Backend::LazyFuse), _) => {
                Err(MountError::Unable { backend, why: "no process fills the image's data".to_owned() })
            }
            (Backend::Mount, Image::Erofs { metadata, data }) => {
                let by_file = layer::erofs(metadata, data.as_deref());
                by_file.or_else(|first| {
                    // If there is no loop device either, the first refusal says more.
                    layer::erofs_by_loop_device(metadata, data.as_deref()).map_err(|_| first)
                })
            }
            (Backend::Squashfs, Image::Squashfs(file)) => layer::squashfs(file),
            (Backend::Fuse, image) => fuse::layer(image, self.directory.parent().unwrap_or(&self.directory), ask.life),
            (backend, image) => {
                let kind = if matches!(image, Image::Squashfs(_)) { "a squashfs image" } else { "an EROFS image" };
                Err(MountError::Unable { backend, why: format!("it is not for {kind}") })
            }
        }
    }

    /// Unmounts what larder mounted at `target`, and removes what was written there. Fails if no
    /// mount of larder is there, or if the kernel refuses.
    pub fn unmount(&self, target: &Path) -> Result<(), MountError> {
        let real = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let nothing = || MountError::NotMounted(target.to_owned());
        let root = larder_sys::open_place(&real).map_err(|_| nothing())?;
        let (directory, record) = self.find(root.as_fd())?.ok_or_else(nothing)?;
        end(&directory, &record)
    }

    /// Ends a mount whose handle is gone, whatever its lease is. Fails if there is no mount of this
    /// identifier, or if the kernel refuses.
    pub fn end(&self, id: &str) -> Result<(), MountError> {
        let (directory, record) = self.record(id)?;
        end(&directory, &record)
    }

    /// Ends a mount if it is no longer needed: see `is_stale`. Returns the recorded target if so.
    /// Fails if there is no mount of this identifier, or if the kernel refuses.
    pub(crate) fn end_if_stale(&self, id: &str) -> Result<Option<PathBuf>, MountError> {
        let (directory, record) = self.record(id)?;
        end_if_stale(&directory, record)
    }

    /// Lists all recorded mounts. A record that cannot be read is left out; `sweep` reports it.
    /// Fails if the state directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, MountError> {
        self.list_those(|_| true)
    }

    /// Lists the mounts of one user. Mounts of other users are not looked up, because their owners
    /// could make that take arbitrarily long.
    pub(crate) fn list_of(&self, user: u32) -> Result<Vec<Listed>, MountError> {
        self.list_those(|record| record.user == user)
    }

    /// Lists the mounts of this boot that are kept, or whose process lives. Held mounts are left
    /// out.
    pub(crate) fn list_lasting(&self) -> Result<Vec<Listed>, MountError> {
        self.list_those(|record| record.is_of_this_boot() && !record.lease.is_over())
    }

    fn list_those(&self, is_wanted: impl Fn(&Record) -> bool) -> Result<Vec<Listed>, MountError> {
        let all = self.records()?.0.into_iter().filter(|(_, record)| is_wanted(record)).map(|(directory, record)| {
            let place = whereabouts(&directory, &record);
            Listed {
                id: id_of(&directory),
                mounted: !matches!(place, Ok(None)),
                name: record.name,
                user: record.user,
                number: record.known.as_ref().map(MountIdentity::number),
                target: place.ok().flatten().unwrap_or(record.target),
                image: record.image,
                via: record.via,
                lease: record.lease,
            }
        });
        Ok(all.collect())
    }

    /// Returns the identifiers of all recorded mounts, and an error for each record that cannot be
    /// read. Fails if the state directory cannot be read.
    pub(crate) fn ids(&self) -> Result<(Vec<String>, Vec<MountError>), MountError> {
        let (records, errors) = self.records()?;
        Ok((records.iter().map(|(directory, _)| id_of(directory)).collect(), errors))
    }

    /// Counts the recorded mounts of a user, including those that are being removed. Fails if the
    /// state directory cannot be read.
    pub(crate) fn count_of(&self, user: u32) -> Result<usize, MountError> {
        Ok(self.records()?.0.iter().filter(|(_, record)| record.user == user).count())
    }

    /// Returns the identifier of a user's mount with this number, wherever it is mounted now. Fails
    /// if the state directory cannot be read.
    pub(crate) fn id_of_number(&self, user: u32, number: MountNumber) -> Result<Option<String>, MountError> {
        let is_it = |record: &Record| {
            record.user == user
                && record.is_of_this_boot()
                && record.known.as_ref().map(MountIdentity::number) == Some(number)
        };
        Ok(self.records()?.0.iter().find(|(_, record)| is_it(record)).map(|(directory, _)| id_of(directory)))
    }

    /// Ends all mounts whose lease is over, and removes what is left of mounts that are gone.
    /// Returns the recorded targets. An error with one mount does not stop the others. Fails if the
    /// state directory cannot be read, or if some mounts cannot be removed. The error lists all of
    /// them.
    pub fn sweep(&self) -> Result<Vec<PathBuf>, MountError> {
        let (records, mut errors) = self.records()?;
        let mut swept = Vec::new();
        for (directory, record) in records {
            match end_if_stale(&directory, record) {
                Ok(target) => swept.extend(target),
                Err(error) => errors.push(error),
            }
        }
        MountError::all(errors).map_or(Ok(swept), Err)
    }

    /// Ends only the held mounts whose process is gone. Other leases are left alone, because their
    /// processes or mount namespaces may not be visible from here. Errors are ignored.
    pub fn sweep_held(&self) {
        let held = |record: &Record| record.lease == Lease::Held && record.is_of_this_boot();
        for (directory, record) in self.records().unwrap_or_default().0 {
            if held(&record) {
                let _ = end_if_stale(&directory, record);
            }
        }
    }

    /// Finds the recorded mount that has this root directory. The mount's number identifies it, so
    /// the path and the namespace through which it was opened do not matter.
    fn find(&self, root: BorrowedFd) -> Result<Option<(PathBuf, Record)>, MountError> {
        if !larder_sys::is_mount_root(root).unwrap_or(true) {
            return Ok(None);
        }
        let Ok(own) = File::open("/proc/self") else { return Ok(None) };
        let is_it = |record: &Record| {
            let known = record.known.as_ref();
            record.is_of_this_boot() && known.is_some_and(|known| known.is(root, own.as_fd()).unwrap_or(false))
        };
        Ok(self.records()?.0.into_iter().find(|(_, record)| is_it(record)))
    }

    fn record(&self, id: &str) -> Result<(PathBuf, Record), MountError> {
        let directory = self.directory.join(id);
        let text = match read(&directory.join(RECORD)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(MountError::NotMounted(PathBuf::from(id))),
            read => read.map_err(MountError::path(&directory, "its record cannot be read")),
        }?;
        let record = Record::decode(&text).ok_or_else(|| MountError::NotMounted(PathBuf::from(id)))?;
        Ok((directory, record))
    }

    /// Reads all records, and returns an error for each one that cannot be read.
    fn records(&self) -> Result<Records, MountError> {
        let entries = fs::read_dir(&self.directory).map_err(MountError::path(&self.directory, "cannot be listed"))?;
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for entry in entries {
            let directory = entry.map_err(MountError::path(&self.directory, "cannot be listed"))?.path();
            match read(&directory.join(RECORD)) {
                // The mount ended in the meantime, or its record is about to be written, or the
                // process that began it was killed. No other directory is empty.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    let _ = fs::remove_dir(&directory);
                }
                Err(error) => errors.push(MountError::path(&directory, "its record cannot be read")(error)),
                Ok(text) => match Record::decode(&text) {
                    Some(record) => records.push((directory, record)),
                    None => remove_unbegun(&directory, &text),
                },
            }
        }
        Ok((records, errors))
    }
}

type Records = (Vec<(PathBuf, Record)>, Vec<MountError>);

impl Stay {
    /// The identifier by which the mount is listed.
    pub fn id(&self) -> String {
        id_of(&self.directory)
    }

    /// Leaves the mount in place, for as long as its lease says.
    pub fn leave(mut self) {
        self.placed.take().into_iter().for_each(Placed::keep);
        self.directory = PathBuf::new();
    }

    /// Unmounts now, and removes what was written there. Fails if the kernel refuses.
    pub fn end(mut self) -> Result<(), MountError> {
        self.placed.take().map_or(Ok(()), Placed::take_away)?;
        let directory = std::mem::take(&mut self.directory);
        remove(&directory).map_err(MountError::path(&directory, "the state of an ended mount cannot be removed"))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        drop(self.placed.take());
        if !self.directory.as_os_str().is_empty() {
            // If this fails, a later sweep removes the rest.
            let _ = remove(&self.directory);
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    File::open(path)?.take(RECORD_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn is_empty(place: BorrowedFd) -> io::Result<bool> {
    let directory = larder_sys::open_directory(place)?;
    let mut names = rustix::fs::Dir::read_from(&directory)?.map_while(Result::ok);
    Ok(!names.any(|name| !matches!(name.file_name().to_bytes(), b"." | b"..")))
}

/// Returns the identifier of the mount with this directory.
fn id_of(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns where a recorded mount is now, or `None` if it is gone. It returns an error if that
/// cannot be determined.
fn whereabouts(directory: &Path, record: &Record) -> io::Result<Option<PathBuf>> {
    among_its_mounts(directory, record, |_, place, _| Ok(place))
}

/// Unmounts a recorded mount, wherever it is. Returns false if it was gone already.
fn unmount(directory: &Path, record: &Record) -> io::Result<bool> {
    let away = among_its_mounts(directory, record, |known, place, own| {
        let root = larder_sys::open_place(&place)?;
        match known.is(root.as_fd(), own)? {
            true => larder_sys::unmount(root),
            false => Err(io::Error::new(io::ErrorKind::ResourceBusy, "another mount hides it")),
        }
    })?;
    Ok(away.is_some())
}

/// Calls `act` with the current path of a recorded mount, on a thread in the mount's namespace.
/// Returns `None` if the mount is gone.
fn among_its_mounts<T: Send>(
    directory: &Path,
    record: &Record,
    act: impl FnOnce(&MountIdentity, PathBuf, BorrowedFd) -> io::Result<T> + Send,
) -> io::Result<Option<T>> {
    // A mount without a number in its record was never attached to a directory.
    let Some(known) = record.known.as_ref().filter(|_| record.is_of_this_boot()) else { return Ok(None) };
    let (own, id) = (File::open("/proc/self")?, directory.file_name().unwrap_or_default());
    let act = || match known.place(own.as_fd(), id)? {
        Some(place) => act(known, place, own.as_fd()).map(Some),
        None => Ok(None),
    };
    match record.is_of_our_mounts() {
        true => act(),
        false => match record.open_namespace()? {
            Some(namespace) => larder_sys::in_mount_namespace(namespace.as_fd(), act),
            None => Ok(None),
        },
    }
}

/// Returns true if the mount is no longer needed: it is of an earlier boot, or it is not held, and
/// its lease is over or it is gone.
fn is_stale(directory: &Path, record: &Record) -> bool {
    if !record.is_of_this_boot() {
        return true;
    }
    // A process that makes or holds the mount has locked its record.
    let Ok(file) = File::open(directory.join(RECORD)) else { return false };
    file.try_lock().is_ok() && (record.lease.is_over() || matches!(whereabouts(directory, record), Ok(None)))
}

fn end_if_stale(directory: &Path, record: Record) -> Result<Option<PathBuf>, MountError> {
    match is_stale(directory, &record) {
        true => end(directory, &record).map(|()| Some(record.target)),
        false => Ok(None),
    }
}

/// Unmounts a recorded mount and removes its directory. If the mount may still exist, its record
/// and what was written to it are kept.
fn end(directory: &Path, record: &Record) -> Result<(), MountError> {
    unmount(directory, record).map_err(MountError::path(&record.target, "cannot be unmounted"))?;
    remove(directory).map_err(MountError::path(directory, "the state of an ended mount cannot be removed"))
}

/// Removes an incomplete record. Nothing was mounted by it. After `UNBEGUN_MAX`, no process is
/// writing it any more.
fn remove_unbegun(directory: &Path, text: &str) {
    let path = directory.join(RECORD);
    let age = fs::metadata(&path).and_then(|look| look.modified()).ok().and_then(|time| time.elapsed().ok());
    if Record::is_begun(text) && age.is_some_and(|age| age > UNBEGUN_MAX) {
        let _ = remove(directory);
    }
}

/// Removes the directory of a mount that is gone, and its record last. If this process is killed in
/// between, a later sweep finds the record and goes on.
fn remove(directory: &Path) -> io::Result<()> {
    remove_scratch(directory)?;
    match fs::remove_file(directory.join(RECORD)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
