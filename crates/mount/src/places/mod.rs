//! What is mounted by us, in a state directory: a directory for each mount, with its record and what is written to it.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | mounting, unmounting, listing, sweeping |
//! | `record.rs` | what is known of a mount, as text |
//! | `lease.rs` | how long it stays, and whether whoever it is for still lives |
//!
//! ```text
//! DIR/ID/record   which image, where, by which rung, for whom
//! DIR/ID/upper    what was written; DIR/ID/work belongs to the kernel
//! ```
//!
//! A record is there before its mount, so whoever is killed in between leaves nothing that `sweep` does not find.

mod lease;
mod record;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_sys::MountNumber;

pub use self::lease::Lease;
use self::record::{Known, Record};
use crate::overlay::{remove_scratch, source};
use crate::{Image, Mount, MountError, Owners, Placed, Rung, Scratch, fuse, layer, overlay};

const RECORD: &str = "record";
/// A record is a few paths.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// Writing one takes no time.
const UNBEGUN_MAX: Duration = Duration::from_secs(60);

/// What is to be mounted, where, and for whom.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// What the image is called, to find it again.
    pub name: &'a str,
    /// Whose the mount is.
    pub user: u32,
    /// Which files.
    pub image: &'a Image,
    /// An empty directory.
    pub target: &'a Path,
    /// The image where it is mounted already, for all jobs of a machine or to be filled while it is read
    /// (`Lazy::mount`); its files are then only noted.
    pub layer: Option<&'a Mount>,
    /// By which rung: never `Unpack`, and `Lazy` and `LazyFuse` only with a layer.
    pub via: Rung,
    /// Whether it can be written to: what is written is gone with the mount.
    pub writable: bool,
    /// Owners to be seen, where they are to be others than the image's.
    pub owners: Option<&'a Owners>,
    /// How long it stays.
    pub lease: Lease,
    /// Mount also on a directory that is not empty.
    pub over: bool,
    /// Among whose mounts, where they are not ours.
    pub inside: Option<Inside<'a>>,
}

/// A place among the mounts of others: `target` is then only its name.
#[derive(Clone, Copy, Debug)]
pub struct Inside<'a> {
    /// Their mount namespace.
    pub namespace: BorrowedFd<'a>,
    /// Its name, as the kernel gives it.
    pub name: &'a str,
    /// The directory, opened by them.
    pub place: BorrowedFd<'a>,
}

/// A mount as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name of its directory.
    pub id: String,
    /// What its image is called.
    pub name: String,
    /// Whose it is.
    pub user: u32,
    /// The kernel's number for it.
    pub number: Option<MountNumber>,
    /// Where.
    pub target: PathBuf,
    /// Its image's first file.
    pub image: PathBuf,
    /// By which rung.
    pub via: Rung,
    /// How long it stays.
    pub lease: Lease,
    /// Whether it is still there, as far as can be seen from here.
    pub mounted: bool,
}

/// A state directory, of one user and one machine.
#[derive(Clone, Debug)]
pub struct Places {
    directory: PathBuf,
}

/// A mount that goes when this is dropped, or stays by its lease after `leave`.
#[derive(Debug)]
pub struct Stay {
    // Taken away in this order.
    placed: Option<Placed>,
    directory: PathBuf,
    lock: File,
}

impl Places {
    /// Of this directory, which is made.
    ///
    /// # Errors
    ///
    /// Where it cannot be made.
    pub fn open(directory: &Path) -> Result<Places, MountError> {
        use std::os::unix::fs::DirBuilderExt;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(MountError::path(directory, "mounts cannot be noted there"))?;
        let directory = fs::canonicalize(directory).map_err(MountError::path(directory, "cannot be found"))?;
        Ok(Places { directory })
    }

