//! Reads the files below a directory, and restores them.
//!
//! Files that did not change are not touched by a restoration, so inputs keep their inode and
//! ctime. A cache may look at those.
//!
//! Unaware of: why files are restored.

use crate::change::{make_fifo, remove, set_time};
use crate::spawn::writing;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, directory or link below the root.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its type and content.
    pub kind: Kind,
    /// Its permission bits.
    pub mode: u32,
    /// Its user and group.
    pub owner: (u32, u32),
    /// Its mtime: seconds since 1970, nanoseconds.
    pub time: (i64, i64),
    /// Its device and inode.
    pub id: (u64, u64),
    /// All paths of the same file below the root, in order. Without hard links it is only its own.
    pub peers: Vec<PathBuf>,
}

/// The type and content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with these bytes.
    File(Arc<[u8]>),
    /// A directory.
    Directory,
    /// A symbolic link with this target.
    Link(PathBuf),
    /// A FIFO.
    Fifo,
    /// Another type.
    Special,
}

impl Kind {
    /// Returns the type in a word, for messages.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::File(_) => "file",
            Kind::Directory => "directory",
            Kind::Link(_) => "link",
            Kind::Fifo => "fifo",
            Kind::Special => "special file",
        }
    }
}

/// All entries below a root, by their relative paths.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// Reads everything below `root`.
pub fn read(root: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    read_below(root, Path::new(""), &mut tree)?;
    let mut names = BTreeMap::<(u64, u64), Vec<PathBuf>>::new();
    for (name, entry) in tree.iter().filter(|(_, entry)| matches!(entry.kind, Kind::File(_))) {
        names.entry(entry.id).or_default().push(name.clone());
    }
    for entry in tree.values_mut() {
        entry.peers = names.get(&entry.id).cloned().unwrap_or_default();
    }
    Ok(tree)
}

fn read_below(root: &Path, below: &Path, tree: &mut Tree) -> Result<()> {
    let dir = root.join(below);
    for item in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let name = below.join(item?.file_name());
        let path = root.join(&name);
        // A process that still runs may remove files meanwhile.
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let kind = kind_of(&path, &meta);
        let is_directory = kind == Kind::Directory;
        let time = (meta.mtime(), meta.mtime_nsec());
        let (owner, id) = ((meta.uid(), meta.gid()), (meta.dev(), meta.ino()));
        tree.insert(name.clone(), Entry { kind, mode: meta.mode() & 0o7777, owner, time, id, peers: Vec::new() });
        if is_directory {
            read_below(root, &name, tree)?;
        }
    }
    Ok(())
}

/// Reads an entry. A file that cannot be read (unless we are root) counts as empty.
fn kind_of(path: &Path, meta: &fs::Metadata) -> Kind {
    let kind = meta.file_type();
    if kind.is_file() {
        Kind::File(fs::read(path).unwrap_or_default().into())
    } else if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Link(fs::read_link(path).unwrap_or_default())
    } else if kind.is_fifo() {
        Kind::Fifo
    } else {
        Kind::Special
    }
}

/// Restores everything below `root` to `wanted`. Returns true if anything had to be changed.
pub fn put_back(root: &Path, wanted: &Tree) -> Result<bool> {
    let mut found = read(root)?;
    let mut changed = remove_strangers(root, wanted, &mut found)?;
    for (name, entry) in wanted {
        if !found.contains_key(name) {
            make(root, name, entry, wanted, &found)?;
            changed = true;
        }
    }
    // Children come before their directories, because a change of a child changes the mtime of its
    // directory.
    for (name, entry) in wanted.iter().rev() {
        changed |= repair(&root.join(name), entry)?;
    }
    Ok(changed)
}

/// Removes what is not in `wanted` or has another type there, from the disk and from `found`.
fn remove_strangers(root: &Path, wanted: &Tree, found: &mut Tree) -> Result<bool> {
    let stays = |name: &PathBuf, entry: &Entry| wanted.get(name).is_some_and(|wanted| is_kin(wanted, entry));
    let strangers: Vec<PathBuf> =
        found.iter().rev().filter(|(name, entry)| !stays(name, entry)).map(|(name, _)| name.clone()).collect();
    for name in &strangers {
        remove(&root.join(name)).with_context(|| format!("cannot remove {}", name.display()))?;
        found.retain(|other, _| !other.starts_with(name));
    }
    Ok(!strangers.is_empty())
}

/// Returns true if the existing entry can be changed into the wanted one without a new inode.
fn is_kin(wanted: &Entry, found: &Entry) -> bool {
    match (&wanted.kind, &found.kind) {
        (Kind::Directory, Kind::Directory) => true,
        (Kind::File(_), Kind::File(_)) => {
            let alone = wanted.peers.len() == 1 && found.peers.len() == 1;
            wanted.id == found.id || alone && is_like(wanted, found)
        }
        _ => wanted.kind == found.kind,
    }
}

