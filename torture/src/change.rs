//! Changes of a case's files, as values, so that a step can be described first and run later.
//!
//! Paths are relative to the root of the case. In texts, `@ROOT@` stands for the root, and `@CC@`
//! and `@CXX@` for the compilers of the case.
//!
//! Unaware of: commands and caches.

use crate::spawn::{output, writing};
use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as make_symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The age of the files of a new case, in seconds.
pub const AGE_S: i64 = 3600;
/// The search path that everything runs with.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The directory of a case, and its compilers.
pub struct Place {
    /// The root of the case's files.
    pub root: PathBuf,
    /// The name of the C compiler on `PATH`.
    pub cc: &'static str,
    /// The name of the C++ compiler on `PATH`.
    pub cxx: &'static str,
}

/// A change of the files.
#[derive(Clone)]
pub enum Change {
    /// Writes a file, in place if it exists.
    Put(PathBuf, Vec<u8>),
    /// Writes other bytes into a file and restores its times.
    Swap(PathBuf, Vec<u8>),
    /// Removes files, links and whole directories, if they exist.
    Remove(Vec<PathBuf>),
    /// Renames a file.
    Move(PathBuf, PathBuf),
    /// Makes a directory and its parents. The mode is for the last one.
    Directory(PathBuf, u32),
    /// Makes a symbolic link, after removing what is there: target, path.
    Symlink(PathBuf, PathBuf),
    /// Makes a hard link, after removing what is there: file, path.
    HardLink(PathBuf, PathBuf),
    /// Copies a file with its times, after removing what is there.
    Copy(PathBuf, PathBuf),
    /// Makes a FIFO, after removing what is there.
    Fifo(PathBuf),
    /// Sets a mode.
    Mode(PathBuf, u32),
    /// Sets an mtime, in seconds from now.
    Touch(PathBuf, i64),
    /// Sets an mtime, in seconds since 1970.
    Time(PathBuf, i64),
    /// Runs a shell script in the root, for preparation only.
    Shell(String),
    /// Waits.
    Sleep(Duration),
    /// Several changes, in order.
    All(Vec<Change>),
}

/// Writes a file.
pub fn put(path: impl Into<PathBuf>, text: impl AsRef<[u8]>) -> Change {
    Change::Put(path.into(), text.as_ref().to_vec())
}

/// Writes a file whose mtime is as old as that of a new case's files.
pub fn put_old(path: impl Into<PathBuf>, text: impl AsRef<[u8]>) -> Change {
    let path = path.into();
    all([put(path.clone(), text), touch(path, -AGE_S)])
}

/// Writes an executable shell script.
pub fn script(path: impl Into<PathBuf>, text: impl AsRef<str>) -> Change {
    let path = path.into();
    all([put(path.clone(), format!("#!/bin/sh\n{}", text.as_ref())), Change::Mode(path, 0o755)])
}

/// Writes other bytes into a file and restores its times.
pub fn swap(path: impl Into<PathBuf>, text: impl AsRef<[u8]>) -> Change {
    Change::Swap(path.into(), text.as_ref().to_vec())
}

/// Removes a file, link or directory, if it exists.
pub fn rm(path: impl Into<PathBuf>) -> Change {
    Change::Remove(vec![path.into()])
}

/// Renames a file.
pub fn mv(from: impl Into<PathBuf>, to: impl Into<PathBuf>) -> Change {
    Change::Move(from.into(), to.into())
}

/// Makes a directory.
pub fn dir(path: impl Into<PathBuf>) -> Change {
    Change::Directory(path.into(), 0o755)
}

/// Makes a symbolic link.
pub fn symlink(target: impl Into<PathBuf>, name: impl Into<PathBuf>) -> Change {
    Change::Symlink(target.into(), name.into())
}

/// Makes a hard link.
pub fn link(file: impl Into<PathBuf>, name: impl Into<PathBuf>) -> Change {
    Change::HardLink(file.into(), name.into())
}

/// Copies a file with its times.
pub fn copy(file: impl Into<PathBuf>, name: impl Into<PathBuf>) -> Change {
    Change::Copy(file.into(), name.into())
}

/// Sets a mode.
pub fn chmod(path: impl Into<PathBuf>, mode: u32) -> Change {
    Change::Mode(path.into(), mode)
}

/// Sets an mtime, in seconds from now.
pub fn touch(path: impl Into<PathBuf>, seconds: i64) -> Change {
    Change::Touch(path.into(), seconds)
}

/// Runs a shell script in the root.
pub fn sh(text: impl Into<String>) -> Change {
    Change::Shell(text.into())
}

/// Makes several changes, in order.
pub fn all(changes: impl IntoIterator<Item = Change>) -> Change {
    Change::All(changes.into_iter().collect())
}

/// Makes no change.
pub fn nothing() -> Change {
    Change::All(Vec::new())
}

impl Place {
    /// Returns the absolute path of a path below the root.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// Replaces `@ROOT@`, `@CC@` and `@CXX@`.
    pub fn filled(&self, text: &[u8]) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let root = self.root.as_os_str().as_bytes();
        let words = [(&b"@ROOT@"[..], root), (b"@CC@", self.cc.as_bytes()), (b"@CXX@", self.cxx.as_bytes())];
        words.iter().fold(text.to_vec(), |text, (word, value)| replaced(&text, word, value))
    }
}