    /// Mount an image by one rung. Whatever fails leaves nothing behind.
    ///
    /// # Errors
    ///
    /// Where the target is taken or not empty, or the rung is not possible here.
    pub fn mount(&self, ask: &Ask) -> Result<Stay, MountError> {
        let target = match ask.inside {
            Some(_) => ask.target.to_owned(),
            None => {
                fs::canonicalize(ask.target).map_err(MountError::path(ask.target, "is no directory to mount on"))?
            }
        };
        let place = match ask.inside {
            Some(inside) => inside.place.try_clone_to_owned(),
            None => larder_sys::open_place(&target),
        };
        let place = place.map_err(MountError::path(&target, "is no directory to mount on"))?;
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

    /// Make the mount without a place, for whoever places it themselves; `target` is only noted. What is written there
    /// goes with what is returned beside.
    ///
    /// # Errors
    ///
    /// Where the rung is not possible here.
    pub fn detached(&self, ask: &Ask) -> Result<(Mount, Stay), MountError> {
        let (directory, lock) = self.begin(ask, ask.target)?;
        // From here on whatever fails leaves nothing behind.
        let stay = Stay { placed: None, directory, lock };
        self.make(ask, &stay.directory, &stay.lock).map(|mount| (mount, stay))
    }

    /// Note what is about to be mounted.
    fn begin(&self, ask: &Ask, target: &Path) -> Result<(PathBuf, File), MountError> {
        let directory = self.directory.join(format!("{:016x}", larder_sys::random_u64()));
        let noted = || {
            // Somebody who sweeps removes what is empty.
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
        let noted = noted().map_err(MountError::path(&directory, "a mount cannot be noted there"));
        noted.inspect_err(|_| drop(remove(&directory))).map(|file| (directory.clone(), file))
    }

    /// The mount, nowhere yet; its number is in its record.
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
            let mount = overlay(layer, &scratch)?;
            scratch.keep();
            (mount, Some(source(directory)))
        } else {
            (layer.another()?, None)
        };
        let numbered = Known::of(mount.descriptor(), source).and_then(|known| {
            let mut to = record;
            to.write_all(known.line().as_bytes())
        });
        // One that goes with whoever made it is not looked for again: kernels before 5.8 have no numbers.
        let numbered = if ask.lease == Lease::Held { numbered.or(Ok(())) } else { numbered };
        numbered.map_err(MountError::path(directory, "a mount cannot be noted there"))?;
        Ok(mount)
    }

    fn layer(&self, ask: &Ask) -> Result<Mount, MountError> {
        match (ask.via, ask.image) {
            (rung @ (Rung::Lazy | Rung::LazyFuse), _) => {
                Err(MountError::Unable { rung, why: "nobody fills the image's data".to_owned() })
            }
            (Rung::Mount, Image::Erofs { metadata, data }) => {
                let by_file = layer::erofs(metadata, data.as_deref());
                by_file.or_else(|first| {
                    // What was refused first says more, where there are no devices either.
                    layer::erofs_by_loop_device(metadata, data.as_deref()).map_err(|_| first)
                })
            }
            (Rung::Squashfs, Image::Squashfs(file)) => layer::squashfs(file),
            (Rung::Fuse, image) => {
                fuse::layer(image, self.directory.parent().unwrap_or(&self.directory), fuse::Life::AsMount)
            }
            (rung, image) => {
                let kind = if matches!(image, Image::Squashfs(_)) { "a squashfs image" } else { "an EROFS image" };
                Err(MountError::Unable { rung, why: format!("it is not for {kind}") })
            }
        }
    }

    /// Take away what we mounted at `target`, and all that was written there.
    ///
    /// # Errors
    ///
    /// Where nothing of ours is there, or the kernel refuses.
    pub fn unmount(&self, target: &Path) -> Result<(), MountError> {
        let real = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let nothing = || MountError::NotMounted(target.to_owned());
        let root = larder_sys::open_place(&real).map_err(|_| nothing())?;
        let (directory, record) = self.find(root.as_fd())?.ok_or_else(nothing)?;
        end(&directory, &record)
    }

    /// Leave a mount of ours whose handle is gone, whatever its lease.
    ///
    /// # Errors
    ///
    /// Where there is none of that name, or the kernel refuses.
    pub fn end(&self, id: &str) -> Result<(), MountError> {
        let (directory, record) = self.record(id)?;
        end(&directory, &record)
    }

    /// Take a mount away if nobody needs it any more. Returns where it was noted to be.
    ///
    /// # Errors
    ///
    /// If there is no mount of that name, or the kernel refuses.
    pub(crate) fn end_if_stale(&self, id: &str) -> Result<Option<PathBuf>, MountError> {
        let (directory, record) = self.record(id)?;
        end_if_stale(&directory, record)
    }

