//! Reads, writes, lists and removes files. Errors name the path, and whatever is written gets its
//! directory.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Makes a directory and those above it.
pub(crate) fn make(dir: impl AsRef<Path>) -> Result<()> {
    let dir = dir.as_ref();
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

/// Makes `dir` empty. Only for directories that xtask made.
pub(crate) fn fresh(dir: impl AsRef<Path>) -> Result<()> {
    remove(&dir)?;
    make(dir)
}

/// Removes `dir` and everything in it. It may be absent. A server that ends may still write there, so
/// this is tried a few times.
pub(crate) fn remove(dir: impl AsRef<Path>) -> Result<()> {
    const TRIES: usize = 10;
    let dir = dir.as_ref();
    let mut done = fs::remove_dir_all(dir);
    for _ in 1..TRIES {
        if !done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::DirectoryNotEmpty) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
        done = fs::remove_dir_all(dir);
    }
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.with_context(|| format!("cannot remove {}", dir.display())),
    }
}

/// Returns the text of a file.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the bytes of a file.
pub(crate) fn bytes(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file, and makes its directory.
pub(crate) fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
    let path = path.as_ref();
    path.parent().map_or(Ok(()), make)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file with its mode, and makes the directory of the copy. Returns the size in bytes.
pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    to.parent().map_or(Ok(()), make)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Moves a file or a directory, and makes the directory in which it will be.
pub(crate) fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    to.parent().map_or(Ok(()), make)?;
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

/// Returns the paths in a directory, sorted.
pub(crate) fn list(dir: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let dir = dir.as_ref();
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths)
}