/// Replaces every occurrence of `word` in `text`.
pub fn replaced(text: &[u8], word: &[u8], value: &[u8]) -> Vec<u8> {
    let mut left = text;
    let mut result = Vec::with_capacity(text.len());
    while let Some(at) = left.windows(word.len()).position(|window| window == word) {
        result.extend_from_slice(&left[..at]);
        result.extend_from_slice(value);
        left = &left[at + word.len()..];
    }
    result.extend_from_slice(left);
    result
}

impl Change {
    /// Carries out the change.
    pub fn apply(&self, place: &Place) -> Result<()> {
        self.act(place).with_context(|| format!("cannot change the files of the case: {}", self.name()))
    }

    fn name(&self) -> String {
        match self {
            Change::Shell(text) => text.clone(),
            Change::Put(path, _) | Change::Swap(path, _) | Change::Mode(path, _) => path.display().to_string(),
            Change::Move(path, _) | Change::Symlink(_, path) | Change::HardLink(_, path) | Change::Copy(_, path) => {
                path.display().to_string()
            }
            Change::Directory(path, _) | Change::Fifo(path) | Change::Touch(path, _) | Change::Time(path, _) => {
                path.display().to_string()
            }
            Change::Remove(_) | Change::Sleep(_) | Change::All(_) => String::new(),
        }
    }

    fn act(&self, place: &Place) -> Result<()> {
        match self {
            Change::Put(path, bytes) => {
                let path = with_parent(place, path)?;
                writing(|| fs::write(path, place.filled(bytes)))?;
            }
            Change::Swap(path, bytes) => {
                let path = place.at(path);
                let before = fs::metadata(&path)?;
                writing(|| fs::write(&path, place.filled(bytes)))?;
                set_time(&path, before.mtime(), before.mtime_nsec())?;
            }
            Change::Remove(paths) => paths.iter().try_for_each(|path| remove(&place.at(path)))?,
            Change::Move(from, to) => fs::rename(place.at(from), with_parent(place, to)?)?,
            Change::Directory(path, mode) => {
                fs::create_dir_all(place.at(path))?;
                fs::set_permissions(place.at(path), Permissions::from_mode(*mode))?;
            }
            Change::Mode(path, mode) => fs::set_permissions(place.at(path), Permissions::from_mode(*mode))?,
            Change::Touch(path, seconds) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                let now_s = i64::try_from(now.as_secs())?;
                set_time(&place.at(path), now_s + seconds, now.subsec_nanos().into())?;
            }
            Change::Time(path, seconds) => set_time(&place.at(path), *seconds, 0)?,
            Change::Shell(text) => shell(place, text)?,
            Change::Sleep(time) => std::thread::sleep(*time),
            Change::All(changes) => changes.iter().try_for_each(|change| change.act(place))?,
            Change::Symlink(..) | Change::HardLink(..) | Change::Copy(..) | Change::Fifo(..) => {
                self.name_anew(place)?
            }
        }
        Ok(())
    }

    /// Carries out the changes that remove what is there first.
    fn name_anew(&self, place: &Place) -> Result<()> {
        let free = |name: &Path| -> Result<PathBuf> {
            let name = with_parent(place, name)?;
            remove(&name)?;
            Ok(name)
        };
        match self {
            Change::Symlink(target, name) => {
                use std::os::unix::ffi::{OsStrExt, OsStringExt};
                let target = std::ffi::OsString::from_vec(place.filled(target.as_os_str().as_bytes()));
                make_symlink(target, free(name)?)?;
            }
            Change::HardLink(file, name) => fs::hard_link(place.at(file), free(name)?)?,
            Change::Copy(file, name) => {
                let (from, to) = (place.at(file), free(name)?);
                writing(|| fs::copy(&from, &to))?;
                let before = fs::metadata(&from)?;
                set_time(&to, before.mtime(), before.mtime_nsec())?;
            }
            Change::Fifo(name) => make_fifo(&free(name)?)?,
            _ => {}
        }
        Ok(())
    }
}

/// Makes a FIFO that all users may use.
pub fn make_fifo(path: &Path) -> Result<()> {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0)?;
    Ok(())
}

/// Sets the mtime and atime of a file, directory or symbolic link. Links are not followed.
pub fn set_time(path: &Path, seconds: i64, nanoseconds: i64) -> Result<()> {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .with_context(|| format!("cannot set the time of {}", path.display()))
}

/// Removes a file, link or directory, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if meta.is_dir() {
        fs::remove_dir_all(path)?
    } else {
        fs::remove_file(path)?
    }
    Ok(())
}

fn with_parent(place: &Place, path: &Path) -> Result<PathBuf> {
    let path = place.at(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(path)
}

fn shell(place: &Place, text: &str) -> Result<()> {
    let mut command = Command::new("sh");
    command.args(["-ec", text]).current_dir(&place.root).env_clear();
    command.env("PATH", PATH).env("LC_ALL", "C").env("CC", place.cc).env("CXX", place.cxx);
    let output = output(&mut command)?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_wherever_they_stand() {
        assert_eq!(replaced(b"a@X@b@X@", b"@X@", b"yy"), b"ayybyy");
        assert_eq!(replaced(b"@X", b"@X@", b"yy"), b"@X");
    }
}
