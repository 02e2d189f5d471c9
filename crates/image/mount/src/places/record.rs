//! The record of a mount, as text. Each line has a word and its value. In names and paths, all
//! bytes but visible ASCII are escaped: a space is `%20`.
//!
//! ```text
//! larder-mount 1
//! boot 4f6c…              the boot ID; mounts of another boot are gone
//! namespace mnt:[4026]    the mount namespace that it is in
//! via mount               the backend
//! lease kept              or held, or process PID START
//! name deps-1             the name of the image
//! user 1000
//! image /path
//! target /path
//! number 8123             the mount's unique ID (Linux 6.8), added when the mount is made
//! ```
//!
//! Before Linux 6.8 mount IDs are reused. Then the last line has the ID, the device, the magic
//! number of the file system and, if the mount is an overlay, its source:
//!
//! ```text
//! reused 45 52 17 larder-0f1e…
//! ```
//!
//! `crates/cache/store/src/images.rs` reads boot, lease and image as well, when it evicts images.
//!
//! Unaware of: how mounts are made and removed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_sys::{MountNumber, SeenMount};
use rustix::io::Errno;

use super::ask::Ask;
use super::lease::Lease;
use crate::Backend;
use crate::overlay::source_of;

const FIRST: &str = "larder-mount 1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    boot: String,
    pub(super) namespace: String,
    pub(super) via: Backend,
    pub(super) lease: Lease,
    pub(super) name: String,
    pub(super) user: u32,
    pub(super) image: PathBuf,
    pub(super) target: PathBuf,
    pub(super) known: Option<MountIdentity>,
}

/// The identity of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MountIdentity {
    /// The unique ID of the mount, which the kernel never reuses.
    Unique(u64),
    /// A mount ID that the kernel may reuse, together with the device, once this mount is gone. An
    /// overlay of larder has a source that no other mount has. Other mounts are checked by the kind
    /// of the file system.
    Reused { number: u64, device: u64, kind: u64, source: Option<String> },
}

impl MountIdentity {
    /// Identifies a mount by its root directory. `source` is the mount's source, if it is an
    /// overlay of larder.
    pub(super) fn of(root: BorrowedFd, source: Option<String>) -> io::Result<MountIdentity> {
        let number = match larder_sys::mount_number(root)? {
            MountNumber::Unique(number) => return Ok(MountIdentity::Unique(number)),
            MountNumber::Reused(number) => number,
        };
        let (look, system) = (rustix::fs::fstat(root)?, rustix::fs::fstatfs(root)?);
        Ok(MountIdentity::Reused { number, device: look.st_dev, kind: system.f_type as u64, source })
    }

    /// Returns true if this is the mount that the descriptor `root` is in. The calling thread must
    /// be in the mount's namespace. `own` is an open `/proc/self`.
    pub(super) fn is(&self, root: BorrowedFd, own: BorrowedFd) -> io::Result<bool> {
        let MountIdentity::Reused { number, source, .. } = self else {
            return Ok(MountIdentity::of(root, None)? == *self);
        };
        // The open descriptor keeps the mount alive, so its number cannot be reused meanwhile.
        let is_alike = MountIdentity::of(root, source.clone())? == *self;
        Ok(is_alike
            && match source {
                Some(source) => {
                    let is_it = |seen: &SeenMount| seen.number == *number && seen.source == source.as_bytes();
                    larder_sys::seen_mounts(own)?.iter().any(is_it)
                }
                None => true,
            })
    }

    /// Returns where the mount is now in the mount namespace of the calling thread, or `None` if it
    /// is not there. Nothing is looked up by a path, because a process in that namespace can rename
    /// the directories above the mount. `own` is an open `/proc/self`, and `id` is the identifier
    /// of the mount. Fails if that cannot be determined. Then the mount may still exist.
    pub(super) fn place(&self, own: BorrowedFd, id: &OsStr) -> io::Result<Option<PathBuf>> {
        let seen = |is_it: &dyn Fn(&SeenMount) -> bool| -> io::Result<Option<SeenMount>> {
            Ok(larder_sys::seen_mounts(own)?.into_iter().rfind(is_it))
        };
        match self {
            MountIdentity::Unique(number) => match larder_sys::mount_place(*number) {
                // A process in a container may not be allowed to call `statmount`. Then an overlay
                // is found by its unique source. For other mounts the error is returned.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::PERM | Errno::NOSYS)) => {
                    let source = source_of(id);
                    let found = seen(&|mount| mount.source == source.as_bytes())?;
                    found.map(|mount| Some(mount.place)).ok_or(error)
                }
                found => found,
            },
            MountIdentity::Reused { number, device, source, .. } => {
                let is_it = |mount: &SeenMount| {
                    mount.number == *number
                        && mount.device == *device
                        && source.as_ref().is_none_or(|source| mount.source == source.as_bytes())
                };
                Ok(seen(&is_it)?.map(|mount| mount.place))
            }
        }
    }

    pub(super) fn number(&self) -> MountNumber {
        match *self {
            MountIdentity::Unique(number) => MountNumber::Unique(number),
            MountIdentity::Reused { number, .. } => MountNumber::Reused(number),
        }
    }

    /// The last line of the record, which is added when the mount is made.
    pub(super) fn line(&self) -> String {
        match self {
            MountIdentity::Unique(number) => format!("number {number}\n"),
            MountIdentity::Reused { number, device, kind, source } => {
                let source = source.as_ref().map(|source| format!(" {source}")).unwrap_or_default();
                format!("reused {number} {device} {kind}{source}\n")
            }
        }
    }

    fn read(line: &str) -> Option<MountIdentity> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut next = || words.next()?.parse().ok();
        match name {
            "number" => next().map(MountIdentity::Unique),
            "reused" => {
                let (number, device, kind) = (next()?, next()?, next()?);
                Some(MountIdentity::Reused { number, device, kind, source: words.next().map(str::to_owned) })
            }
            _ => None,
        }
    }
}

