//! A snapshot of the files below a directory, used to compare two runs and to restore the state
//! before the first.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::write_program;

/// One path in a tree, with the properties that two runs must agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The permission bits, including set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    /// The type and content.
    pub kind: TreeKind,
}

/// The type and content of a path.
#[derive(Clone, PartialEq, Eq)]
pub enum TreeKind {
    /// A regular file with these bytes.
    File(Vec<u8>),
    /// A symbolic link with this target.
    Link(PathBuf),
    /// A directory.
    Directory,
    /// Anything else, for example a FIFO.
    Other,
}

/// The paths below a directory, relative to it, and what is at each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<PathBuf, TreeEntry>);

impl std::fmt::Debug for TreeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TreeKind::File(bytes) => {
                write!(f, "{} bytes: {}", bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(60)]))
            }
            TreeKind::Link(target) => write!(f, "→ {}", target.display()),
            TreeKind::Directory => f.write_str("directory"),
            TreeKind::Other => f.write_str("special"),
        }
    }
}

impl Tree {
    /// Returns a snapshot of everything below `top`.
    pub fn of(top: &Path) -> Tree {
        let mut tree = Tree::default();
        tree.read(top, Path::new(""));
        tree
    }

    fn read(&mut self, top: &Path, below: &Path) {
        for item in fs::read_dir(top.join(below)).expect("cannot list the directory") {
            let relative = below.join(item.expect("cannot list the directory").file_name());
            let path = top.join(&relative);
            let meta = fs::symlink_metadata(&path).expect("cannot stat the file");
            let kind = match meta.file_type() {
                kind if kind.is_file() => TreeKind::File(fs::read(&path).expect("cannot read the file")),
                kind if kind.is_symlink() => TreeKind::Link(fs::read_link(&path).expect("cannot read the link")),
                kind if kind.is_dir() => TreeKind::Directory,
                _ => TreeKind::Other,
            };
            let is_directory = kind == TreeKind::Directory;
            self.0.insert(relative.clone(), TreeEntry { mode: meta.mode() & 0o7777, kind });
            if is_directory {
                self.read(top, &relative);
            }
        }
    }

    /// Restores this snapshot below `top`. Paths that have not changed are not touched.
    pub fn put_back(&self, top: &Path) {
        let now = Tree::of(top);
        for (relative, entry) in now.0.iter().rev() {
            if self.0.get(relative) != Some(entry) {
                let path = top.join(relative);
                let removed =
                    if entry.kind == TreeKind::Directory { fs::remove_dir(&path) } else { fs::remove_file(&path) };
                // A directory of which only the mode changed cannot be removed if it is not empty,
                // and stays.
                assert!(removed.is_ok() || self.0.contains_key(relative), "{}: cannot remove it", path.display());
            }
        }
        for (relative, entry) in &self.0 {
            if now.0.get(relative) != Some(entry) {
                let path = top.join(relative);
                match &entry.kind {
                    TreeKind::File(bytes) if entry.mode & 0o111 != 0 => write_program(&path, bytes),
                    TreeKind::File(bytes) => fs::write(&path, bytes).expect("cannot write the file"),
                    TreeKind::Link(target) => {
                        std::os::unix::fs::symlink(target, &path).expect("cannot create the link")
                    }
                    TreeKind::Directory if path.is_dir() => {}
                    TreeKind::Directory => fs::create_dir(&path).expect("cannot create the directory"),
                    TreeKind::Other => panic!("{}: cannot restore a special file", path.display()),
                }
                if !matches!(entry.kind, TreeKind::Link(_)) {
                    fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode)).expect("cannot set the mode");
                }
            }
        }
    }

    /// Returns the content of the file at `relative`. Panics if it is not a regular file.
    pub fn bytes(&self, relative: &str) -> &[u8] {
        match self.0.get(Path::new(relative)).map(|entry| &entry.kind) {
            Some(TreeKind::File(bytes)) => bytes,
            other => panic!("{relative} is not a regular file: {other:?}"),
        }
    }

    /// Returns the first path that differs, with its state in both trees, as text.
    pub fn difference(&self, other: &Tree) -> Option<String> {
        let names = self.0.keys().chain(other.0.keys());
        let mut different = names.filter(|name| self.0.get(*name) != other.0.get(*name));
        different.next().map(|name| format!("{}: {:?} / {:?}", name.display(), self.0.get(name), other.0.get(name)))
    }
}
