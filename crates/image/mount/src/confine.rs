//! Confines this process before it reads bytes from outside: its own view of the file system, its
//! own user, no capabilities, fewer system calls, limited memory.
//!
//! ```text
//!   new root (tmpfs, read-only)
//!   ├── usr, lib, … certificates, resolv.conf     as they are, read-only
//!   └── the directories that the caller names     read-only or writable, owned by our new user
//! ```
//!
//! A named directory is shown by an ID-mapped mount: files of its owner are shown as those of the new
//! user, and files that this process makes in it belong on the disk to its owner. So nothing has to change its owner, and no other process with the new user's
//! number gets at the files.
//!
//! Unaware of: what the process does.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use larder_sys::{Limits, MountAttributes, OwnerRange};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::landlocked;
use crate::layer::{HARMLESS, LAYER};

/// The number of the user whom a confined process becomes. It owns no file.
pub const USER: u32 = 65_533;

/// What every process needs that runs programs, resolves names and checks certificates. What does
/// not exist is left out. For example, it holds no `/etc`, because some files in it are secret.
const SYSTEM: &[&str] = &[
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/resolv.conf",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/ca-bundle.pem",
    "/etc/static",
    "/var/lib/ca-certificates",
    "/nix/store",
    "/dev/null",
    "/proc/sys/kernel/random/boot_id",
    "/sys/devices/system/cpu/online",
];

/// The files and rights of a confined process.
#[derive(Debug)]
pub struct Confinement<'a> {
    /// Files and directories that it reads. Those that do not exist are left out.
    pub readable: &'a [PathBuf],
    /// Further ones, with everything that is mounted below them.
    pub credentials: &'a [PathBuf],
    /// Files and directories that it reads and writes, each with the path at which it sees it. They
    /// may be below others of these.
    pub writable: &'a [(PathBuf, PathBuf)],
    /// A file that it does not see, even if it is in one of these directories. Its path has no
    /// symbolic links.
    pub hidden: Option<&'a Path>,
    /// If the kernel or the file system has no ID-mapped mounts, it keeps its user, without its
    /// rights. Otherwise it is not confined then.
    pub may_keep_user: bool,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
}

/// The most descriptors, and the most threads of all confined processes together.
const DESCRIPTORS_MAX: u64 = 4096;
const THREADS_MAX: u64 = 16_384;
/// The kernel ends a confined process before others if memory runs out.
const OOM_SCORE: &str = "500";

/// Confines this process, which must be root and have one thread. Returns the reason if it keeps
/// its user. Its capabilities are gone then, too. Fails if it cannot be confined. The process must
/// end then.
pub fn confine(wanted: &Confinement) -> io::Result<Option<String>> {
    let step = |what: &'static str| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    larder_sys::own_mounts().map_err(step("no mount namespace"))?;
    let shown = show(wanted, true).map(|shown| (shown, None)).or_else(|error| {
        let why = format!("files cannot be shown with another owner: {error}");
        if !wanted.may_keep_user {
            return Err(io::Error::new(error.kind(), why));
        }
        let shown = show(wanted, false).map_err(step("a directory cannot be shown"))?;
        Ok((shown, Some(why)))
    });
    let (shown, why_not) = shown?;
    let user = why_not.is_none().then_some(USER);
    let root = new_root(&shown, wanted.hidden, user).map_err(step("no new root directory"))?;
    larder_sys::enter_root(root).map_err(step("the new root directory cannot be entered"))?;
    drop(shown);
    let limits = Limits { memory_bytes: wanted.memory_bytes, descriptors: DESCRIPTORS_MAX, threads: THREADS_MAX };
    larder_sys::limit_ourselves(&limits).map_err(step("no limits"))?;
    larder_sys::give_up_rights(user).map_err(step("rights cannot be given up"))?;
    let writable = wanted.writable.iter().map(|(_, at)| at.as_path());
    landlocked::restrict(writable).map_err(step("no Landlock rules"))?;
    larder_sys::refuse_calls().map_err(step("no filter of system calls"))?;
    Ok(why_not)
}

/// A file or directory that is mounted at a path of the new root.
enum Shown {
    Mount(OwnedFd, MountAttributes, IsDirectory),
    Link(PathBuf),
}

type IsDirectory = bool;
/// True if the mounts below a mount are shown, too.
type WithInner = bool;

