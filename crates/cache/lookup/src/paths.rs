//! Helpers for paths as byte strings. Only `beside` normalises.

/// Returns a path of a command that runs in `cwd`, made absolute but not normalised.
pub(crate) fn absolute(cwd: &[u8], path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') { path.to_vec() } else { [cwd, b"/", path].concat() }
}

/// Returns `path` (relative, starting with `..`) made absolute with every `..` removed textually.
/// The result is right if no link is on the way.
pub(crate) fn beside(cwd: &[u8], path: &[u8]) -> Vec<u8> {
    larder_observe::without_parents(&absolute(cwd, path))
}

/// Returns the positions at which `word` occurs in `text`.
///
/// We do not use `memchr` here because it first executes `cpuid`. In a virtual machine each `cpuid`
/// traps to the hypervisor: 60 µs, which is more than searching all texts of a hit takes.
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
