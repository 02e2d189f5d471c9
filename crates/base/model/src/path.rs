//! Paths as bytes. Nothing here accesses the file system.

/// Returns the last component of a path.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&b| b == b'/').next().unwrap_or(path)
}

/// Returns true if a component of the path is `..`.
pub fn has_parents(path: &[u8]) -> bool {
    crate::contains(path, "..") && path.split(|&b| b == b'/').any(|part| part == b"..")
}

/// Returns the path of `name` in a directory. For an empty name, returns the directory.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (name.is_empty(), directory.ends_with(b"/")) {
        (true, _) => directory.to_vec(),
        (false, true) => [directory, name].concat(),
        (false, false) => [directory, b"/", name].concat(),
    }
}

/// Returns `path` if it is absolute, and otherwise its path in `directory`. Nothing is normalized.
pub fn absolute(directory: &[u8], path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") {
        return path.to_vec();
    }
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, path].concat()
}

/// Returns the directory that contains the last component of a path, and that component. Returns
/// `None` if the path is a single component.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&b| b == b'/')?;
    Some((&path[..slash.max(1)], &path[slash + 1..]))
}

/// Returns the directory that contains the last component of a path, or `None` if the path is a
/// single component.
pub fn parent(path: &[u8]) -> Option<&[u8]> {
    split(path).map(|(directory, _)| directory)
}

/// Returns the path without slashes at its end. Nothing is left of `/`.
pub fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end]
}

/// Returns the ending of the file name with its dot, which is empty if there is none.
pub fn ending(path: &[u8]) -> &[u8] {
    let name = file_name(path);
    name.iter().rposition(|&b| b == b'.').map_or(b"", |dot| &name[dot..])
}

/// Resolves `..` in an absolute path as text. The result is a different file if a component before
/// `..` is a symbolic link.
pub fn without_parents(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.iter().flat_map(|part| [&b"/"[..], part]).flatten().copied().collect()
}

/// Returns the names in a path, from the first directory to the file.
pub fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// Returns true if `path` is `directory` or lies below it.
pub fn is_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
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
        assert_eq!(
            (absolute(b"/a", b"b/"), absolute(b"/", b"b"), absolute(b"/a", b"/b"), absolute(b"/a", b"")),
            (b"/a/b/".into(), b"/b".into(), b"/b".into(), b"/a/".into())
        );
        for (path, resolved) in
            [("/a/b/../s", "/a/s"), ("/a/..", ""), ("/a/../../../x", "/x"), ("/a/.././s//t", "/s/t")]
        {
            assert_eq!(without_parents(path.as_bytes()), resolved.as_bytes(), "{path}");
        }
        assert_eq!([parent(b"/a/b"), parent(b"/a"), parent(b"a")], [Some(&b"/a"[..]), Some(b"/"), None]);
        assert_eq!([b"/a", &b"/a/b"[..], b"/ab", b"/"].map(|path| is_in(path, b"/a")), [true, true, false, false]);
    }
}
