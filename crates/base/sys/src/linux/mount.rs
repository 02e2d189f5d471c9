//! Mounts as descriptors: creating them without a mount point, attaching them, and unmounting.
//!
//! Unaware of: which file systems there are, and what is in them.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_fd, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    move_mount, open_tree,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::namespace::on_a_thread;

/// The value of a mount option.
#[derive(Clone, Copy, Debug)]
pub enum MountValue<'a> {
    /// The option has no value.
    Flag,
    /// Bytes without a zero byte.
    Text(&'a [u8]),
    /// An open directory or file.
    Descriptor(BorrowedFd<'a>),
}

/// The attributes of everything below a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountAttributes {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Set-user-id bits and file capabilities have no effect.
    pub no_suid: bool,
    /// Device files cannot be opened.
    pub no_devices: bool,
}

/// The failure of `new_mount`: the step, the system's error, and the messages of the file system.
#[derive(Debug)]
pub struct MountRefused {
    /// The step that failed: `fsopen`, the name of an option, `create` or `fsmount`.
    pub step: String,
    /// The system's error.
    pub error: io::Error,
    /// The messages of the file system, if it wrote any.
    pub said: String,
}

/// The size of the buffer for one message, in bytes. The kernel's messages are shorter.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The most messages that are read.
const MESSAGES_MAX: usize = 8;

impl MountAttributes {
    fn bits(self) -> MountAttrFlags {
        let mut bits = MountAttrFlags::empty();
        bits.set(MountAttrFlags::MOUNT_ATTR_RDONLY, self.read_only);
        bits.set(MountAttrFlags::MOUNT_ATTR_NOSUID, self.no_suid);
        bits.set(MountAttrFlags::MOUNT_ATTR_NODEV, self.no_devices);
        bits
    }
}

/// Creates a file system of this kind, and a mount of it that is attached nowhere yet. The mount
/// vanishes with the last descriptor of it.
pub fn new_mount(
    kind: &str,
    options: &[(&str, MountValue)],
    attributes: MountAttributes,
) -> Result<OwnedFd, MountRefused> {
    let at =
        |step: &str, error: rustix::io::Errno, said| MountRefused { step: step.to_owned(), error: error.into(), said };
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| at("fsopen", error, String::new()))?;
    for (name, value) in options {
        let set = match value {
            MountValue::Flag => fsconfig_set_flag(&context, *name),
            MountValue::Text(text) => fsconfig_set_string(&context, *name, *text),
            MountValue::Descriptor(fd) => fsconfig_set_fd(&context, *name, fd),
        };
        set.map_err(|error| at(name, error, said(&context)))?;
    }
    fsconfig_create(&context).map_err(|error| at("create", error, said(&context)))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes.bits())
        .map_err(|error| at("fsmount", error, said(&context)))
}

/// Returns true if a file system knows an option whose value is text. Also returns true if that
/// cannot be asked, because the kind is unknown or we are not allowed to.
pub fn knows_mount_option(kind: &str, option: &str) -> bool {
    let Ok(context) = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC) else { return true };
    fsconfig_set_string(&context, option, "?") != Err(rustix::io::Errno::INVAL)
}

/// Returns the file system's messages about a failure. Each one begins with a level, which is
/// removed.
fn said(context: &OwnedFd) -> String {
    let mut lines = Vec::new();
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    while let Ok(count) = rustix::io::read(context, &mut buffer) {
        let line = String::from_utf8_lossy(&buffer[..count]).trim().to_owned();
        lines.push(line.get(2..).unwrap_or_default().to_owned());
        if count == 0 || lines.len() == MESSAGES_MAX {
            break;
        }
    }
    lines.join("; ")
}

/// Attaches a mount to the directory `target`, whose own mount must be in this thread's mount
/// namespace.
pub fn place_mount(mount: impl AsFd, target: impl AsFd) -> io::Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, c"", target, c"", both)?)
}

/// Creates another mount of the same file system tree. It is attached nowhere yet.
pub fn clone_mount(of: impl AsFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(of, c"", flags)?)
}

/// Creates another mount of the same file system tree, with all mounts below it. They have these
/// attributes in addition to their own (Linux 5.12). It is attached nowhere yet.
pub fn clone_mounts(of: impl AsFd, attributes: MountAttributes) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let all = open_tree(of, c"", flags | OpenTreeFlags::AT_RECURSIVE)?;
    set_attributes(all.as_fd(), attributes.bits(), None, libc::AT_RECURSIVE)?;
    Ok(all)
}

/// Maps the owners of files that are seen through a mount and the mounts below it, as the user
/// namespace maps them. The mount must not be attached yet. See `owners_namespace`.
pub fn set_mount_owners(mount: impl AsFd, namespace: impl AsFd) -> io::Result<()> {
    set_attributes(mount.as_fd(), MountAttrFlags::MOUNT_ATTR_IDMAP, Some(namespace.as_fd()), libc::AT_RECURSIVE)
}

