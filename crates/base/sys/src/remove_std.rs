//! Removing directory trees by the standard library, on systems without a module of their own for
//! it.
//!
//! Unaware of: what is removed.

use std::io;
use std::path::Path;

/// Removes the file, link or directory at `path` with everything in it. Succeeds if there is
/// nothing.
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