/// Another file with the same content, mtime and mode will do as well.
fn is_like(wanted: &Entry, found: &Entry) -> bool {
    (&wanted.kind, wanted.time, wanted.mode) == (&found.kind, found.time, found.mode)
}

fn make(root: &Path, name: &Path, entry: &Entry, wanted: &Tree, found: &Tree) -> Result<()> {
    let path = root.join(name);
    let is_there = |peer: &&PathBuf| {
        let earlier = peer.as_path() < name && wanted.contains_key(*peer);
        peer.as_path() != name && (found.contains_key(*peer) || earlier && root.join(peer).exists())
    };
    let peer = entry.peers.iter().find(is_there);
    match (&entry.kind, peer) {
        (Kind::File(_), Some(peer)) => fs::hard_link(root.join(peer), &path)?,
        (Kind::File(bytes), None) => writing(|| fs::write(&path, bytes))?,
        (Kind::Directory, _) => fs::create_dir(&path)?,
        (Kind::Link(target), _) => symlink(target, &path)?,
        (Kind::Fifo, _) => make_fifo(&path)?,
        (Kind::Special, _) => anyhow::bail!("{} cannot be put back", name.display()),
    }
    Ok(())
}

fn repair(path: &Path, wanted: &Entry) -> Result<bool> {
    let meta = fs::symlink_metadata(path).with_context(|| format!("{} is not there", path.display()))?;
    let mut changed = false;
    if let Kind::File(bytes) = &wanted.kind
        && *fs::read(path).unwrap_or_default() != **bytes
    {
        writing(|| fs::write(path, bytes))?;
        changed = true;
    }
    if (meta.uid(), meta.gid()) != wanted.owner {
        std::os::unix::fs::lchown(path, Some(wanted.owner.0), Some(wanted.owner.1))?;
        changed = true;
    }
    let is_link = matches!(wanted.kind, Kind::Link(_));
    if !is_link && meta.mode() & 0o7777 != wanted.mode {
        fs::set_permissions(path, Permissions::from_mode(wanted.mode))?;
        changed = true;
    }
    let meta = fs::symlink_metadata(path)?;
    if (meta.mtime(), meta.mtime_nsec()) != wanted.time {
        set_time(path, wanted.time.0, wanted.time.1)?;
        changed = true;
    }
    Ok(changed)
}

/// Sets the mtime of everything below `root` to this many seconds ago.
pub fn age(root: &Path, seconds: i64) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let time_s = i64::try_from(now.as_secs())? - seconds;
    // The order does not matter here, because setting the mtime of a child does not change its
    // directory.
    for name in read(root)?.keys().rev() {
        set_time(&root.join(name), time_s, 0)?;
    }
    set_time(root, time_s, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(tree: &Tree) -> Vec<(u64, u64)> {
        tree.values().map(|entry| entry.id).collect()
    }

    fn place() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().expect("can be made");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).expect("can be made");
        fs::write(at("d/a"), "a").expect("can be written");
        fs::hard_link(at("d/a"), at("d/b")).expect("can be linked");
        fs::write(at("c"), "c").expect("can be written");
        symlink("c", at("l")).expect("can be linked");
        age(dir.path(), 100).expect("can be aged");
        let tree = read(dir.path()).expect("can be read");
        (dir, tree)
    }

    #[test]
    fn what_did_not_change_is_not_touched() {
        let (dir, before) = place();
        assert!(!put_back(dir.path(), &before).expect("can be put back"));
        assert_eq!(ids(&before), ids(&read(dir.path()).expect("can be read")));
    }

    #[test]
    fn everything_comes_back() {
        let (dir, before) = place();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("d/b"), "other").expect("can be written");
        remove(&at("d/a")).expect("can be removed");
        remove(&at("l")).expect("can be removed");
        fs::create_dir(at("l")).expect("can be made");
        fs::write(at("l/new"), "").expect("can be written");
        fs::set_permissions(at("c"), Permissions::from_mode(0o600)).expect("can be set");
        assert!(put_back(dir.path(), &before).expect("can be put back"));
        let after = read(dir.path()).expect("can be read");
        let seen = |tree: &Tree| {
            let one = |(name, entry): (&PathBuf, &Entry)| {
                (name.clone(), entry.kind.clone(), entry.mode, entry.time, entry.peers.clone())
            };
            tree.iter().map(one).collect::<Vec<_>>()
        };
        assert_eq!(seen(&before), seen(&after));
        assert_eq!(before[Path::new("c")].id, after[Path::new("c")].id, "an input keeps its inode");
    }
}
