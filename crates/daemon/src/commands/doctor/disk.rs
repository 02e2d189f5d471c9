//! Checks the store's directory and its file system, and whether the stat cache works there and in
//! the working directory.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use larder_store::{Counters, Store, StoreError};
use rustix::fs::{Access, StatVfs};

use super::check::{Check, note, ok, problem};
use crate::say;
use crate::surroundings::Surroundings;

/// With less free space, a build may fill the disk before the store reaches its limit.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// The size of the test file, large enough for a file system that shares only whole blocks.
const REFLINK_BYTES: usize = 1 << 16;

/// File systems by the magic number that `statfs` returns (`linux/magic.h`): the name, and whether
/// the files are on another machine.
const FILE_SYSTEMS: &[(u64, &str, bool)] = &[
    (0x0000_6969, "nfs", true),
    (0x0000_EF53, "ext4", false),
    (0x0102_1994, "tmpfs", false),
    (0x0102_1997, "9p", true),
    (0x2FC1_2FC1, "zfs", false),
    (0x5346_544E, "ntfs", false),
    (0x5846_5342, "xfs", false),
    (0x6573_5546, "fuse", false),
    (0x794C_7630, "overlay", false),
    (0x8584_58F6, "ramfs", false),
    (0x9123_683E, "btrfs", false),
    (0xCA45_1A4E, "bcachefs", false),
    (0xF2F5_2010, "f2fs", false),
    (0xFE53_4D42, "smb", true),
    (0xFF53_4D42, "cifs", true),
];

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let mut checks = Vec::new();
    let store = around.settings().dir.as_deref().map(Store::open);
    let trusted = match &store {
        None => {
            checks.push(problem("store", "its directory is not known: set LARDER_DIR to a directory"));
            None
        }
        Some(Err(error)) => {
            checks.push(problem("store", unusable(error)));
            None
        }
        Some(Ok(store)) => {
            checks.push(directory(around, store));
            checks.extend(replaceable(store));
            checks.extend(file_system(store));
            checks.push(size(around, store));
            checks.extend(store.old_formats().iter().map(|path| earlier(path)));
            Some(existing(store.directory()))
        }
    };
    for (what, path) in [("stamps", trusted), ("stamps here", around.cwd.as_deref())] {
        checks.extend(path.map(|path| stat_cache(what, path)));
    }
    checks
}

fn unusable(error: &StoreError) -> String {
    match error {
        StoreError::Unsafe { .. } => error.to_string(),
        _ => format!("{error}: use another directory (LARDER_DIR), or make this one readable"),
    }
}

/// Returns the directory, or its nearest parent that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"))
}

/// Returns the nearest parent that exists if a store cannot be created in it.
pub(in crate::commands) fn uncreatable(store: &Path) -> Option<&Path> {
    let there = existing(store);
    let is_writable = there.is_dir() && rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    (!is_writable).then_some(there)
}

fn directory(around: &Surroundings, store: &Store) -> Check {
    let shown = store.directory().display();
    if !store.directory().exists() {
        return match uncreatable(store.directory()) {
            None => ok("store", format!("{shown}: not created yet, and can be created")),
            Some(there) => {
                problem("store", format!("{shown} cannot be created in {}: set LARDER_DIR", there.display()))
            }
        };
    }
    if let Err(error) = store.inspect() {
        return problem("store", unusable(&error));
    }
    if around.settings().read_only {
        return ok("store", format!("{shown}, used read-only (LARDER_READ_ONLY)"));
    }
    match store.nameless_file() {
        Ok(_) => ok("store", format!("{shown}: writable, and closed to other users")),
        Err(error) if error.refuses_writing() => match larder_ipc::listens(&store.daemon_socket()) {
            Ok(()) => ok("store", format!("{shown}: read-only here; larderd accepts new records")),
            Err(_) => {
                let how = "make it writable, set LARDER_DIR, or run `larder daemon start` where it is writable";
                problem("store", format!("{error}: {how}"))
            }
        },
        Err(error) => problem("store", format!("{error}: make it writable, or set LARDER_DIR")),
    }
}

/// Returns a note if another user could replace a directory above the store, and so put another
/// store at its path. A store that belongs to another user is refused, so only the cache is lost.
fn replaceable(store: &Store) -> Option<Check> {
    const STICKY: u32 = 0o1000;
    let there = existing(store.directory());
    let real = there.canonicalize().ok()?;
    let open = |above: &&Path| {
        above.metadata().is_ok_and(|meta| {
            let own = [0, larder_sys::effective_user()].contains(&meta.uid());
            !own || meta.mode() & 0o022 != 0 && meta.mode() & STICKY == 0
        })
    };
    let above = real.ancestors().skip(usize::from(there == store.directory())).find(open)?;
    let found = format!(
        "{}: other users can rename its contents, even the store: set LARDER_DIR to another place",
        above.display()
    );
    Some(note("store", found))
}

