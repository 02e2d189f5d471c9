//! An image as the entries of an archive, sorted: a directory is before its content.
//!
//! Unaware of: archive formats.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::tree::{Node, NodeKind, Tree};
use crate::{Image, ImageError};

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(super) struct ArchiveEntry {
    /// Its path. It is never empty, and that of a directory has no trailing slash.
    pub(super) path: Vec<u8>,
    /// The number of the saved path, and of the node in its tree.
    pub(super) saved: usize,
    pub(super) node: u32,
    /// For a hard link, the path of the first name.
    pub(super) first: Option<Vec<u8>>,
    /// The user and group that get the saver's files, if not the saver.
    saver: Option<(u32, u32)>,
}

impl ArchiveEntry {
    pub(super) fn tree<'a>(&self, image: &'a Image) -> &'a Tree {
        &image.trees[self.saved]
    }

    /// Returns its node; for a hard link the node of the first name.
    pub(super) fn known<'a>(&self, image: &'a Image) -> &'a Node {
        let tree = self.tree(image);
        let node = &tree.nodes[self.node as usize];
        match node.kind {
            NodeKind::Again(first) => &tree.nodes[first as usize],
            _ => node,
        }
    }

    /// Returns its user and group.
    pub(super) fn owner(&self, image: &Image) -> (u32, u32) {
        let number = self.known(image).owner;
        self.saver.filter(|_| number == SAVER).unwrap_or(self.tree(image).owners[number as usize])
    }

    /// Returns the size of the file, in bytes; 0 for a hard link.
    pub(super) fn size(&self, image: &Image) -> u64 {
        match self.tree(image).nodes[self.node as usize].kind {
            NodeKind::File { size, .. } => size,
            _ => 0,
        }
    }
}

/// The number of the saver among an image's owners.
const SAVER: u32 = 0;

/// Returns all entries of saved paths, under their own names.
pub(super) fn entries(image: &Image, saved: &[usize], to: &Path) -> Result<Vec<ArchiveEntry>, ImageError> {
    let mut all = Vec::new();
    for &saved in saved {
        let top = name_in_archive(&image.record.saved[saved].path, to)?;
        all.extend(entries_below(image, saved, &top, None));
    }
    if saved.len() > 1 {
        let mut seen = HashSet::new();
        if let Some(twice) = all.iter().find(|entry| !seen.insert(&entry.path)) {
            let name = String::from_utf8_lossy(&twice.path);
            let why = format!("two of the image's paths would be {name} in it; name the paths to export");
            return Err(ImageError::archive(to, why));
        }
    }
    Ok(all)
}

/// Returns all entries of a saved path, which gets the name `top`. A directory comes first, then
/// its files, then each of its directories with everything below. So a program that unpacks has
/// finished a directory after its last name, and a file comes before its hard links. For example:
/// `a`, `a/x`, `a/b`, `a/b/y`.
pub(super) fn entries_below(image: &Image, saved: usize, top: &[u8], saver: Option<(u32, u32)>) -> Vec<ArchiveEntry> {
    let mut all = Vec::new();
    let tree = &image.trees[saved];
    let path = |node: u32| match (top, tree.path(node)) {
        (b"", below) if below.is_empty() => b".".to_vec(),
        (b"", below) => below,
        (top, below) if below.is_empty() => top.to_vec(),
        (top, below) => [top, b"/", &below].concat(),
    };
    let entry = |node: u32| {
        let first = match tree.nodes[node as usize].kind {
            NodeKind::Again(first) => Some(path(first)),
            _ => None,
        };
        ArchiveEntry { path: path(node), saved, node, first, saver }
    };
    let mut open = vec![0];
    while let Some(node) = open.pop() {
        all.push(entry(node));
        let NodeKind::Directory(names) = tree.nodes[node as usize].kind else { continue };
        let is_directory = |node: &u32| matches!(tree.nodes[*node as usize].kind, NodeKind::Directory(_));
        let names = names.range().map(|node| node as u32);
        let (directories, others): (Vec<u32>, Vec<u32>) = names.partition(is_directory);
        all.extend(others.into_iter().map(entry));
        open.extend(directories.into_iter().rev());
    }
    all
}

/// Returns a saved path's name in an archive: relative, and without `~/`. For example, `~/.m2`
/// becomes `.m2`.
fn name_in_archive(path: &[u8], to: &Path) -> Result<Vec<u8>, ImageError> {
    let relative = Path::new(OsStr::from_bytes(path.strip_prefix(b"~/").unwrap_or(path)));
    let mut name = PathBuf::new();
    for part in relative.components() {
        match part {
            std::path::Component::Normal(part) => name.push(part),
            std::path::Component::ParentDir => {
                let why = format!("{} leads out of the archive; restore the image instead", relative.display());
                return Err(ImageError::archive(to, why));
            }
            _ => {}
        }
    }
    Ok(name.into_os_string().into_encoded_bytes())
}
