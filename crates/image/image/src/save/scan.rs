//! Reading the names below a path, in several threads, with their metadata.
//!
//! Unaware of: contents.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard};

use larder_sys::{Dir, FileType, Stat};

use crate::tree::{ATTRIBUTES_MAX, Attribute, VALUE_BYTES_MAX, is_kept};
use crate::{ImageError, Progress, threads};

/// The most directories: more than real trees have.
const DIRECTORIES_MAX: usize = 1 << 24;
/// Labels that the system sets by itself. They are dropped without a message.
const UNMENTIONED: &[&str] = &["security.selinux", "security.SMACK64", "security.ima", "security.evm"];
const TYPE_FIFO: u8 = 1;
const TYPE_SOCKET: u8 = 12;

/// The result of a scan.
pub(super) struct Scanned {
    /// The path itself.
    pub(super) top: ScannedEntry,
    /// The entries of each directory, sorted by name. The first is the top.
    pub(super) directories: Vec<Vec<ScannedEntry>>,
    /// Sockets, which an image cannot hold.
    pub(super) left: Vec<PathBuf>,
    /// How many files and directories have attributes that are not kept.
    pub(super) attributes_left: u64,
}

/// A name and its metadata.
pub(super) struct ScannedEntry {
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
    pub(super) attributes: Vec<Attribute>,
    pub(super) kind: EntryKind,
}

/// The kind of an entry.
pub(super) enum EntryKind {
    File,
    /// Its number in [`Scanned::directories`].
    Directory(usize),
    Link(Vec<u8>),
    Fifo,
}

struct State {
    scanned: Scanned,
    /// The directories that are still to be read.
    open: Vec<(usize, PathBuf)>,
    /// How many directories are being read.
    busy: usize,
}

/// Reads everything at and below `path`.
pub(super) fn scan(path: &Path, progress: &Progress) -> Result<Scanned, ImageError> {
    let stat = larder_sys::lstat(path.as_os_str().as_bytes()).map_err(ImageError::io("stat it", path))?;
    let mut left = 0;
    let Some(top) = entry(path, Vec::new(), stat, &mut left)? else {
        return Err(ImageError::Unsuitable { path: path.to_owned(), what: "a socket" });
    };
    let is_directory = matches!(top.kind, EntryKind::Directory(_));
    let scanned = Scanned { top, directories: vec![Vec::new()], left: Vec::new(), attributes_left: left };
    let open = if is_directory { vec![(0, path.to_owned())] } else { Vec::new() };
    let (state, wake) = (Mutex::new(State { scanned, open, busy: 0 }), Condvar::new());
    threads::together(|_, ended| {
        let done = worker(&state, &wake, ended, progress);
        ended.fetch_or(done.is_err(), Relaxed);
        wake.notify_all();
        done
    })?;
    Ok(state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).scanned)
}

/// Reads directories until none are left. Ends early if `ended` is set.
fn worker(
    state: &Mutex<State>,
    wake: &Condvar,
    ended: &std::sync::atomic::AtomicBool,
    progress: &Progress,
) -> Result<(), ImageError> {
    let locked = || -> MutexGuard<'_, State> { state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) };
    let mut own = locked();
    loop {
        if ended.load(Relaxed) {
            return Ok(());
        }
        let Some((number, path)) = own.open.pop() else {
            if own.busy == 0 {
                return Ok(());
            }
            own = wake.wait(own).unwrap_or_else(|poisoned| poisoned.into_inner());
            continue;
        };
        own.busy += 1;
        drop(own);
        let read = directory(&path);
        own = locked();
        own.busy -= 1;
        let (mut entries, left, attributes_left) = read?;
        progress.add(entries.len() as u64);
        for entry in &mut entries {
            if let EntryKind::Directory(number) = &mut entry.kind {
                *number = own.scanned.directories.len();
                own.open.push((*number, path.join(OsStr::from_bytes(&entry.name))));
                own.scanned.directories.push(Vec::new());
            }
        }
        if own.scanned.directories.len() > DIRECTORIES_MAX {
            return Err(ImageError::TooLarge("16 million directories"));
        }
        own.scanned.directories[number] = entries;
        own.scanned.left.extend(left);
        own.scanned.attributes_left += attributes_left;
        wake.notify_all();
    }
}