/// Returns what to show at each path, in the order in which it is to be attached.
fn show<'a>(wanted: &'a Confinement, is_owned: bool) -> io::Result<Vec<(&'a Path, Shown)>> {
    let mut shown = Vec::new();
    for path in SYSTEM.iter().map(Path::new) {
        if let Ok(target) = std::fs::read_link(path)
            && !path.starts_with("/etc")
        {
            shown.push((path, Shown::Link(target)));
        } else if path.exists() {
            let is_device = path.starts_with("/dev");
            shown.push((path, mount_of(path, MountAttributes { no_devices: !is_device, ..LAYER }, true)?));
        }
    }
    let mut known: Vec<((u32, u32), OwnedFd)> = Vec::new();
    let readable = wanted.readable.iter().map(|path| (path, path, LAYER, false));
    let credentials = wanted.credentials.iter().map(|path| (path, path, LAYER, true));
    let read = readable.chain(credentials).filter(|(path, ..)| path.exists());
    let writable = wanted.writable.iter().map(|(path, at)| (path, at, HARMLESS, false));
    let mut all: Vec<(&PathBuf, &PathBuf, MountAttributes, WithInner)> = read.chain(writable).collect();
    // A directory before what is in it.
    all.sort_by_key(|(_, at, ..)| at.components().count());
    for (path, at, attributes, with_inner) in all {
        let one = mount_of(path, attributes, with_inner)?;
        if let Shown::Mount(mount, ..) = &one
            && is_owned
        {
            let look = std::fs::metadata(path)?;
            let owner = (look.uid(), look.gid());
            if !known.iter().any(|(of, _)| *of == owner) {
                known.push((owner, owners(owner.0, owner.1)?));
            }
            let namespace = known.iter().find(|(of, _)| *of == owner).map(|(_, namespace)| namespace);
            let set = namespace.map_or(Ok(()), |namespace| larder_sys::set_mount_owners(mount, namespace));
            set.map_err(|error| named(path, &error))?;
        }
        shown.push((at, one));
    }
    Ok(shown)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the user namespace that shows files of one user and group as those of `USER`. All other
/// files keep their owners, if this process may map these.
fn owners(user: u32, group: u32) -> io::Result<OwnedFd> {
    let all = larder_sys::owners_namespace(&with_others(user), &with_others(group));
    let only = |own| [OwnerRange { stored: own, seen: USER, count: 1 }];
    all.or_else(|_| larder_sys::owners_namespace(&only(user), &only(group)))
}

/// Returns ranges that show `own` as `USER`, and all other numbers as they are.
fn with_others(own: u32) -> Vec<OwnerRange> {
    let (first, second) = (own.min(USER), own.max(USER));
    let between = [(0, first), (first + 1, second), (second.saturating_add(1), u32::MAX)];
    let others = between.into_iter().filter(|(from, to)| from < to);
    let others = others.map(|(from, to)| OwnerRange { stored: from, seen: from, count: to - from });
    [OwnerRange { stored: own, seen: USER, count: 1 }].into_iter().chain(others).collect()
}

fn mount_of(path: &Path, attributes: MountAttributes, with_inner: WithInner) -> io::Result<Shown> {
    let open = || -> io::Result<Shown> {
        let place = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let is_directory = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode).is_dir();
        // In a container, single files below a directory may be mounts, for example certificates.
        // Before Linux 5.12, mounts below this one cannot be made harmless, so they are left out.
        let all = with_inner.then(|| larder_sys::clone_mounts(&place, attributes).ok()).flatten();
        Ok(Shown::Mount(all.map_or_else(|| larder_sys::clone_mount(place), Ok)?, attributes, is_directory))
    };
    open().map_err(|error| named(path, &error))
}

/// Makes the new root, and attaches everything below it.
fn new_root(shown: &[(&Path, Shown)], hidden: Option<&Path>, user: Option<u32>) -> io::Result<OwnedFd> {
    let options = [("mode", larder_sys::MountValue::Text(b"0755")), ("size", larder_sys::MountValue::Text(b"4m"))];
    let root = larder_sys::new_mount("tmpfs", &options, HARMLESS).map_err(|refused| refused.error)?;
    // A mount can be attached below another one only if that is attached itself.
    larder_sys::place_mount(&root, larder_sys::open_place(Path::new("/"))?)?;
    let top = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
    for (path, one) in shown {
        let place = top.join(path.strip_prefix("/").unwrap_or(path));
        attach(&top, &place, one, user).map_err(|error| named(path, &error))?;
    }
    if let Some(path) = hidden {
        let place = top.join(path.strip_prefix("/").unwrap_or(path));
        if place.symlink_metadata().is_ok() {
            let empty = mount_of(Path::new("/dev/null"), LAYER, false)?;
            attach(&top, &place, &empty, user).map_err(|error| named(path, &error))?;
        }
    }
    restrict(&root, LAYER)?;
    Ok(root)
}

fn attach(top: &Path, place: &Path, one: &Shown, user: Option<u32>) -> io::Result<()> {
    let parent = place.parent().unwrap_or(top);
    if !place.exists() {
        make_directories(top, parent, user)?;
    }
    match one {
        Shown::Link(target) => symlink(target, place),
        Shown::Mount(mount, attributes, is_directory) => {
            if !place.exists() {
                if *is_directory { DirBuilder::new().create(place)? } else { drop(File::create_new(place)?) }
            }
            let target = openat(CWD, place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            larder_sys::place_mount(mount, target)?;
            restrict(mount, *attributes)
        }
    }
}

/// Makes the directories above a place. They belong to `user`, because a store must belong to the
/// process that uses it. They are read-only in the end.
fn make_directories(top: &Path, parent: &Path, user: Option<u32>) -> io::Result<()> {
    let mut made = top.to_owned();
    for name in parent.strip_prefix(top).unwrap_or(parent) {
        made.push(name);
        match DirBuilder::new().mode(0o755).create(&made) {
            Ok(()) => {
                let user = user.unwrap_or_else(larder_sys::effective_user);
                std::os::unix::fs::chown(&made, Some(user), Some(user))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn restrict(mount: impl AsFd, attributes: MountAttributes) -> io::Result<()> {
    // Before Linux 5.12.
    larder_sys::set_mount_attributes(&mount, attributes).or_else(|_| larder_sys::restrict_mount(&mount, attributes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_is_shown_once() {
        for own in [0, 1000, USER, 100_000] {
            let ranges = with_others(own);
            let seen = |stored: u32| {
                let found: Vec<u32> = ranges
                    .iter()
                    .filter(|range| stored >= range.stored && stored - range.stored < range.count)
                    .map(|range| range.seen + (stored - range.stored))
                    .collect();
                assert!(found.len() <= 1, "{own}: {stored}: {ranges:?}");
                found.first().copied()
            };
            assert_eq!(seen(own), Some(USER));
            for other in [0, 1, 999, 1001, 65_532, 65_534, 99_999, 100_001, u32::MAX - 1] {
                if other != own {
                    assert_eq!(seen(other), Some(other), "{own}");
                }
            }
        }
    }
}
