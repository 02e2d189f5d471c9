//! Fills the stat cache for wrappers that cannot write to it. It hashes the system files that a
//! record relied on, and the blobs of the record. The next sandbox then need not read compilers and
//! headers to know that they are unchanged.
//!
//! Only paths are taken from the wrapper, but the sandbox can read the stat cache, and with it the
//! digests of files. So a file is hashed only if every user of the machine may read it:
//!
//! 1. The file and all its parent directories belong to root.
//! 2. No other user can write to any of them.
//! 3. All users may read the file and search the directories.
//!
//! A sandbox can hide such a file from its processes, but then only the digest of a public file is
//! revealed.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use larder_model::{Fact, Manifest, PLACEHOLDER};
use larder_store::{STAMP_AGE_MIN_NS, StatCache, Store};
use larder_sys::{FileType, Opening, Stat};

/// The wait before files are hashed, because files that were written just now get no stat cache
/// entry yet.
const AGE: Duration = Duration::from_nanos(STAMP_AGE_MIN_NS as u64 + 10_000_000);
/// The field of a walk that holds the tool's path.
const TOOL: &[u8] = b"tool path";
const SUPERUSER: u32 = 0;
/// Permission bits: write for the group and for others.
const OTHERS_WRITE: u32 = 0o022;
/// Permission bit: read for others.
const ALL_READ: u32 = 0o004;
/// Permission bit: search for others.
const ALL_SEARCH: u32 = 0o001;

/// Adds stat cache entries for the system files that the record in `bytes` relied on, and for its
/// blobs. It does not matter whether the record's observations hold on this machine.
pub(super) fn warm(store: &Store, bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    std::thread::sleep(AGE);
    let stat_cache = StatCache::open(store, true);
    let tools = manifest.fields.iter().filter(|(name, _)| *name == TOOL);
    tools.for_each(|(_, path)| stamp(path, &stat_cache));
    for entry in &manifest.entries {
        let Ok((set, result)) = entry.open() else { continue };
        result.blobs().for_each(|blob| drop(store.open_blob(&blob, &stat_cache)));
        for directory in set.directories.iter().filter(|directory| !directory.path.contains(&PLACEHOLDER)) {
            for named in directory.facts.iter().filter(|named| matches!(named.fact, Fact::Content { .. })) {
                stamp(&[directory.path, b"/", named.name].concat(), &stat_cache);
            }
        }
    }
    let _ = stat_cache.settle(store);
}

/// Hashes a system file and adds its stat cache entry, if it has none yet.
fn stamp(path: &[u8], stat_cache: &StatCache) {
    if let Some((mut file, stat)) = of_the_system(path)
        && stat_cache.content(&stat).is_none()
    {
        let _ = stat_cache.hash(&mut file);
    }
}

/// Opens the file at an absolute path, if every user may read it and only root can change what the
/// path leads to. The returned stat is of the opened file, and opening never blocks.
fn of_the_system(path: &[u8]) -> Option<(File, Stat)> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let real = path.is_absolute().then(|| path.canonicalize().ok())??;
    let is_roots = |stat: &Stat| stat.owner == SUPERUSER && stat.mode & OTHERS_WRITE == 0;
    let is_open_to_all = |above: &Path| {
        let stat = larder_sys::lstat(above.as_os_str().as_bytes());
        stat.is_ok_and(|stat| stat.kind == FileType::Directory && is_roots(&stat) && stat.mode & ALL_SEARCH != 0)
    };
    if !real.ancestors().skip(1).all(is_open_to_all) {
        return None;
    }
    let file = larder_sys::open(real.as_os_str().as_bytes(), Opening::ReadPlain).ok()?;
    let stat = larder_sys::fstat(&file).ok()?;
    (stat.kind == FileType::File && is_roots(&stat) && stat.mode & ALL_READ != 0).then_some((file, stat))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn is_read(path: &Path) -> bool {
        of_the_system(path.as_os_str().as_bytes()).is_some()
    }

    #[test]
    fn what_all_may_read_is_read() {
        let users = Path::new("/etc/passwd");
        assert!(is_read(users), "it belongs to root and is readable for all");
        assert!(!is_read(Path::new("etc/passwd")) && !is_read(Path::new("/etc")) && !is_read(Path::new("/dev/zero")));
    }

    /// The daemon's user can read these files, but a sandbox may not, and must not learn their
    /// digests.
    #[test]
    fn what_is_somebodys_own_is_not_read() {
        if larder_sys::effective_user() != SUPERUSER {
            eprintln!("skipped: only root can make files that belong to root");
            return;
        }
        // A directory in which only root can write.
        let top = tempfile::tempdir_in("/usr/local").expect("a directory");
        let mode =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("is ours");
        let (open, secret) = (top.path().join("open"), top.path().join("secret"));
        std::fs::write(&open, "all").expect("writes");
        std::fs::write(&secret, "PIN=4711").expect("writes");
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).expect("links");
        let fifo = top.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("runs");
        assert!(made.success());
        mode(top.path(), 0o755);
        mode(&open, 0o644);
        mode(&fifo, 0o644);
        mode(&secret, 0o640);
        assert!(is_read(&open));
        assert!(!is_read(&secret), "it is not readable for all");
        assert!(!is_read(&link), "a link to it is not followed either");
        assert!(!is_read(&fifo), "a FIFO is no regular file, and opening it must not block");
        mode(&open, 0o664);
        assert!(!is_read(&open), "the group can write to it");
        mode(&open, 0o644);
        mode(top.path(), 0o700);
        assert!(!is_read(&open), "other users cannot search its directory");
        mode(top.path(), 0o777);
        assert!(!is_read(&open), "other users can replace it");
        mode(top.path(), 0o755);
        std::os::unix::fs::chown(&open, Some(65534), None).expect("gives it away");
        assert!(!is_read(&open), "it does not belong to root");
    }
}
