//! A directory that several machines share, by NFS or as a volume of containers.
//!
//! ```text
//! DIRECTORY/VERSION/b/ab/cd… an object
//! DIRECTORY/tmp/…            an object that is being written; stays if its writer dies
//! DIRECTORY/locks/ab         locked while a list whose digest begins with `ab` is swapped
//! ```
//! An object is written to `tmp/` and then renamed; with `IfAbsent` it is linked instead. Nothing
//! is synced to disk, because readers verify. New files and directories get the permissions of
//! DIRECTORY, so that all its users can use them.
//!
//! Unaware of: what objects contain.

use crate::remote::MarkOf;
use crate::{
    Abilities, Answer, Body, Fetched, Key, Mark, Put, Remote, RemoteError, SMALL_BYTES_MAX, Stored, Trouble, body,
    file_body,
};
use bytes::Bytes;
use futures::TryStreamExt;
use larder_model::Digest;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

/// How long a swap waits for the lock.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// The permission bits that new files and directories take from DIRECTORY.
const FILE_BITS: u32 = 0o666;
const DIRECTORY_BITS: u32 = 0o2777;
static WRITTEN: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
pub(crate) struct Directory {
    name: Arc<str>,
    top: Arc<Path>,
    /// Tells the temporary files of this process from those of others, also on other machines.
    tag: u64,
}

/// A file in `tmp/`. It is removed on drop, unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Fails if the file was renamed.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Directory {
    pub(crate) fn new(name: &str, top: PathBuf, tag: u64) -> Self {
        Directory { name: name.into(), top: top.into(), tag }
    }

    fn path(&self, key: Key) -> PathBuf {
        self.top.join(key.path())
    }

    fn failed(&self, key: Key, error: io::Error) -> RemoteError {
        let trouble = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Trouble::Denied,
            io::ErrorKind::TimedOut | io::ErrorKind::StaleNetworkFileHandle => Trouble::Unreachable,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Trouble::Full,
            _ => Trouble::Other,
        };
        RemoteError::failed(&self.name, Some(key), trouble, error)
    }

    fn temporary(&self) -> io::Result<(Temporary, File)> {
        let directory = self.top.join("tmp");
        self.make(&directory)?;
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let temporary = Temporary(directory.join(format!("{}-{:016x}-{number}", std::process::id(), self.tag)));
        let file = File::create_new(&temporary.0)?;
        self.share(&temporary.0, FILE_BITS);
        Ok((temporary, file))
    }

    /// Creates a directory and its missing parents.
    fn make(&self, directory: &Path) -> io::Result<()> {
        let made = match std::fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && *directory != *self.top => {
                self.make(directory.parent().unwrap_or(&self.top))?;
                std::fs::create_dir(directory)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return std::fs::create_dir_all(directory),
            made => made,
        };
        match made {
            Ok(()) => self.share(directory, DIRECTORY_BITS),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Gives a new file or directory the permissions of DIRECTORY. Errors are ignored: the file may
    /// belong to another user, or the file system may have no permissions.
    #[cfg(unix)]
    fn share(&self, made: &Path, bits: u32) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&self.top).map(|top| top.permissions().mode() & bits);
        let _ = mode.and_then(|mode| std::fs::set_permissions(made, PermissionsExt::from_mode(mode)));
    }

    #[cfg(not(unix))]
    fn share(&self, _: &Path, _: u32) {}

    async fn store(&self, key: Key, body: Body, how: Put) -> Result<Stored, RemoteError> {
        let failed = |error| self.failed(key, error);
        if how == Put::IfAbsent && tokio::fs::try_exists(self.path(key)).await.map_err(failed)? {
            return Ok(Stored::Existed);
        }
        // One blocking task opens the file and returns it with its guard, so that dropping this
        // future leaves no file.
        let (temporary, file) = self.blocking(key, Directory::temporary).await?;
        let (mut file, mut body) = (tokio::fs::File::from_std(file), body);
        while let Some(bytes) = body.try_next().await? {
            file.write_all(&bytes).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        drop(file);
        self.settle(&temporary, &self.path(key), how).map_err(failed)
    }

    fn read(&self, key: Key) -> io::Result<Option<Bytes>> {
        let file = match File::open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(SMALL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > SMALL_BYTES_MAX {
            true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "the object is too large for this request")),
            false => Ok(Some(bytes.into())),
        }
    }

    /// Does the compare-and-swap, under the lock of the key.
    fn swap_now(&self, key: Key, bytes: &[u8], seen: Option<&Mark>) -> io::Result<bool> {
        let _lock = self.lock(key)?;
        let same = match (self.read(key)?, seen) {
            (None, None) => true,
            (Some(now), Some(Mark(MarkOf::Bytes(then)))) => Digest::of(&now) == *then,
            _ => false,
        };
        if same {
            let (temporary, mut file) = self.temporary()?;
            file.write_all(bytes)?;
            self.settle(&temporary, &self.path(key), Put::Replace)?;
        }
        Ok(same)
    }

    fn lock(&self, key: Key) -> io::Result<File> {
        let directory = self.top.join("locks");
        self.make(&directory)?;
        let path = directory.join(&key.digest.hex()[..2]);
        let file = File::create(&path)?;
        self.share(&path, FILE_BITS);
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_WAIT_MAX => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::TimedOut.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        key: Key,
        work: impl FnOnce(&Directory) -> io::Result<T> + Send + 'static,
    ) -> Result<T, RemoteError> {
        let here = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&here)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(|error| self.failed(key, error))
    }

    /// Moves a finished file to its path.
    fn settle(&self, temporary: &Temporary, path: &Path, how: Put) -> io::Result<Stored> {
        self.make(path.parent().expect("the path of a key has a parent"))?;
        match how {
            Put::Replace => std::fs::rename(&temporary.0, path).map(|()| Stored::New),
            Put::IfAbsent => match std::fs::hard_link(&temporary.0, path) {
                Ok(()) => Ok(Stored::New),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Stored::Existed),
                Err(error) => Err(error),
            },
        }
    }
}