    /// All mounts that are noted here. A record that cannot be read is left out; `sweep` reports it.
    ///
    /// # Errors
    ///
    /// Where the state directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, MountError> {
        self.list_those(|_| true)
    }

    /// Those of one user. Mounts of others are not looked for: to look may take as long as their owners like.
    pub(crate) fn list_of(&self, user: u32) -> Result<Vec<Listed>, MountError> {
        self.list_those(|record| record.user == user)
    }

    /// Those that go on when whoever mounted them is gone.
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
                number: record.known.as_ref().map(Known::number),
                target: place.ok().flatten().unwrap_or(record.target),
                image: record.image,
                via: record.via,
                lease: record.lease,
            }
        });
        Ok(all.collect())
    }

    /// The names of all mounts that are noted here, and what is wrong with records that cannot be read.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be read.
    pub(crate) fn ids(&self) -> Result<(Vec<String>, Vec<MountError>), MountError> {
        let (records, errors) = self.records()?;
        Ok((records.iter().map(|(directory, _)| id_of(directory)).collect(), errors))
    }

    /// How many mounts of a user are noted, also those that are being taken away.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be read.
    pub(crate) fn count_of(&self, user: u32) -> Result<usize, MountError> {
        Ok(self.records()?.0.iter().filter(|(_, record)| record.user == user).count())
    }

    /// The name of a user's mount that has this number, wherever it is now.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be read.
    pub(crate) fn id_of_number(&self, user: u32, number: MountNumber) -> Result<Option<String>, MountError> {
        let is_it = |record: &Record| {
            record.user == user && record.is_of_this_boot() && record.known.as_ref().map(Known::number) == Some(number)
        };
        Ok(self.records()?.0.iter().find(|(_, record)| is_it(record)).map(|(directory, _)| id_of(directory)))
    }

    /// Take away what is mounted for those who are gone, and what is left of mounts that are. Returns the targets. An error
    /// with one mount does not keep the others.
    ///
    /// # Errors
    ///
    /// If the state directory cannot be read, or some mounts cannot be taken away: all that is wrong.
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

    /// The same of those alone that went with whoever had them: others may be for processes, or among mounts, that cannot
    /// be seen from here. What cannot be taken away stays.
    pub fn sweep_held(&self) {
        let held = |record: &Record| record.lease == Lease::Held && record.is_of_this_boot();
        for (directory, record) in self.records().unwrap_or_default().0 {
            if held(&record) {
                let _ = end_if_stale(&directory, record);
            }
        }
    }

    /// The mount of ours of which this is the root. It is known by its number, so it does not matter by which path, and
    /// among whose mounts, it was opened.
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

    /// All records, and what is wrong with those that cannot be read.
    fn records(&self) -> Result<Records, MountError> {
        let entries = fs::read_dir(&self.directory).map_err(MountError::path(&self.directory, "cannot be listed"))?;
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        for entry in entries {
            let directory = entry.map_err(MountError::path(&self.directory, "cannot be listed"))?.path();
            match read(&directory.join(RECORD)) {
                // It ended meanwhile, or is just beginning, or whoever began it was killed: nothing else is empty.
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
    /// The name by which it is listed.
    pub fn id(&self) -> String {
        id_of(&self.directory)
    }

    /// Leave it mounted, as its lease says.
    pub fn leave(mut self) {
        self.placed.take().into_iter().for_each(Placed::keep);
        self.directory = PathBuf::new();
    }

    /// Take it away now, and all that was written there.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses.
    pub fn end(mut self) -> Result<(), MountError> {
        self.placed.take().map_or(Ok(()), Placed::take_away)?;
        let directory = std::mem::take(&mut self.directory);
        remove(&directory).map_err(MountError::path(&directory, "what is left of a mount cannot be removed"))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        drop(self.placed.take());
        if !self.directory.as_os_str().is_empty() {
            // What is left is swept.
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

/// The name of a mount whose directory this is.
fn id_of(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Where the mount of a record is now; `None` if it is gone. An error means that nobody can tell.
fn whereabouts(directory: &Path, record: &Record) -> io::Result<Option<PathBuf>> {
    among_its_mounts(directory, record, |_, place, _| Ok(place))
}

/// Take the mount of a record away, wherever it is; false if it was gone.
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

/// Do something with where the mount of a record is, on a thread that sees the same mounts.
fn among_its_mounts<T: Send>(
    directory: &Path,
    record: &Record,
    act: impl FnOnce(&Known, PathBuf, BorrowedFd) -> io::Result<T> + Send,
) -> io::Result<Option<T>> {
    // What has no number in its record was never given a place.
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

/// Whether nobody needs it any more.
fn is_stale(directory: &Path, record: &Record) -> bool {
    if !record.is_of_this_boot() {
        return true;
    }
    // Whoever is mounting it, or holds it, has its record locked.
    let Ok(file) = File::open(directory.join(RECORD)) else { return false };
    file.try_lock().is_ok() && (record.lease.is_over() || matches!(whereabouts(directory, record), Ok(None)))
}

fn end_if_stale(directory: &Path, record: Record) -> Result<Option<PathBuf>, MountError> {
    match is_stale(directory, &record) {
        true => end(directory, &record).map(|()| Some(record.target)),
        false => Ok(None),
    }
}

/// Take a mount away by its record, and what belongs to it. If it may still be there, its record and what was written to it
/// stay.
fn end(directory: &Path, record: &Record) -> Result<(), MountError> {
    unmount(directory, record).map_err(MountError::path(&record.target, "cannot be unmounted"))?;
    remove(directory).map_err(MountError::path(directory, "what is left of a mount cannot be removed"))
}

/// A record that was never whole: nothing was mounted by it, and after a while nobody is writing it any more.
fn remove_unbegun(directory: &Path, text: &str) {
    let path = directory.join(RECORD);
    let age = fs::metadata(&path).and_then(|look| look.modified()).ok().and_then(|time| time.elapsed().ok());
    if Record::is_begun(text) && age.is_some_and(|age| age > UNBEGUN_MAX) {
        let _ = remove(directory);
    }
}

/// Remove all that belongs to a mount which is away, its record last: whoever is killed meanwhile leaves what is swept.
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
