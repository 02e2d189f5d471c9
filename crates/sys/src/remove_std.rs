//! Removing trees by the standard library, on systems that have no module of their own for it.

use std::io;
use std::path::Path;

/// Remove the file, link or directory at `path` with all that is in it. It is no error if there is nothing.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => std::fs::remove_dir_all(path),
        _ => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