impl Record {
    /// The record of a mount that this process is about to make.
    pub(super) fn new(ask: &Ask, target: &Path) -> io::Result<Record> {
        Ok(Record {
            boot: larder_sys::boot_id()?,
            namespace: ask.inside.map_or_else(|| namespace_of("self"), |inside| Ok(inside.name.to_owned()))?,
            via: ask.via,
            lease: ask.lease,
            name: ask.name.to_owned(),
            user: ask.user,
            image: std::path::absolute(ask.image.first_file())?,
            target: target.to_owned(),
            known: None,
        })
    }

    pub(super) fn encode(&self) -> String {
        let Record { boot, namespace, via, lease, name, user, image, target, known } = self;
        let (name, image, target) = (escaped(Path::new(name)), escaped(image), escaped(target));
        let lease = lease.text();
        let known = known.as_ref().map(MountIdentity::line).unwrap_or_default();
        format!(
            "{FIRST}\nboot {boot}\nnamespace {namespace}\nvia {via}\nlease {lease}\nname {name}\nuser {user}\nimage {image}\ntarget {target}\n{known}"
        )
    }

    pub(super) fn decode(text: &str) -> Option<Record> {
        let mut lines = text.split_inclusive('\n');
        let mut whole = || lines.next()?.strip_suffix('\n');
        let mut value = |name: &str| whole()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        (value("larder-mount")? == "1").then_some(())?;
        Some(Record {
            boot: value("boot")?,
            namespace: value("namespace")?,
            via: value("via")?.parse().ok()?,
            lease: Lease::read(&value("lease")?)?,
            name: unescaped(&value("name")?)?.into_os_string().into_string().ok()?,
            user: value("user")?.parse().ok()?,
            image: unescaped(&value("image")?)?,
            target: unescaped(&value("target")?)?,
            // The last line may be missing or incomplete.
            known: whole().and_then(MountIdentity::read),
        })
    }

    /// Returns true if a text that is not a record is the beginning of one.
    pub(super) fn is_begun(text: &str) -> bool {
        FIRST.starts_with(text) || text.starts_with(FIRST)
    }

    pub(super) fn is_of_this_boot(&self) -> bool {
        larder_sys::boot_id().is_ok_and(|boot| boot == self.boot)
    }

    /// Returns true if the mount is in our mount namespace.
    pub(super) fn is_of_our_mounts(&self) -> bool {
        namespace_of("self").is_ok_and(|namespace| namespace == self.namespace)
    }

    /// Opens the mount namespace of the mount, or returns `None` if no visible process is in it.
    /// Processes that may not be inspected are skipped. A broker has `CAP_SYS_PTRACE` and may
    /// inspect all of them. Fails if the processes cannot be listed.
    pub(super) fn open_namespace(&self) -> io::Result<Option<OwnedFd>> {
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if namespace_of(&name.to_string_lossy()).is_ok_and(|namespace| namespace == self.namespace)
                && let Ok((namespace, name)) = larder_sys::open_process(pid).and_then(larder_sys::mounts_of)
                && name == self.namespace
            {
                return Ok(Some(namespace));
            }
        }
        Ok(None)
    }
}

fn namespace_of(process: &str) -> io::Result<String> {
    Ok(fs::read_link(format!("/proc/{process}/ns/mnt"))?.to_string_lossy().into_owned())
}

fn escaped(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let one = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    path.as_os_str().as_bytes().iter().map(one).collect()
}

fn unescaped(text: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    let mut left = text.bytes();
    while let Some(byte) = left.next() {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(match byte {
            b'%' => (digit(left.next()?)? << 4 | digit(left.next()?)?) as u8,
            byte => byte,
        });
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, Life};

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let image = Image::Squashfs(PathBuf::from("/i/50%.squashfs"));
        let target = PathBuf::from(OsString::from_vec(b"/a b\n\xff%".to_vec()));
        let (lease, via) = (Lease::Process(7, 9), Backend::Squashfs);
        let (layer, owners, inside) = (None, None, None);
        let (name, user, image, target) = ("deps 1%", 7, &image, target.as_path());
        let ask = Ask {
            name,
            user,
            image,
            target,
            layer,
            via,
            writable: true,
            owners,
            lease,
            life: Life::AsMount,
            over: false,
            inside,
        };
        let mut record = Record::new(&ask, target).expect("is known");
        assert!(
            record.is_of_this_boot()
                && record.is_of_our_mounts()
                && record.open_namespace().is_ok_and(|found| found.is_some())
        );
        let text = record.encode();
        assert_eq!(Record::decode(&text).as_ref(), Some(&record));
        let reused = |source: Option<&str>| MountIdentity::Reused {
            number: 4,
            device: 5,
            kind: 6,
            source: source.map(str::to_owned),
        };
        for known in [MountIdentity::Unique(12), reused(None), reused(Some("larder-07"))] {
            let line = known.line();
            record.known = Some(known);
            assert_eq!(Record::decode(&(text.clone() + &line)).as_ref(), Some(&record));
            for cut in 0..line.len() {
                let known = Record::decode(&(text.clone() + &line[..cut])).expect("what is before it is whole").known;
                assert_eq!(known, None, "{line}: a number that is cut is another one");
            }
        }
        for cut in 0..text.len() - 1 {
            // Each shorter text must be decoded or refused without a panic.
            let _ = Record::decode(&text[..cut]);
        }
        assert_eq!(Record::decode(&text.replace("mount 1", "mount 2")), None);
        assert_eq!(unescaped("%4"), None);
    }
}
