//! The directory of the store: opening it safely, the path of each file in it, and writing files by
//! renaming.
//!
//! Unaware of: what the files contain.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_model::{Digest, FORMAT_VERSION};
use larder_sys::{FileType, Opening, Stat};

use crate::StoreError;

/// A store that exists or can be made, and whose directory is safe to use.
pub struct Store {
    top: PathBuf,
    /// The versioned directory `DIR/vN`, without a trailing slash.
    base: PathBuf,
    /// The cached answer of [`Store::is_only_read`].
    pub(crate) only_read: OnceLock<bool>,
}

/// A kind of files that are named by a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Manifests.
    Manifests,
    /// Manifests of records that were handed over by processes that cannot write the store. Only
    /// those processes read them.
    HandedOver,
    /// Blobs.
    Blobs,
    /// Judgements: whether the preloaded library sees all of a program.
    Judgements,
    /// Judgements that were handed over by processes that cannot write the store. Only those
    /// processes read them.
    JudgementsHandedOver,
    /// Records of images, named by the digest of their key.
    Images,
}

impl Contents {
    fn directory(self) -> &'static str {
        match self {
            Contents::Manifests => "manifests",
            Contents::HandedOver => "handed-over",
            Contents::Blobs => "blobs",
            Contents::Judgements => "judged",
            Contents::JudgementsHandedOver => "judged-handed-over",
            Contents::Images => "images/records",
        }
    }
}

