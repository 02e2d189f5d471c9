//! Restoring a file: its content, owner, attributes, mode and times.
//!
//! Unaware of: where packs come from, how the path gets into place.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use larder_model::PIECE_BYTES;
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};

use super::unset::Unset;
use crate::ImageError;
use crate::place::{Site, TOP};
use crate::tree::{Extent, Node, NodeKind, Span, Tree, piece_length};

/// Set-user-id and set-group-id. They are not set if the file gets another owner than it had.
const RIGHTS: u32 = 0o6000;

/// Writes the files of a tree. Each thread has its own.
pub(super) struct Writer<'a> {
    tree: &'a Tree,
    site: &'a Site,
    settle: Settle<'a>,
    /// The directory of the last file, because the next file is mostly in the same one.
    opened: Option<(u32, OwnedFd)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(tree: &'a Tree, site: &'a Site, unset: &'a Unset) -> Self {
        Writer { tree, site, settle: Settle::new(tree, unset), opened: None }
    }

    /// Writes a piece of a file, which is at the beginning of `bytes`. A file of a single piece is
    /// created and finished here; others exist already. Returns the length of the piece.
    pub(super) fn write(&mut self, number: u32, piece: u64, bytes: &[u8]) -> Result<u64, ImageError> {
        let node = &self.tree.nodes[number as usize];
        let NodeKind::File { size, pieces, extents } = node.kind else { return Ok(0) };
        let length = piece_length(size, piece);
        let bytes = &bytes[..length as usize];
        let is_whole = pieces.range().len() == 1;
        let flags = if is_whole { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
        let file = self.open(number, flags | OFlags::WRONLY, node.mode)?;
        let failed = |error: std::io::Error| self.failed("write it", number, error);
        if extents.range().is_empty() {
            file.write_all_at(bytes, piece * PIECE_BYTES).map_err(failed)?;
        } else {
            if is_whole {
                file.set_len(size).map_err(failed)?;
            }
            write_extents(&file, &self.tree.extents[extents.range()], piece * PIECE_BYTES, bytes).map_err(failed)?;
        }
        if is_whole {
            self.settle.file(&file, node).map_err(|error| self.failed("set its mode and times", number, error))?;
        }
        Ok(length)
    }

    /// Opens a file of the tree, by the descriptor of its directory.
    fn open(&mut self, number: u32, flags: OFlags, mode: u16) -> Result<File, ImageError> {
        let (tree, site) = (self.tree, self.site);
        let node = &tree.nodes[number as usize];
        let mode = Mode::from_raw_mode(u32::from(mode) & 0o777);
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if number == 0 {
            let opened = rustix::fs::openat(site.inside(), TOP, flags, mode);
            return opened.map(File::from).map_err(|error| self.failed("create it", number, error));
        }
        if self.opened.as_ref().is_none_or(|(parent, _)| *parent != node.parent) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let opened = rustix::fs::openat(site.inside(), path_of(tree, node.parent).as_slice(), flags, Mode::empty());
            let dir = opened.map_err(|error| self.failed("open its directory", number, error))?;
            self.opened = Some((node.parent, dir));
        }
        let (_, dir) = self.opened.as_ref().expect("the directory was opened above");
        let opened = rustix::fs::openat(dir, tree.name(node), flags, mode);
        opened.map(File::from).map_err(|error| self.failed("create it", number, error))
    }

    fn failed(&self, doing: &'static str, number: u32, error: impl Into<std::io::Error>) -> ImageError {
        ImageError::io(doing, &self.site.shown(&self.tree.path(number)))(error)
    }
}

/// Writes the parts of a piece that are not holes. The piece begins at `offset` in the file.
fn write_extents(file: &File, written: &[Extent], offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    for extent in written {
        let from = extent.offset.max(offset);
        let to = (extent.offset + extent.length).min(offset + bytes.len() as u64);
        if from < to {
            file.write_all_at(&bytes[(from - offset) as usize..(to - offset) as usize], from)?;
        }
    }
    Ok(())
}

