//! Paths as texts, normalised only where that is said.

/// A path of a command that runs in `cwd`.
pub(crate) fn absolute(cwd: &[u8], path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') { path.to_vec() } else { [cwd, b"/", path].concat() }
}

/// Where a relative path that begins with `..` leads when there are no links on its way.
pub(crate) fn beside(cwd: &[u8], path: &[u8]) -> Vec<u8> {
    larder_observe::without_parents(&absolute(cwd, path))
}

/// Whether a path is that of the directory, or of something below it.
pub(crate) fn is_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Where a word begins in a text. `memchr` would do it as well, but asks first what the processor can do, and where
/// that is a virtual machine's, each such question goes to its host: 60 µs, more than a hit's texts take to be
/// searched.
pub(crate) fn places_of<'t>(text: &'t [u8], word: &'t [u8]) -> impl Iterator<Item = usize> + 't {
    let first = word.first();
    let begins = move |at: &usize| Some(&text[*at]) == first && text[*at..].starts_with(word);
    (0..text.len()).filter(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_beside_a_build_directory() {
        for (path, expected) in [("../src", "/a/src"), ("..", "/a"), ("../../../../x", "/x"), (".././s/../t", "/a/t")] {
            assert_eq!(beside(b"/a/b", path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