impl Store {
    /// Opens the store in `dir` for reading. If the directory does not exist yet, the store is
    /// empty. Returns an error if it belongs to another user or other users can write to it.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        let base = dir.join(format!("v{FORMAT_VERSION}"));
        for path in [dir, &base] {
            match lstat_if_there(path)? {
                Some(stat) if stat.kind == FileType::Link => refuse_unsafe(path, &behind_link(path, &stat)?)?,
                Some(stat) => refuse_unsafe(path, &stat)?,
                None => break,
            }
        }
        Ok(Store { top: dir.to_owned(), base, only_read: OnceLock::new() })
    }

    /// Returns the store of format `version` in the same directory, if it exists and is as safe.
    pub(crate) fn of_format(&self, version: u8) -> Option<Store> {
        let base = self.top.join(format!("v{version}"));
        let stat = larder_sys::lstat(base.as_os_str().as_bytes()).ok()?;
        refuse_unsafe(&base, &stat).ok()?;
        Some(Store { top: self.top.clone(), base, only_read: OnceLock::new() })
    }

    /// Returns an error if a directory inside the store is a symbolic link, belongs to another user
    /// or can be written by other users. That is possible if others could once write to the store.
    /// `open` does not check this.
    pub fn inspect(&self) -> Result<(), StoreError> {
        for name in [
            "manifests",
            "handed-over",
            "blobs",
            "judged",
            "judged-handed-over",
            "stamps",
            "locks",
            "notes",
            "tmp",
            "uploads",
            "images",
        ] {
            let path = self.file(name);
            if let Some(stat) = lstat_if_there(&path)? {
                refuse_unsafe(&path, &stat)?;
            }
        }
        Ok(())
    }

    /// Returns the directory that the user configured.
    pub fn directory(&self) -> &Path {
        &self.top
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// Returns `BASE/KIND/ab/cdef…`.
    pub(crate) fn path_of(&self, kind: Contents, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let mut path = Vec::with_capacity(self.base.as_os_str().len() + 80);
        path.extend_from_slice(self.base.as_os_str().as_bytes());
        for part in [kind.directory(), &hex[..2], &hex[2..]] {
            path.push(b'/');
            path.extend_from_slice(part.as_bytes());
        }
        PathBuf::from(std::ffi::OsString::from_vec(path))
    }

    pub(crate) fn kind_dir(&self, kind: Contents) -> PathBuf {
        self.base.join(kind.directory())
    }

    pub(crate) fn file(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.base.join(name.as_ref())
    }

    /// Creates a new file under a temporary name.
    pub(crate) fn temporary(&self) -> Result<Temporary, StoreError> {
        let path = self.temporary_path();
        let file = self.open_or_make(&path, OpenOptions::new().write(true).read(true).create_new(true))?;
        Ok(Temporary { file, path, placed: false })
    }

    /// Returns a path for something temporary, which nothing has yet.
    pub(crate) fn temporary_path(&self) -> PathBuf {
        self.file("tmp").join(format!("{:016x}", larder_sys::random_u64()))
    }

    /// Replaces the file at `path` by one with these bytes.
    pub(crate) fn put_file(&self, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        let mut temporary = self.temporary()?;
        temporary.write_all(bytes)?;
        temporary.place(path)
    }

    /// Creates a file that is in the store's file system but has no name. `larder doctor` uses it
    /// to try what works there.
    pub fn nameless_file(&self) -> Result<File, StoreError> {
        let temporary = self.temporary()?;
        temporary.file.try_clone().map_err(StoreError::writing(&temporary.path))
    }

    /// Opens a file of `locks/` and waits for its exclusive lock. The file is created if it does
    /// not exist.
    pub(crate) fn lock(&self, name: &str) -> Result<File, StoreError> {
        let (file, path) = self.lock_file(name)?;
        larder_sys::write_lock(&file).map_err(StoreError::writing(&path))?;
        Ok(file)
    }

    /// Takes the exclusive lock of a file of `locks/`. Returns `None` if another process has it. The
    /// file is created if it does not exist.
    pub(crate) fn try_lock(&self, name: &str) -> Result<Option<File>, StoreError> {
        let (file, path) = self.lock_file(name)?;
        let taken = larder_sys::try_write_lock(&file).map_err(StoreError::writing(&path))?;
        Ok(taken.then_some(file))
    }

    /// Opens a file of `locks/`.
    fn lock_file(&self, name: &str) -> Result<(File, PathBuf), StoreError> {
        let path = self.file("locks").join(name);
        Ok((self.open_to_write(&path)?, path))
    }

    /// Opens a file for writing. Its content stays, and it is made empty if it does not exist.
    pub(crate) fn open_to_write(&self, path: &Path) -> Result<File, StoreError> {
        self.open_or_make(path, OpenOptions::new().write(true).create(true).truncate(false))
    }

    /// Opens a file for reading and writing, like [`Store::open_to_write`].
    pub(crate) fn open_to_change(&self, path: &Path) -> Result<File, StoreError> {
        self.open_or_make(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
    }

    /// Opens a file with options that create it. Its directory is created first if it does not
    /// exist.
    pub(crate) fn open_or_make(&self, path: &Path, options: &mut OpenOptions) -> Result<File, StoreError> {
        let options = options.mode(0o600).custom_flags(NO_WAIT | NO_FOLLOW);
        with_directory(path, || options.open(path))?.map_err(StoreError::writing(path))
    }

    /// Returns every file of a kind with its digest. Files with other names are skipped.
    pub(crate) fn list(&self, kind: Contents) -> Result<Vec<(Digest, PathBuf)>, StoreError> {
        let top = self.kind_dir(kind);
        let mut found = Vec::new();
        for shard in entries(&top)? {
            for path in entries(&shard)? {
                if let Some(digest) = digest_of_path(&path) {
                    found.push((digest, path));
                }
            }
        }
        Ok(found)
    }
}

/// Returns the stat of what a symbolic link in place of the store's directory leads to. Returns an
/// error if the link belongs to another user, because that user could redirect it at any time.
fn behind_link(path: &Path, link: &Stat) -> Result<Stat, StoreError> {
    if ![own_user(), SUPERUSER].contains(&link.owner) {
        return Err(StoreError::Unsafe { path: path.to_owned(), why: "is a symbolic link of another user" });
    }
    let target = if_there(larder_sys::stat(path.as_os_str().as_bytes())).map_err(StoreError::reading(path))?;
    target.ok_or_else(|| StoreError::Unsafe { path: path.to_owned(), why: "is a symbolic link to nothing" })
}

fn lstat_if_there(path: &Path) -> Result<Option<Stat>, StoreError> {
    if_there(larder_sys::lstat(path.as_os_str().as_bytes())).map_err(StoreError::reading(path))
}

fn refuse_unsafe(path: &Path, stat: &Stat) -> Result<(), StoreError> {
    let why = match stat {
        stat if stat.kind == FileType::Link => "is a symbolic link",
        stat if stat.kind != FileType::Directory => "is not a directory",
        stat if stat.owner != own_user() => "belongs to another user",
        stat if stat.mode & 0o022 != 0 => "others than its owner can write to it",
        _ => return Ok(()),
    };
    Err(StoreError::Unsafe { path: path.to_owned(), why })
}

/// The effective user, or `UNKNOWN`.
static USER: AtomicU64 = AtomicU64::new(UNKNOWN);
const UNKNOWN: u64 = u64::MAX;

/// Returns the effective user. It is asked for only once, because it hardly ever changes.
pub(crate) fn own_user() -> u32 {
    match USER.load(Relaxed) {
        UNKNOWN => {
            let user = larder_sys::effective_user();
            USER.store(u64::from(user), Relaxed);
            user
        }
        known => known as u32,
    }
}

/// Must be called after this process has become another user.
pub fn forget_user() {
    USER.store(UNKNOWN, Relaxed);
}

pub(crate) fn make_directory(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(StoreError::writing(path))
}

/// Returns the paths of a directory's entries. Returns an error if the directory is a symbolic link
/// or belongs to another user. Callers remove what they find, so it must be our own.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if let Ok(stat) = larder_sys::lstat(dir.as_os_str().as_bytes())
        && matches!(stat.kind, FileType::Directory | FileType::Link)
    {
        refuse_unsafe(dir, &stat)?;
    }
    let list = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other.map_err(StoreError::reading(dir))?,
    };
    let path = |entry: io::Result<fs::DirEntry>| entry.map(|e| e.path()).map_err(StoreError::reading(dir));
    list.map(path).collect()
}