/// Adds attributes to a mount (Linux 5.12).
pub fn set_mount_attributes(mount: impl AsFd, attributes: MountAttributes) -> io::Result<()> {
    set_attributes(mount.as_fd(), attributes.bits(), None, 0)
}

fn set_attributes(
    mount: BorrowedFd,
    set: MountAttrFlags,
    namespace: Option<BorrowedFd>,
    recursion: libc::c_int,
) -> io::Result<()> {
    /// `struct mount_attr`.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        namespace: u64,
    }
    let namespace = namespace.map_or(0, |namespace| namespace.as_raw_fd() as u64);
    let attributes = Attributes { set: u64::from(set.bits()), clear: 0, propagation: 0, namespace };
    // SAFETY: passes an empty path, and a structure of ours with its size.
    let done = unsafe {
        let (path, size) = (c"".as_ptr(), size_of::<Attributes>());
        let mount = mount.as_raw_fd();
        let flags = libc::AT_EMPTY_PATH | recursion;
        libc::syscall(libc::SYS_mount_setattr, mount, path, flags, &raw const attributes, size)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a directory as a mount point. A link as the last component is not followed.
pub fn open_place(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens the directory at the root of a mount, or another directory that is open, so that it can be
/// listed and used as a layer.
pub fn open_directory(of: impl AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(of, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The kernel's number for a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountNumber {
    /// A number that no other mount gets while the system runs (Linux 6.8).
    Unique(u64),
    /// A number that another mount may get once this one is gone, and usually the next one does
    /// (Linux 5.8).
    Reused(u64),
}

/// Returns the number of the mount that a descriptor is in.
///
/// # Errors
///
/// `Unsupported` before Linux 5.8.
pub fn mount_number(of: impl AsFd) -> io::Result<MountNumber> {
    const REUSED: u32 = 0x1000;
    const UNIQUE: u32 = 0x4000;
    let wanted = StatxFlags::from_bits_retain(REUSED | UNIQUE);
    let found = rustix::fs::statx(of, c"", AtFlags::EMPTY_PATH, wanted)?;
    match found.stx_mask & (REUSED | UNIQUE) {
        0 => Err(io::Error::from(io::ErrorKind::Unsupported)),
        mask if mask & UNIQUE == 0 => Ok(MountNumber::Reused(found.stx_mnt_id)),
        _ => Ok(MountNumber::Unique(found.stx_mnt_id)),
    }
}

/// Returns true if a descriptor is the root of the mount that it is in. Fails with `Unsupported`
/// before Linux 5.8.
pub fn is_mount_root(of: impl AsFd) -> io::Result<bool> {
    let found = rustix::fs::statx(of, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    match found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        true => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        false => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Returns the mount point of the mount with this unique number, or `None` if this thread does not
/// see the mount. It looks up no path, so nothing can hang.
///
/// # Errors
///
/// `ENOSYS` before Linux 6.8, or `EPERM` if the call is not allowed.
pub fn mount_place(number: u64) -> io::Result<Option<PathBuf>> {
    /// `struct mnt_id_req`, in its first version.
    #[repr(C)]
    struct Request {
        size: u32,
        spare: u32,
        number: u64,
        wanted: u64,
    }
    /// The number of the system call, which is the same on all architectures.
    const STATMOUNT: i64 = 457;
    const MOUNT_POINT: u64 = 0x10;
    /// The size of `struct statmount` without its texts, and the offsets of `mask` and `mnt_point`
    /// in it.
    const FIXED_BYTES: usize = 512;
    const MASK_AT: usize = 8;
    const POINT_AT: usize = 108;
    const TEXT_BYTES_MAX: usize = 8 << 10;
    let request = Request { size: size_of::<Request>() as u32, spare: 0, number, wanted: MOUNT_POINT };
    let mut found = vec![0u8; FIXED_BYTES + TEXT_BYTES_MAX];
    // SAFETY: the request contains its size, and the size of the result buffer is passed.
    let done = unsafe { libc::syscall(STATMOUNT as _, &raw const request, found.as_mut_ptr(), found.len(), 0) };
    if done != 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
    }
    let number_at = |at: usize| u32::from_ne_bytes([found[at], found[at + 1], found[at + 2], found[at + 3]]);
    if u64::from(number_at(MASK_AT)) & MOUNT_POINT == 0 {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    let text = found.get(FIXED_BYTES + number_at(POINT_AT) as usize..).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(Some(crate::as_path(&text[..end]).to_owned()))
}

/// A mount as the kernel lists it for a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenMount {
    /// Its number, which another mount may have had before.
    pub number: u64,
    /// The device number of the files in it, as `stat` reports it.
    pub device: u64,
    /// The mount point.
    pub place: PathBuf,
    /// The source: a device, or a name.
    pub source: Vec<u8>,
}

/// Returns all mounts that this thread sees. `own` is an open `/proc/self`, because in another
/// mount namespace that path may not exist.
pub fn seen_mounts(own: impl AsFd) -> io::Result<Vec<SeenMount>> {
    let name = format!("task/{}/mountinfo", rustix::thread::gettid().as_raw_nonzero());
    let file = rustix::fs::openat(own, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    File::from(file).read_to_end(&mut text)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(seen_mount).collect())
}

/// Parses a line `ID PARENT MAJOR:MINOR ROOT PLACE OPTIONS [TAG…] - KIND SOURCE OPTIONS`.
fn seen_mount(line: &[u8]) -> Option<SeenMount> {
    let text = |field: &[u8]| std::str::from_utf8(field).ok().map(str::to_owned);
    let mut fields = line.split(|byte| *byte == b' ');
    let number = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.nth(1)?)?;
    let (major, minor) = device.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let place = crate::as_path(plain(fields.nth(1)?).as_bytes()).to_owned();
    let source = plain(fields.skip_while(|field| *field != b"-").nth(2)?).into_bytes();
    Some(SeenMount { number, device, place, source })
}

/// Detaches the mount whose root is open from this thread's namespace. Files that are open in it
/// stay usable until they are closed.
pub fn unmount(root: impl AsFd) -> io::Result<()> {
    let root = root.as_fd();
    // The mount is named by the working directory, so that no path to it has to be trusted. That
    // needs a thread with a working directory of its own.
    let act = || {
        // SAFETY: only this thread gets a working directory of its own; descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        rustix::process::fchdir(root)?;
        Ok(rustix::mount::unmount(c".", UnmountFlags::DETACH)?)
    };
    on_a_thread(act)
}

/// Runs `act` on a thread that has a copy of our mounts in a new mount namespace.
///
/// What it mounts or unmounts there is not visible outside. It vanishes with the thread, unless a
/// descriptor of the namespace is kept.
pub fn in_private_mounts<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    on_a_thread(|| {
        // SAFETY: only this thread gets its own mounts and working directory; descriptors stay
        // shared.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        act()
    })
}

/// Runs `act` as `in_private_mounts` does, for a namespace that outlives the thread. It does that
/// if a descriptor of it is kept, or if a program was started in it.
///
/// At the end, the copies of our own mounts are unmounted there, as far as that is allowed.
/// Otherwise, they would be busy as long as the namespace exists.
pub fn in_lasting_mounts<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    in_private_mounts(|| {
        let ours = std::fs::read("/proc/thread-self/mountinfo")?;
        let done = act();
        let lines = ours.split(|byte| *byte == b'\n');
        for place in lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).filter(|place| *place != b"/") {
            // It may be gone already, together with the mount above it.
            let _ = rustix::mount::unmount(&*plain(place), UnmountFlags::DETACH);
        }
        done
    })
}

