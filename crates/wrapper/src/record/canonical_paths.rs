//! Resolves links and `..` in the directories of paths.
//!
//! Unaware of: what the paths are for.

use std::cell::RefCell;
use std::collections::HashMap;

use larder_model::path::split;
use larder_sys::Dir;

/// A cache of resolved directories.
#[derive(Default)]
pub(crate) struct CanonicalPaths {
    directories: RefCell<HashMap<Vec<u8>, Option<Vec<u8>>>>,
}

impl CanonicalPaths {
    /// Returns `path` with its directory resolved, or `None` if the directory does not exist. A
    /// link in the last component is kept.
    pub(crate) fn of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (directory, name) = split(path)?;
        if matches!(name, b"" | b"." | b"..") {
            return self.of_directory(path);
        }
        Some([&self.of_directory(directory)?, &b"/"[..], name].concat())
    }

    fn of_directory(&self, path: &[u8]) -> Option<Vec<u8>> {
        if let Some(known) = self.directories.borrow().get(path) {
            return known.clone();
        }
        let real = Dir::open(path, false).and_then(|directory| directory.real_path()).ok();
        self.directories.borrow_mut().insert(path.to_vec(), real.clone());
        real
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_through_links_and_parents() {
        let dir = tempfile::tempdir().expect("makes a directory");
        let top = dir.path().canonicalize().expect("is there").to_str().expect("is text").to_owned();
        std::fs::create_dir_all(format!("{top}/a/b")).expect("makes");
        std::os::unix::fs::symlink("a/b", format!("{top}/l")).expect("links");
        let real = CanonicalPaths::default();
        for (name, expected) in [
            ("l/../x", Some("a/x")),
            ("a/b/../none/x", None),
            ("l/..", Some("a")),
            ("l/x", Some("a/b/x")),
            ("l/../x", Some("a/x")),
        ] {
            let expected = expected.map(|name| format!("{top}/{name}").into_bytes());
            assert_eq!(real.of(format!("{top}/{name}").as_bytes()), expected, "{name}");
        }
    }
}