/// Opens a file of the store for reading, and returns its stat. Returns an error if it is not a
/// regular file, because opening a FIFO could block and a device may have no end. Returns an error
/// if it belongs to another user, which is possible if others could once write to the directory.
pub(crate) fn open_plain(path: &Path) -> io::Result<(File, Stat)> {
    let file = larder_sys::open(path.as_os_str().as_bytes(), Opening::ReadPlain)?;
    let stat = larder_sys::fstat(&file)?;
    match stat {
        stat if stat.kind != FileType::File => Err(io::Error::other("is not a file")),
        stat if stat.owner != own_user() => Err(io::Error::other("belongs to another user")),
        stat => Ok((file, stat)),
    }
}

/// Linux's `O_NONBLOCK`: opening a FIFO does not wait for its other end.
pub(crate) const NO_WAIT: i32 = 0o4000;
/// Linux's `O_NOFOLLOW`: opening a symbolic link is an error. Its value differs on some
/// architectures.
pub(crate) const NO_FOLLOW: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64"))
{
    0o100_000
} else {
    0o400_000
};
const SUPERUSER: u32 = 0;

/// Reads a whole file of the store. Returns an error if it is larger than `limit_bytes`.
pub(crate) fn read_plain(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let (file, stat) = open_plain(path)?;
    if stat.size_bytes > limit_bytes {
        return Err(io::Error::other("is too large"));
    }
    larder_sys::read_sized(&file, stat.size_bytes)
}

/// Reads a whole file of the store like [`read_plain`]. Returns `None` if there is none.
pub(crate) fn read_if_there(path: &Path, limit_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    if_there(read_plain(path, limit_bytes))
}

/// Returns `None` if something failed because it is not there.
pub(crate) fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// Does something that fails if the directory of `path` does not exist. In this case the directory
/// is made, and it is done again.
fn with_directory<T>(path: &Path, mut act: impl FnMut() -> io::Result<T>) -> Result<io::Result<T>, StoreError> {
    match if_there(act()) {
        Ok(None) => {
            make_directory(path.parent().unwrap_or(path))?;
            Ok(act())
        }
        Ok(Some(done)) => Ok(Ok(done)),
        Err(error) => Ok(Err(error)),
    }
}

fn digest_of_path(path: &Path) -> Option<Digest> {
    let shard = path.parent()?.file_name()?.to_str()?;
    format!("{shard}{}", path.file_name()?.to_str()?).parse().ok()
}

/// A file under a temporary name. It is removed when dropped, unless it was renamed into place.
pub(crate) struct Temporary {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    placed: bool,
}

impl Temporary {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(StoreError::writing(&self.path))
    }

    /// Renames the file to `at`, and replaces whatever is there.
    pub(crate) fn place(mut self, at: &Path) -> Result<(), StoreError> {
        self.named(at, |from, to| fs::rename(from, to))?;
        self.placed = true;
        Ok(())
    }

    /// Renames the file to `at` unless something is there. Returns false if something is there; the
    /// temporary file is then removed.
    pub(crate) fn place_new(mut self, at: &Path) -> Result<bool, StoreError> {
        self.placed = self.named(at, larder_sys::rename_new)?;
        Ok(self.placed)
    }

    /// Calls `rename`. If it fails because the directory of `at` does not exist, makes that and
    /// calls it again.
    fn named<T>(&self, at: &Path, rename: impl Fn(&Path, &Path) -> io::Result<T>) -> Result<T, StoreError> {
        let done = match with_directory(at, || rename(&self.path, at))? {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => self.copied(at, rename),
            other => other,
        };
        done.map_err(StoreError::writing(at))
    }

    /// Renames a copy that is made beside `at`. A process without rights sees parts of a store as
    /// mounts of their own (`images.rs`), between which the kernel renames nothing.
    fn copied<T>(&self, at: &Path, rename: impl Fn(&Path, &Path) -> io::Result<T>) -> io::Result<T> {
        let beside = at.with_file_name(self.path.file_name().unwrap_or_default());
        let done = fs::copy(&self.path, &beside).and_then(|_| rename(&beside, at));
        let _ = fs::remove_file(if done.is_ok() { &self.path } else { &beside });
        done
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