/// Attaches a mount in a new mount namespace, and returns that namespace. The mount exists as long
/// as the namespace does, and threads in that namespace can use `clone_mount` on it.
pub fn house_mount(mount: impl AsFd) -> io::Result<OwnedFd> {
    let mount = mount.as_fd();
    in_lasting_mounts(|| {
        place_mount(mount, open_place(Path::new("/"))?)?;
        Ok(OwnedFd::from(File::open("/proc/thread-self/ns/mnt")?))
    })
}

/// Decodes a path from a file of the kernel, which writes four kinds of bytes as three octal
/// digits. For example, `\040` is a space.
fn plain(mut path: &[u8]) -> CString {
    let mut bytes = Vec::with_capacity(path.len());
    while let Some((&first, rest)) = path.split_first() {
        let digits = rest.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(first));
        path = if byte.is_some() { &rest[3..] } else { rest };
    }
    CString::new(bytes).unwrap_or_default()
}

/// Gives this process its own copy of the mounts, so that other processes do not see its changes.
/// The process must have one thread.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: there is one thread, and descriptors are not affected.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mountinfo_are_read() {
        assert_eq!(&*plain(br"/a\040b\134c"), c"/a b\\c");
        assert_eq!(&*plain(br"/end\04"), c"/end\\04");
    }

    #[test]
    fn mounts_are_seen_with_their_numbers() {
        let own = File::open("/proc/self").expect("is there");
        let seen = seen_mounts(&own).expect("reads");
        let proc = seen.iter().rev().find(|mount| mount.place == Path::new("/proc")).expect("is mounted");
        let root = open_place(Path::new("/proc")).expect("opens");
        assert_eq!(proc.device, rustix::fs::fstat(&root).expect("is there").st_dev);
        assert!(is_mount_root(&root).expect("can be determined"));
        let below = open_place(Path::new("/proc/self/")).expect("opens");
        assert!(!is_mount_root(&below).expect("can be determined"));
        match mount_number(&root).expect("has a number") {
            MountNumber::Reused(number) => assert_eq!(number, proc.number),
            MountNumber::Unique(number) => {
                assert_eq!(mount_place(number).expect("can be determined"), Some(proc.place.clone()));
                assert_eq!(mount_place(u64::MAX).expect("can be determined"), None);
            }
        }
    }
}
