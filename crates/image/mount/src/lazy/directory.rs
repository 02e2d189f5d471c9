//! The directory with the state of a file that is filled: its lock, the journal's path, the mounted
//! metadata, and the note that the file is complete.
//!
//! Unaware of: how the file is filled.

use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::MountError;

pub(super) const FILLED: &str = "filled";
/// The first part of the name of mounted metadata. The boot ID follows. After a crash of the
/// system, the metadata may be on the disk while the bytes that it refers to are not.
pub(super) const SWITCHED: &str = "switched-";
pub(super) const COMPLETE: &str = "complete";
pub(super) const LOCK: &str = "lock";
/// The time limit for an answer of the gate, which never waits for anything long.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Locks the directory, so that only one process fills the file.
///
/// A killed process holds the lock until its last thread has ended, and a thread may be waiting for
/// the disk. This waits for that, because readers of the file depend on the new process.
pub(super) fn lock(directory: &Path) -> Result<File, MountError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match try_lock(directory)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() >= until => return Err(others_fill(directory)),
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Tries to lock the directory. Returns `None` if another process fills the file.
pub(super) fn try_lock(directory: &Path) -> Result<Option<File>, MountError> {
    let path = directory.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(MountError::path(&path, "cannot be made"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(MountError::path(path, "cannot be locked")(error)),
    }
}

pub(super) fn others_fill(directory: &Path) -> MountError {
    MountError::path(directory.join(LOCK), "another process is filling this image")(io::ErrorKind::WouldBlock.into())
}

/// Returns true if the data file is complete and synced.
pub(super) fn was_completed(directory: &Path, data: &Path, size_bytes: u64) -> bool {
    let said = fs::read_to_string(directory.join(COMPLETE));
    // The note does not hold for a file that was removed and created anew.
    let is_there = || fs::metadata(data).is_ok_and(|data| data.len() == size_bytes);
    said.is_ok_and(|said| said == format!("{size_bytes}\n")) && is_there()
}

/// Removes the note that the data file is complete, because it is filled again.
pub(super) fn forget_complete(directory: &Path) -> Result<(), MountError> {
    match fs::remove_file(directory.join(COMPLETE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(MountError::path(directory, "cannot be written")(error))
        }
        _ => Ok(()),
    }
}

/// Notes that the data file is complete.
pub(super) fn note_complete(directory: &Path, size_bytes: u64) -> io::Result<()> {
    let (path, new) = (directory.join(COMPLETE), directory.join("complete.new"));
    fs::write(&new, format!("{size_bytes}\n"))?;
    fs::rename(&new, &path)
}

/// Creates the data file as a sparse file of the given size.
pub(super) fn make(data: &Path, size_bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(false).open(data)?;
    if file.metadata()?.len() != size_bytes {
        file.set_len(size_bytes)?;
    }
    Ok(())
}

/// Removes the journal and the mounted metadata, because the data file was removed.
pub(super) fn forget_filled(directory: &Path) -> Result<(), MountError> {
    let at = |what| MountError::path(directory, what);
    match fs::remove_file(directory.join(FILLED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("cannot be written")(error)),
        _ => {}
    }
    forget_switched(directory, "").map_err(at("cannot be written"))
}

/// Returns the path for the mounted copy of this metadata, which holds for one boot. Copies of
/// earlier boots are removed.
pub(super) fn switched(directory: &Path, metadata: &Path) -> io::Result<PathBuf> {
    let boot = larder_sys::boot_id()?;
    forget_switched(directory, &boot)?;
    let (mut file, mut hasher, mut buffer) = (File::open(metadata)?, DefaultHasher::new(), vec![0; 1 << 20]);
    // This is what `Hash` does for a list of bytes: mounts of earlier versions have such names.
    hasher.write_usize(usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX));
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.write(&buffer[..count]),
        }
    }
    Ok(directory.join(format!("{SWITCHED}{boot}-{:016x}", hasher.finish())))
}

/// Removes mounted metadata of other boots; an empty `boot` stands for all. Existing mounts keep
/// working, because they have the file open.
pub(super) fn forget_switched(directory: &Path, boot: &str) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix(SWITCHED));
        if of.is_some_and(|of| boot.is_empty() || !of.starts_with(boot)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = lock(directory.path()).expect("the lock is free");
        assert!(try_lock(directory.path()).expect("is made").is_none());
        let ends = std::thread::spawn(move || {
            std::thread::sleep(50 * PAUSE);
            drop(first);
        });
        lock(directory.path()).expect("the other holder has ended");
        ends.join().expect("ended");
    }
}
