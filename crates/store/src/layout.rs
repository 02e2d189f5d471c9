//! The directory: opening it, and the path of each thing in it.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use larder_model::{Digest, FORMAT_VERSION};
use larder_sys::{Kind, Look, Opening};

use crate::StoreError;

/// A store that is there, or can be made, and is safe to use.
pub struct Store {
    top: PathBuf,
    /// `DIR/v10`, no trailing slash.
    base: PathBuf,
    /// See [`Store::is_only_read`]; asked once.
    pub(crate) only_read: OnceLock<bool>,
}

/// A kind of file in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Manifests.
    Manifests,
    /// Manifests of what was handed over by processes that cannot write the store. Only those read them.
    HandedOver,
    /// Blobs.
    Blobs,
    /// What is known of programs and their observation.
    Judgements,
    /// The same as processes handed it over that cannot write the store. Only those read it.
    JudgementsHandedOver,
    /// Records of images, by the digest of their key.
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
    /// Open the store in `dir` for reading. A directory that does not exist yet is an empty store; one that belongs
    /// to somebody else, or that others can write to, is refused.
    pub fn open(dir: &Path) -> Result<Store, StoreError> {
        let base = dir.join(format!("v{FORMAT_VERSION}"));
        for path in [dir, &base] {
            match larder_sys::look(path.as_os_str().as_bytes()) {
                Ok(look) if look.kind == Kind::Link => refuse_unsafe(path, &behind_link(path, &look)?)?,
                Ok(look) => refuse_unsafe(path, &look)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(StoreError::reading(path)(error)),
            }
        }
        Ok(Store { top: dir.to_owned(), base, only_read: OnceLock::new() })
    }

    /// That of another format in the same directory, where there is one that is as safe.
    pub(crate) fn of_format(&self, version: u8) -> Option<Store> {
        let base = self.top.join(format!("v{version}"));
        let look = larder_sys::look(base.as_os_str().as_bytes()).ok()?;
        refuse_unsafe(&base, &look).ok()?;
        Some(Store { top: self.top.clone(), base, only_read: OnceLock::new() })
    }

    /// Whether the directories inside are as safe as the store itself, which `open` does not look at: they can be
    /// somebody else's where others once could write to the store, or links.
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
            match larder_sys::look(path.as_os_str().as_bytes()) {
                Ok(look) => refuse_unsafe(&path, &look)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StoreError::reading(&path)(error)),
            }
        }
        Ok(())
    }

    /// The directory that the user named.
    pub fn directory(&self) -> &Path {
        &self.top
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// `BASE/KIND/ab/cdef…`
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

    /// Create a file of our own under a temporary name.
    pub(crate) fn temporary(&self) -> Result<Temporary, StoreError> {
        let path = self.base.join("tmp").join(format!("{:016x}", larder_sys::random_u64()));
        let file = self.open_or_make(&path, OpenOptions::new().write(true).read(true).create_new(true))?;
        Ok(Temporary { file, path, placed: false })
    }

    /// A file in the store that has no name any more: for `doctor` to try what can be done there.
    pub fn nameless_file(&self) -> Result<File, StoreError> {
        let temporary = self.temporary()?;
        temporary.file.try_clone().map_err(StoreError::writing(&temporary.path))
    }

    /// Open a file for its lock only, making it where it is not there.
    pub(crate) fn lock(&self, name: &str) -> Result<File, StoreError> {
        let path = self.base.join("locks").join(name);
        let file = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false))?;
        larder_sys::write_lock(&file).map_err(StoreError::writing(&path))?;
        Ok(file)
    }

    /// Open a file that is made, and its directory before it where that is missing.
    pub(crate) fn open_or_make(&self, path: &Path, options: &mut OpenOptions) -> Result<File, StoreError> {
        let options = options.mode(0o600).custom_flags(NO_WAIT | NO_FOLLOW);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(path.parent().unwrap_or(&self.base))?;
                options.open(path)
            }
            other => other,
        };
        file.map_err(StoreError::writing(path))
    }

    /// Every file of a kind, with its digest; what does not belong there is passed over.
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

