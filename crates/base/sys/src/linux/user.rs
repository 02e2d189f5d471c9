//! Looks up the user in the password database.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::process::effective_user;

/// Returns the user's home directory, for when `HOME` is not set.
pub fn home_of_user() -> Option<PathBuf> {
    path_of_user(|entry| entry.pw_dir)
}

/// Returns the user's login shell, for when `SHELL` is not set.
pub fn shell_of_user() -> Option<PathBuf> {
    path_of_user(|entry| entry.pw_shell)
}

fn path_of_user(field: fn(&libc::passwd) -> *mut libc::c_char) -> Option<PathBuf> {
    // SAFETY: there is one thread. The result points to libc's own storage and is copied at once.
    let path = unsafe {
        let text = field(libc::getpwuid(effective_user()).as_ref()?);
        if text.is_null() {
            return None;
        }
        CStr::from_ptr(text).to_bytes().to_vec()
    };
    let path = PathBuf::from(OsString::from_vec(path));
    path.is_absolute().then_some(path)
}