/// Returns a node's path relative to the work directory.
pub(super) fn path_of(tree: &Tree, number: u32) -> Vec<u8> {
    let below = tree.path(number);
    if below.is_empty() { TOP.into() } else { [TOP.as_bytes(), b"/", &below].concat() }
}

/// Sets owner, attributes, mode and times, in this order. Each may change the later ones, and the
/// mode may forbid the owner to set attributes.
pub(super) struct Settle<'a> {
    tree: &'a Tree,
    unset: &'a Unset,
    umask: u16,
    is_superuser: bool,
}

impl<'a> Settle<'a> {
    pub(super) fn new(tree: &'a Tree, unset: &'a Unset) -> Self {
        // If the umask is unknown, every mode is set explicitly.
        let umask = larder_sys::umask_beside_threads().unwrap_or(0o777) as u16;
        Settle { tree, unset, umask, is_superuser: larder_sys::effective_user() == 0 }
    }

    /// For a file that was created with its mode, reduced by the umask.
    pub(super) fn file(&self, file: &File, node: &Node) -> std::io::Result<()> {
        self.all(file, node, node.mode & 0o777 & !self.umask)
    }

    /// For anything that was created with `mode`.
    pub(super) fn all(&self, file: impl AsFd, node: &Node, mode: u16) -> std::io::Result<()> {
        let is_theirs = self.owner(&file, node)?;
        let mut wanted = u32::from(node.mode);
        if !is_theirs {
            wanted &= !RIGHTS;
        }
        let set = &self.tree.sets[node.set as usize];
        let may_not_write = u32::from(mode) & Mode::WUSR.bits() == 0;
        if !set.is_empty() && may_not_write {
            rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        }
        for (name, value) in set {
            if rustix::fs::fsetxattr(&file, OsStr::from_bytes(name), value, XattrFlags::empty()).is_err() {
                self.unset.attributes.fetch_add(1, Relaxed);
            }
        }
        // Changing the owner clears some mode bits, and an ACL changes them.
        if wanted != u32::from(mode) || node.owner != 0 || !set.is_empty() {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(wanted))?;
        }
        Ok(rustix::fs::futimens(&file, &times(node))?)
    }

    /// Sets the owner. Returns false if the file belonged to another user than the saver, and gets
    /// our user instead.
    fn owner(&self, file: impl AsFd, node: &Node) -> std::io::Result<bool> {
        match (node.owner, self.is_superuser) {
            (0, _) => Ok(true),
            (_, false) => {
                self.unset.owners.fetch_add(1, Relaxed);
                Ok(false)
            }
            (owner, true) => {
                let (user, group) = self.tree.owners[owner as usize];
                std::os::unix::fs::fchown(file, Some(user), Some(group)).map(|()| true)
            }
        }
    }

    /// Sets the metadata of a symbolic link, by its path in the work directory. It has no mode.
    pub(super) fn link(&self, site: &Site, path: &[u8], node: &Node) -> std::io::Result<()> {
        use rustix::fs::{AtFlags, Gid, Uid};
        if node.owner != 0 && self.is_superuser {
            let (user, group) = self.tree.owners[node.owner as usize];
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chownat(site.inside(), path, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        } else if node.owner != 0 {
            self.unset.owners.fetch_add(1, Relaxed);
        }
        Ok(rustix::fs::utimensat(site.inside(), path, &times(node), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn times(node: &Node) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: node.modified.0, tv_nsec: node.modified.1.into() },
    }
}

/// Returns whether a file is created before packs arrive: it has no data, or more than one piece.
pub(super) fn is_made_before(tree: &Tree, pieces: Span) -> bool {
    let blocks = &tree.blocks[pieces.range()];
    blocks.len() != 1 || blocks[0] == crate::tree::HOLE
}