type Read = (Vec<ScannedEntry>, Vec<PathBuf>, u64);

fn directory(path: &Path) -> Result<Read, ImageError> {
    let dir = Dir::open(path.as_os_str().as_bytes(), false).map_err(ImageError::io("open the directory", path))?;
    let mut names = dir.names().map_err(ImageError::io("list the directory", path))?;
    names.sort_unstable();
    let (mut entries, mut left, mut attributes_left) = (Vec::with_capacity(names.len()), Vec::new(), 0);
    for (name, _) in names {
        let whole = path.join(OsStr::from_bytes(&name));
        let stat = dir.lstat(&name).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => ImageError::Changed(whole.clone()),
            _ => ImageError::io("stat it", &whole)(error),
        })?;
        match entry(&whole, name, stat, &mut attributes_left)? {
            Some(entry) => entries.push(entry),
            None => left.push(whole),
        }
    }
    Ok((entries, left, attributes_left))
}

/// Returns an entry, or `None` for a socket.
fn entry(path: &Path, name: Vec<u8>, stat: Stat, left: &mut u64) -> Result<Option<ScannedEntry>, ImageError> {
    let kind = match stat.kind {
        FileType::File => EntryKind::File,
        FileType::Directory => EntryKind::Directory(0),
        FileType::Link => {
            let target = rustix::fs::readlink(path, Vec::new()).map_err(ImageError::io("read the link", path))?;
            EntryKind::Link(target.into_bytes())
        }
        FileType::Other(TYPE_FIFO) => EntryKind::Fifo,
        FileType::Other(TYPE_SOCKET) => return Ok(None),
        FileType::Other(_) => return Err(ImageError::Unsuitable { path: path.to_owned(), what: "a device" }),
    };
    let attributes = attributes(path, left)?;
    Ok(Some(ScannedEntry { name, stat, attributes, kind }))
}

/// Returns the extended attributes that are kept.
fn attributes(path: &Path, left: &mut u64) -> Result<Vec<Attribute>, ImageError> {
    // Most files have none, so a buffer on the stack is enough.
    let mut names = [0u8; 1024];
    let listed = match rustix::fs::llistxattr(path, &mut names) {
        Ok(0) | Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::PERM) => return Ok(Vec::new()),
        Ok(count) => names[..count].to_vec(),
        Err(rustix::io::Errno::RANGE) => {
            let mut names = vec![0; 1 << 16];
            let count =
                rustix::fs::llistxattr(path, &mut names).map_err(ImageError::io("list its attributes", path))?;
            names.truncate(count);
            names
        }
        Err(error) => return Err(ImageError::io("list its attributes", path)(error)),
    };
    let mut found = Vec::new();
    let mut value = vec![0; 1 << 16];
    let mut others = false;
    for name in listed.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let begins = |with: &&str| name.starts_with(with.as_bytes());
        if !is_kept(name) {
            others |= !UNMENTIONED.iter().any(begins);
            continue;
        }
        let got = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value);
        let count = got.map_err(ImageError::io("read its attributes", path))?;
        if count as u64 > VALUE_BYTES_MAX {
            return Err(ImageError::Unsuitable {
                path: path.to_owned(),
                what: "something with an attribute of 64 KiB",
            });
        }
        found.push((name.to_vec(), value[..count].to_vec()));
    }
    if found.len() as u64 > ATTRIBUTES_MAX {
        let what = "something with more than 256 attributes";
        return Err(ImageError::Unsuitable { path: path.to_owned(), what });
    }
    *left += u64::from(others);
    found.sort();
    Ok(found)
}
