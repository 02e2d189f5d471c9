//! Paths as texts, never normalised.

/// A path of a command that runs in `cwd`.
pub(crate) fn absolute(cwd: &[u8], path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') { path.to_vec() } else { [cwd, b"/", path].concat() }
}

/// Whether a path is that of the directory, or of something below it.
pub(crate) fn is_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}