fn file_system(store: &Store) -> Vec<Check> {
    let there = existing(store.directory());
    let Ok(about) = rustix::fs::statfs(there) else { return Vec::new() };
    let magic = u64::from(about.f_type as u32);
    let known = FILE_SYSTEMS.iter().find(|(number, ..)| *number == magic);
    let name = known.map_or(format!("file system {magic:#x}"), |(_, name, _)| (*name).to_owned());
    let mut checks = Vec::new();
    if known.is_some_and(|(.., remote)| *remote) {
        let found = format!(
            "{name}, on another machine: slower, and counters may be inexact; set LARDER_DIR to a local directory"
        );
        checks.push(note("file system", found));
    } else {
        let reflink = match store.directory().exists().then(|| reflink(store)) {
            Some(Some(true)) => "reflink works: outputs on the same file system share their blocks with the store",
            Some(Some(false)) => "no reflink, so outputs are copied",
            _ => "reflink not tested",
        };
        checks.push(ok("file system", format!("{name}: {reflink}")));
    }
    if let Ok(space) = rustix::fs::statvfs(there) {
        checks.push(free_space(&space));
    }
    checks
}

/// Returns true if two files in the store can share blocks, or `None` if that could not be tested.
fn reflink(store: &Store) -> Option<bool> {
    let (from, to) = (store.nameless_file().ok()?, store.nameless_file().ok()?);
    std::os::unix::fs::FileExt::write_all_at(&from, &[1; REFLINK_BYTES], 0).ok()?;
    Some(rustix::fs::ioctl_ficlone(&to, &from).is_ok())
}

fn free_space(space: &StatVfs) -> Check {
    let bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let found = format!("{} free", say::bytes(bytes));
    // Some file systems report no number of inodes.
    if space.f_files > 0 && space.f_favail == 0 {
        return problem(
            "free space",
            format!("{found}, but no free inode: remove files, or set LARDER_DIR to another disk"),
        );
    }
    match bytes {
        0 => problem("free space", "none: remove files, or set LARDER_DIR to another disk"),
        1..FREE_BYTES_MIN => note("free space", format!("{found}: lower max_size, or set LARDER_DIR to another disk")),
        _ => ok("free space", found),
    }
}

fn size(around: &Surroundings, store: &Store) -> Check {
    let limit_bytes = around.settings().max_size_bytes;
    let size_bytes = Counters::read(store).store_bytes;
    let found = format!("about {} of {}", say::bytes(size_bytes), say::limit(limit_bytes));
    if limit_bytes > 0 && size_bytes > limit_bytes {
        return note("size", format!("{found}: `larder evict` reduces it now"));
    }
    ok("size", found)
}

/// Reports a store of an earlier format, which counts towards no limit.
fn earlier(path: &Path) -> Check {
    let when = "eviction removes it after a week without use, `larder clear` removes it now";
    note("store", format!("{} is of an earlier version of larder: {when}", path.display()))
}

fn stat_cache(what: &str, path: &Path) -> Check {
    let shown = path.display();
    if larder_sys::boot_id().is_err() {
        return note(what, "the system has no boot_id, so file times are not trusted: a hit reads every file");
    }
    let asked = File::open(path).and_then(|dir| Ok((larder_sys::file_trust(&dir)?, larder_sys::fstat(&dir)?)));
    let (trust, stat) = match asked {
        Ok(asked) => asked,
        Err(error) => return note(what, format!("{shown}: {error}; a hit reads every file there")),
    };
    // The value of `larder_sys::Stat::volume` if mounts cannot be told apart.
    let nameless = stat.volume == 1 << 63;
    match (trust.files && !nameless, trust.directories && !nameless) {
        (true, true) => ok(what, format!("{shown}: times of files and directories are trusted")),
        (true, false) => {
            ok(what, format!("{shown}: times of files are trusted; paths that must not exist are checked one by one"))
        }
        (false, _) => {
            let found = format!(
                "{shown}: times are not trusted on this file system: a hit reads every file; a checkout on ext4, xfs or btrfs is faster"
            );
            note(what, found)
        }
    }
}
