//! Converts between local paths and the names that paths have inside an image. Refuses names that
//! lead out of the working directory, and cleans up what killed commands left beside a path.
//!
//! Unaware of: which images there are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use larder_image::Left;

use crate::say;
use crate::surroundings::Surroundings;

/// Returns the name of a path inside an image, for example `~/.cargo` for a path below the home
/// directory.
pub(super) fn name_of(around: &Surroundings, path: &Path) -> Vec<u8> {
    larder_image::name_of(path, around.home().as_deref())
}

/// Returns the local path for a name inside an image.
pub(super) fn local_path(around: &Surroundings, name: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    match path.strip_prefix("~") {
        Ok(below) => Ok(around.home().context("the home directory is not known: type the path")?.join(below)),
        Err(_) => Ok(around.cwd()?.join(path)),
    }
}

/// Returns the local path for a name inside an image, if that path is below the working directory
/// with all links resolved, and not in a `.git`. The person who saved the image chose the name. For
/// example, `~/.ssh` or `.git/hooks` would give that person control of the account.
pub(super) fn local_path_below(cwd: &Path, name: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Component::{CurDir, Normal};
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let refused = |why: &str| {
        let name = shown(name);
        anyhow!("{name}: not restored, because {why}: type the path to restore it there, or add --anywhere")
    };
    let is_below = |path: &Path| path.components().all(|part| matches!(part, CurDir | Normal(_)));
    if path.starts_with("~") || !is_below(path) {
        return Err(refused("it lies outside of the working directory"));
    }
    let place = cwd.join(path);
    // A path that does not exist yet is no link.
    let there = place.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(cwd);
    let (real, top) = (fs::canonicalize(there), fs::canonicalize(cwd)?);
    match real {
        Ok(real) if !real.starts_with(&top) => Err(refused("a link there leads out of the working directory")),
        Err(_) => Err(refused("a link there leads nowhere")),
        Ok(real) if real.iter().chain(path).any(|part| is_repository(part.as_bytes())) => {
            Err(refused("it lies in a repository's own directory"))
        }
        Ok(_) => Ok(place),
    }
}

/// Returns true for the name of a repository's own directory, in any case, because some file
/// systems ignore case.
pub(super) fn is_repository(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// Finishes or undoes what killed commands began when they replaced one of these paths, and prints
/// the outcome.
pub(super) fn tidy<'p>(paths: impl Iterator<Item = &'p Path>) {
    let is_directory = |path: &&Path| path.symlink_metadata().is_ok_and(|there| there.is_dir());
    let mut dirs: Vec<&Path> =
        paths.flat_map(|path| [path.parent(), Some(path).filter(is_directory)]).flatten().collect();
    dirs.sort_unstable();
    dirs.dedup();
    for left in dirs.into_iter().flat_map(larder_image::sweep) {
        say::tell(&say::one_line(&match left {
            Left::PutBack(path) => {
                format!(
                    "{}: restored to its old state, because a larder that was replacing it was killed",
                    path.display()
                )
            }
            Left::Finished(path) => format!("{}: replaced, which a killed larder had begun", path.display()),
            Left::Kept { target, old } => format!(
                "{}: a larder that was replacing it was killed; its old contents are in {}: move them back, or remove them",
                target.display(),
                old.display()
            ),
        }));
    }
}

/// Formats a name for people and for JSON.
pub(super) fn shown(name: &[u8]) -> String {
    say::clean(name)
}
