//! Finds the file whose bytes are locked. Its path depends only on the user's id, so a build whose
//! environment was emptied finds the same file.
//!
//! Shared memory is tried first: it does not survive a reboot, and a sandbox in which all else is
//! read-only can write there.
//!
//! Unaware of: what is in the file.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_sys::{FileType, Opening, Stat};

/// Opens the file `named`, or else the user's own file at the first path that works. Also returns
/// its size in bytes.
pub(super) fn open(named: Option<&Path>) -> io::Result<(File, u64)> {
    if let Some(path) = named {
        return open_at(path);
    }
    let mut error = None;
    for path in places(larder_sys::effective_user()) {
        match open_at(&path) {
            Ok(found) => return Ok(found),
            Err(this) => error = Some(this),
        }
    }
    Err(error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn places(user: u32) -> [PathBuf; 3] {
    [
        format!("/dev/shm/larder-{user}-tokens").into(),
        format!("/run/user/{user}/larder-tokens").into(),
        format!("/tmp/larder-{user}-tokens").into(),
    ]
}

/// Opens the file. It is refused if another user could lock it permanently, which would block all
/// tokens. Even a user who can only open it for reading could lock it.
fn open_at(path: &Path) -> io::Result<(File, u64)> {
    let file = larder_sys::open(path.as_os_str().as_bytes(), Opening::MakePlain)?;
    let Stat { kind, owner, mode, size_bytes, .. } = larder_sys::fstat(&file)?;
    let is_ours = kind == FileType::File && owner == larder_sys::effective_user() && mode & 0o066 == 0;
    if is_ours { Ok((file, size_bytes)) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_ones_own_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("tokens");
        assert!(open(Some(&path)).is_ok() && open(Some(&path)).is_ok());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("makes");
        assert!(open(Some(&link)).is_err());
        assert!(open(Some(dir.path())).is_err());
        use std::os::unix::fs::PermissionsExt;
        for mode in [0o666, 0o644, 0o640, 0o604, 0o602, 0o620] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("sets");
            assert!(open(Some(&path)).is_err(), "{mode:o}: other users could lock it");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("sets");
        assert!(open(Some(&path)).is_ok());
        assert!(places(7).iter().all(|path| path.to_str().is_some_and(|path| path.contains("larder"))));
    }
}
