//! Snapshots: a tree as it was found, with the stat of each name, and the digests of contents once
//! they are known.
//!
//! Unaware of: packs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use larder_model::Digest;
use larder_sys::{Dir, Stat};

use super::scan::{EntryKind, Scanned, ScannedEntry};
use crate::tree::{Grower, NODES_MAX, NodeKind, NodeMetadata, Span, Tree};
use crate::{ImageError, Progress, threads};

/// The names that a thread takes at once.
const NAMES_AT_ONCE: usize = 512;
const NO_DIGEST: Digest = Digest([0; 32]);

/// A snapshot.
pub(super) struct Snapshot {
    pub(super) root: PathBuf,
    pub(super) tree: Tree,
    /// The stat of each node.
    pub(super) looks: Vec<Stat>,
    /// The digest of each of the tree's pieces.
    pub(super) digests: Vec<Digest>,
}

impl Snapshot {
    /// Builds the snapshot of what was found at `root`.
    pub(super) fn new(root: &Path, scanned: Scanned) -> Result<Snapshot, ImageError> {
        let saver = (larder_sys::effective_user(), larder_sys::effective_group());
        let mut growing = Growing {
            grower: Grower::new(saver),
            looks: Vec::new(),
            seen: HashMap::new(),
            directories: scanned.directories,
        };
        let top = growing.add(0, scanned.top)?;
        let mut open: Vec<(u32, usize)> = top.into_iter().collect();
        while let Some((node, number)) = open.pop() {
            let from = growing.grower.len();
            let mut below = Vec::new();
            for entry in std::mem::take(&mut growing.directories[number]) {
                below.extend(growing.add(node, entry)?);
            }
            growing.grower.close(node, from);
            open.extend(below.into_iter().rev());
        }
        let tree = growing.grower.done();
        let digests = vec![NO_DIGEST; tree.blocks.len()];
        Ok(Snapshot { root: root.to_owned(), tree, looks: growing.looks, digests })
    }

    /// Returns the full path of a node.
    pub(super) fn path(&self, node: u32) -> PathBuf {
        match self.tree.path(node).as_slice() {
            b"" => self.root.clone(),
            below => self.root.join(OsStr::from_bytes(below)),
        }
    }

    /// Returns the files that are not empty: node, size in bytes, pieces.
    pub(super) fn files(&self) -> impl Iterator<Item = (u32, u64, Span)> + '_ {
        (0..).zip(&self.tree.nodes).filter_map(|(number, node)| match node.kind {
            NodeKind::File { size, pieces, .. } if size > 0 => Some((number, size, pieces)),
            _ => None,
        })
    }

    /// Stats every name again, and fails if anything has changed since the scan.
    pub(super) fn look_again(&self, progress: &Progress) -> Result<(), ImageError> {
        let jobs = self.tree.nodes.len().div_ceil(NAMES_AT_ONCE);
        let seen = Mutex::new(());
        threads::each(jobs, Opened::default, |opened, job| {
            let to = ((job + 1) * NAMES_AT_ONCE).min(self.tree.nodes.len());
            for number in job * NAMES_AT_ONCE..to {
                let now = opened.of(self, number as u32, |dir, name| dir.lstat(name))?;
                if !is_same(&now, &self.looks[number]) {
                    let _first = seen.lock();
                    return Err(ImageError::Changed(self.path(number as u32)));
                }
            }
            progress.add((to - job * NAMES_AT_ONCE) as u64);
            Ok(())
        })
    }
}

/// Returns whether two stats are of the same unchanged file. For directories size and ctime are
/// ignored.
fn is_same(now: &Stat, then: &Stat) -> bool {
    let content =
        |stat: &Stat| (stat.kind, stat.inode, stat.device, stat.modified_ns, stat.mode, stat.owner, stat.group);
    let is_directory = matches!(now.kind, larder_sys::FileType::Directory);
    content(now) == content(then)
        && (is_directory || (now.size_bytes, now.changed_ns) == (then.size_bytes, then.changed_ns))
}

struct Growing {
    grower: Grower,
    looks: Vec<Stat>,
    /// By device and inode: the first node of each file with several names.
    seen: HashMap<(u64, u64), u32>,
    directories: Vec<Vec<ScannedEntry>>,
}

impl Growing {
    /// Adds a node. For a directory, returns it with its number among the scanned directories.
    fn add(&mut self, parent: u32, entry: ScannedEntry) -> Result<Option<(u32, usize)>, ImageError> {
        if self.looks.len() as u64 >= NODES_MAX {
            return Err(ImageError::TooLarge("67 million names"));
        }
        let ScannedEntry { name, stat, attributes, kind } = entry;
        let identity = (stat.device, stat.inode);
        let is_again = stat.links > 1 && !matches!(kind, EntryKind::Directory(_));
        let first = if is_again { self.seen.get(&identity).copied() } else { None };
        let known = NodeMetadata {
            mode: (stat.mode & 0o7777) as u16,
            owner: (stat.owner, stat.group),
            modified: (stat.modified_ns.div_euclid(1_000_000_000), stat.modified_ns.rem_euclid(1_000_000_000) as u32),
            attributes,
        };
        let (kind, directory) = match (first, kind) {
            (Some(first), _) => (NodeKind::Again(first), None),
            (None, EntryKind::File) => (self.grower.file(stat.size_bytes), None),
            (None, EntryKind::Directory(number)) => (NodeKind::Directory(Span::default()), Some(number)),
            (None, EntryKind::Link(target)) => (self.grower.link(&target), None),
            (None, EntryKind::Fifo) => (NodeKind::Fifo, None),
        };
        let node = self.grower.add(parent, &name, known, kind);
        self.looks.push(stat);
        if is_again && first.is_none() {
            self.seen.insert(identity, node);
        }
        Ok(directory.map(|number| (node, number)))
    }
}

/// The directory of the last node, because the next node is mostly in the same one.
#[derive(Default)]
pub(super) struct Opened(Option<(u32, PathBuf, Dir)>);

impl Opened {
    /// Calls `ask` with a node's directory and name.
    pub(super) fn of<T>(
        &mut self,
        snapshot: &Snapshot,
        node: u32,
        ask: impl FnOnce(&Dir, &[u8]) -> std::io::Result<T>,
    ) -> Result<T, ImageError> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => ImageError::Changed(snapshot.path(node)),
            _ => ImageError::io("read it", &snapshot.path(node))(error),
        };
        if node == 0 && matches!(snapshot.tree.nodes[0].kind, NodeKind::Directory(_)) {
            // The path may end in `..`, or be a link with a trailing slash.
            let dir = Dir::open(snapshot.root.as_os_str().as_bytes(), false).map_err(failed)?;
            return ask(&dir, b".").map_err(failed);
        }
        if node == 0 {
            let root = &snapshot.root;
            let parent = root.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let dir = Dir::open(parent.as_os_str().as_bytes(), false).map_err(failed)?;
            return ask(&dir, root.file_name().map_or(b".", OsStrExt::as_bytes)).map_err(failed);
        }
        let parent = snapshot.tree.nodes[node as usize].parent;
        if self.0.as_ref().is_none_or(|(known, root, _)| *known != parent || *root != snapshot.root) {
            let dir = Dir::open(snapshot.path(parent).as_os_str().as_bytes(), false).map_err(failed)?;
            self.0 = Some((parent, snapshot.root.clone(), dir));
        }
        let (_, _, dir) = self.0.as_ref().expect("the directory was opened above");
        ask(dir, snapshot.tree.name(&snapshot.tree.nodes[node as usize])).map_err(failed)
    }
}
