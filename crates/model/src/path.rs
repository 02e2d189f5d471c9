//! Paths as bytes. Nothing here accesses the file system.

/// Returns the last component of a path.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// Returns the path of `name` in a directory. For an empty name, returns the directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (name.is_empty(), directory.ends_with(b"/")) {
        (true, _) => directory.to_vec(),
        (false, true) => [directory, name].concat(),
        (false, false) => [directory, b"/", name].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths() {
        assert_eq!([file_name(b"/usr/bin/gcc"), file_name(b"gcc"), file_name(b"/usr/")], [&b"gcc"[..], b"gcc", b""]);
        assert_eq!(
            (join(b"/", b"a"), join(b"/a", b"b"), join(b"/a", b"")),
            (b"/a".into(), b"/a/b".into(), b"/a".into())
        );
    }
}
