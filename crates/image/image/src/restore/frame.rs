//! The parts of a tree that need no pack. Before the files: directories, links, and files that are
//! empty or have several pieces. After the files: hard links, and the metadata of all these.
//!
//! Unaware of: packs.

use std::fs::File;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::file::{Settle, is_made_before, path_of};
use super::unset::Unset;
use crate::ImageError;
use crate::place::Site;
use crate::tree::{NodeKind, Tree};

/// Creates what must exist before the files.
pub(super) fn before(tree: &Tree, site: &Site) -> Result<(), ImageError> {
    for (number, node) in (0..).zip(&tree.nodes) {
        let path = || path_of(tree, number);
        let made = match node.kind {
            NodeKind::Directory(_) => rustix::fs::mkdirat(site.inside(), path(), Mode::RWXU),
            NodeKind::Link(target) => rustix::fs::symlinkat(tree.target(target), site.inside(), path()),
            NodeKind::Fifo => rustix::fs::mknodat(site.inside(), path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0),
            NodeKind::File { size, pieces, .. } if is_made_before(tree, pieces) => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::openat(site.inside(), path(), flags, Mode::RUSR | Mode::WUSR);
                file.and_then(|file| rustix::fs::ftruncate(file, size))
            }
            NodeKind::File { .. } | NodeKind::Again(_) => Ok(()),
        };
        made.map_err(|error| ImageError::io("create it", &site.shown(&tree.path(number)))(error))?;
    }
    Ok(())
}

/// Creates hard links and sets metadata, from the last node to the first. A directory is finished
/// before its parent, because that changes the parent's times, and the parent's mode may deny
/// access.
pub(super) fn after(tree: &Tree, site: &Site, unset: &Unset) -> Result<(), ImageError> {
    let settle = Settle::new(tree, unset);
    for (number, node) in (0..tree.nodes.len() as u32).zip(&tree.nodes).rev() {
        let NodeKind::Again(file) = node.kind else { continue };
        let (from, to) = (path_of(tree, file), path_of(tree, number));
        let linked = rustix::fs::linkat(site.inside(), from, site.inside(), to, AtFlags::empty());
        linked.map_err(|error| ImageError::io("link it", &site.shown(&tree.path(number)))(error))?;
    }
    for (number, node) in (0..tree.nodes.len() as u32).zip(&tree.nodes).rev() {
        let path = || path_of(tree, number);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = || rustix::fs::openat(site.inside(), path(), flags, Mode::empty()).map(File::from);
        let settled = match node.kind {
            NodeKind::Directory(_) => open().map_err(Into::into).and_then(|dir| settle.all(dir, node, 0o700)),
            NodeKind::Link(_) => settle.link(site, &path(), node),
            NodeKind::Again(_) => Ok(()),
            NodeKind::File { pieces, .. } if !is_made_before(tree, pieces) => Ok(()),
            NodeKind::File { .. } | NodeKind::Fifo => {
                open().map_err(Into::into).and_then(|file| settle.all(file, node, 0o600))
            }
        };
        settled.map_err(|error| ImageError::io("set its mode and times", &site.shown(&tree.path(number)))(error))?;
    }
    Ok(())
}