/// What a link leads to that somebody put where the store should be. One that another user can change leads wherever
/// they like, tomorrow elsewhere.
fn behind_link(path: &Path, link: &Look) -> Result<Look, StoreError> {
    if ![own_user(), SUPERUSER].contains(&link.owner) {
        return Err(StoreError::Unsafe { path: path.to_owned(), why: "is a symbolic link of another user" });
    }
    match larder_sys::look_through(path.as_os_str().as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::Unsafe { path: path.to_owned(), why: "is a symbolic link to nothing" })
        }
        look => look.map_err(StoreError::reading(path)),
    }
}

fn refuse_unsafe(path: &Path, look: &Look) -> Result<(), StoreError> {
    let why = match look {
        look if look.kind == Kind::Link => "is a symbolic link",
        look if look.kind != Kind::Directory => "is not a directory",
        look if look.owner != own_user() => "belongs to another user",
        look if look.mode & 0o022 != 0 => "others than its owner can write to it",
        _ => return Ok(()),
    };
    Err(StoreError::Unsafe { path: path.to_owned(), why })
}

/// Asked once: the user of a wrapper never changes.
pub(crate) fn own_user() -> u32 {
    static USER: OnceLock<u32> = OnceLock::new();
    *USER.get_or_init(larder_sys::effective_user)
}

pub(crate) fn make_directory(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(StoreError::writing(path))
}

/// What a directory of the store holds. One that is a link, or somebody else's, is refused: what is found here is
/// removed, and it must be ours.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    if let Ok(look) = larder_sys::look(dir.as_os_str().as_bytes())
        && matches!(look.kind, Kind::Directory | Kind::Link)
    {
        refuse_unsafe(dir, &look)?;
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

/// Open a file of the store for reading, and look at it. What is no file is an error: a FIFO would be waited for, and a
/// device may have no end. So is another user's file, which can be here if others once could write to the directory.
pub(crate) fn open_plain(path: &Path) -> io::Result<(File, Look)> {
    let file = larder_sys::open(path.as_os_str().as_bytes(), Opening::ReadPlain)?;
    let look = larder_sys::file_look(&file)?;
    match look {
        look if look.kind != Kind::File => Err(io::Error::other("is not a file")),
        look if look.owner != own_user() => Err(io::Error::other("belongs to another user")),
        look => Ok((file, look)),
    }
}

/// Do not wait for a FIFO's other end: Linux's `O_NONBLOCK`.
pub(crate) const NO_WAIT: i32 = 0o4000;
/// A link is an error: Linux's `O_NOFOLLOW`, which has another number on some machines.
pub(crate) const NO_FOLLOW: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64"))
{
    0o100_000
} else {
    0o400_000
};
const SUPERUSER: u32 = 0;

/// The whole of a file of the store, unless it is larger than `limit_bytes`.
pub(crate) fn read_plain(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let (file, look) = open_plain(path)?;
    if look.size_bytes > limit_bytes {
        return Err(io::Error::other("is too large"));
    }
    larder_sys::read_sized(&file, look.size_bytes)
}

fn digest_of_path(path: &Path) -> Option<Digest> {
    let shard = path.parent()?.file_name()?.to_str()?;
    format!("{shard}{}", path.file_name()?.to_str()?).parse().ok()
}

/// A file under a temporary name; removed again unless it is put in its place.
pub(crate) struct Temporary {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    placed: bool,
}

impl Temporary {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(StoreError::writing(&self.path))
    }

    /// Give it its name, in place of whatever has it.
    pub(crate) fn place(mut self, at: &Path) -> Result<(), StoreError> {
        self.named(at, |from, to| fs::rename(from, to))?;
        self.placed = true;
        Ok(())
    }

    /// Give it a name that nothing has. False where something has it, and it is gone.
    pub(crate) fn place_new(mut self, at: &Path) -> Result<bool, StoreError> {
        self.placed = self.named(at, larder_sys::rename_new)?;
        Ok(self.placed)
    }

    /// Make the directory where it is missing.
    fn named<T>(&self, at: &Path, rename: impl Fn(&Path, &Path) -> io::Result<T>) -> Result<T, StoreError> {
        let done = match rename(&self.path, at) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(at.parent().unwrap_or(at))?;
                rename(&self.path, at)
            }
            other => other,
        };
        done.map_err(StoreError::writing(at))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