impl Remote for Directory {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        Abilities::STORE
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        Box::pin(async move {
            let path = self.path(key);
            match tokio::fs::metadata(&path).await {
                Ok(meta) => {
                    let (name, this) = (self.name.clone(), self.clone());
                    let body = file_body(key, path).map_err(move |error| match error {
                        RemoteError::Here { source, .. } => this.failed(key, io::Error::new(source.kind(), source)),
                        other => other,
                    });
                    Ok(Some((Some(meta.len()), body::exactly(name, key, meta.len(), Box::pin(body)))))
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(self.failed(key, error)),
            }
        })
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        let body = body::exactly(self.name.clone(), key, size, body);
        Box::pin(self.store(key, body, how))
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(async move {
            let Some(&first) = keys.first() else { return Ok(Vec::new()) };
            let keys = keys.to_vec();
            let look = move |here: &Directory| keys.iter().map(|&key| here.path(key).try_exists()).collect();
            self.blocking(first, look).await
        })
    }

    fn get_marked(&self, key: Key) -> Answer<'_, Option<(Bytes, Mark)>> {
        Box::pin(async move {
            let found = self.blocking(key, move |here| here.read(key)).await?;
            Ok(found.map(|bytes| (bytes.clone(), Mark(MarkOf::Bytes(Digest::of(&bytes))))))
        })
    }

    fn swap(&self, key: Key, bytes: Bytes, seen: Option<Mark>) -> Answer<'_, bool> {
        Box::pin(self.blocking(key, move |here| here.swap_now(key, &bytes, seen.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk must not count as "too large", or the object would never be sent again. It must
    /// not count as a failure of the service either, or the breaker would open.
    #[test]
    fn a_full_disk_is_no_object_that_is_too_large() {
        let here = Directory::new("file:///d", "/d".into(), 1);
        let failed = here.failed(Key::blob(Digest([0; 32])), io::ErrorKind::StorageFull.into());
        assert_eq!(failed.trouble(), Some(Trouble::Full));
        assert!(!Trouble::Full.is_of_service());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn what_is_made_has_the_rights_of_the_directory() {
        use std::os::unix::fs::PermissionsExt;
        for (own, file) in [(0o2775, 0o664), (0o777, 0o666), (0o700, 0o600)] {
            let place = tempfile::tempdir().expect("a directory");
            std::fs::set_permissions(place.path(), PermissionsExt::from_mode(own)).expect("sets");
            let here = Directory::new("file:///d", place.path().to_owned(), 1);
            let (list, blob) = (Key::manifest(Digest([1; 32])), Key::blob(Digest::of(b"blob")));
            assert!(here.swap(list, Bytes::from_static(b"list"), None).await.expect("swaps"));
            here.put(blob, 4, crate::whole(Bytes::from_static(b"blob")), Put::IfAbsent).await.expect("puts");
            let mode = |path: &Path| std::fs::metadata(path).expect("exists").permissions().mode() & 0o7777;
            for path in [list, blob].map(|key| here.path(key)) {
                let above: Vec<u32> = path.ancestors().skip(1).take(4).map(mode).collect();
                assert_eq!((mode(&path), above), (file, vec![own; 4]), "{}", path.display());
            }
            let lock = place.path().join("locks").join(&list.digest.hex()[..2]);
            assert_eq!((mode(&lock), mode(&place.path().join("tmp"))), (file, own));
        }
    }
}
