//! An EROFS image as a FUSE file system. Requests are answered from the metadata. A read that must
//! wait for data does not delay other requests.
//!
//! The tree never changes, so the kernel may cache everything for as long as it likes: names
//! (including names that do not exist), attributes, symbolic links and bytes. It asks for each of
//! them once, and it does not ask before it opens a file.
//!
//! Unaware of: which process mounts it, and where bytes come from.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use super::data::{Data, Pieces};
use crate::Owners;
use crate::erofs::{DIRECTORY, DirectoryEntry, Erofs, FILE, From, Inode, KIND_MASK, LINK, entry};

/// How long the kernel may cache answers. They never become wrong, and a few years are enough.
const FOR_EVER: Duration = Duration::from_secs(1 << 28);
/// The inode number that FUSE gives to the root directory. Other inodes have their EROFS number
/// plus `NUMBERED_FROM`, so none of them has this one.
const ROOT: u64 = 1;
const NUMBERED_FROM: u64 = 2;
/// The limit for one read, in bytes. The kernel asks for at most 1 MiB. A longer request is an
/// error, because a shorter answer would look like the end of the file.
const READ_BYTES_MAX: u32 = 16 << 20;
/// The owner that is shown for an owner in no range, as in the kernel's ID maps.
const NOBODY: u32 = 65534;
/// The limit for requests that the kernel makes in the background, such as read-ahead.
const AHEAD_MAX: u16 = 64;
/// The limit for one extended attribute and for all names of a file's attributes, in bytes. It is
/// Linux' own limit.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// The position of a directory entry is its block, then this many bits for its index in the block.
const ENTRIES_BITS: u32 = 16;

/// The file system, as `fuser` calls it.
pub(super) struct Files {
    tree: Arc<Erofs>,
    data: Data,
    owners: Option<Owners>,
    /// True if the kernel stops asking before it opens a file or directory when it is told that
    /// this is not needed. Older kernels do not support that, so each open is answered.
    opens_unasked: bool,
    lists_unasked: bool,
}

impl Files {
    /// Makes a file system with this tree and data. `owners` maps the owners that are shown.
    pub(super) fn new(tree: Erofs, data: Data, owners: Option<Owners>) -> Files {
        let owners = owners.filter(|owners| !owners.is_plain());
        Files { tree: Arc::new(tree), data, owners, opens_unasked: false, lists_unasked: false }
    }

    fn inode(&self, number: INodeNo) -> io::Result<Inode> {
        let INodeNo(number) = number;
        match number {
            ROOT => self.tree.inode(self.tree.root()),
            _ => self.tree.inode(number.checked_sub(NUMBERED_FROM).ok_or(io::ErrorKind::NotFound)?),
        }
    }

    /// Returns the inode number in FUSE for an EROFS inode number.
    fn number(&self, inode: u64) -> INodeNo {
        INodeNo(if inode == self.tree.root() { ROOT } else { inode.saturating_add(NUMBERED_FROM) })
    }

    fn attributes(&self, inode: &Inode) -> io::Result<FileAttr> {
        let modified = time(inode.modified);
        let block_bytes = self.tree.block_bytes();
        let (mut uid, mut gid) = (inode.user, inode.group);
        if let Some(owners) = &self.owners {
            (uid, gid) = (seen(&owners.users, uid), seen(&owners.groups, gid));
        }
        Ok(FileAttr {
            ino: self.number(inode.number),
            size: inode.size,
            blocks: inode.size.next_multiple_of(block_bytes) / 512,
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind: kind(inode.mode)?,
            perm: inode.mode & !KIND_MASK,
            nlink: inode.links,
            uid,
            gid,
            rdev: 0,
            blksize: block_bytes as u32,
            flags: 0,
        })
    }

    /// The answer that makes the kernel cache that a name does not exist: inode number 0.
    fn nothing(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
            flags: 0,
        }
    }

    /// Calls `each` with the entries of a directory from a position on, and with the position after
    /// each entry, until it returns true.
    fn entries(
        &self,
        directory: INodeNo,
        from: u64,
        mut each: impl FnMut(DirectoryEntry, u64) -> io::Result<bool>,
    ) -> io::Result<()> {
        let directory = self.inode(directory)?;
        let mut buffer = vec![0; self.tree.block_bytes() as usize];
        let (mut block, mut place) = (from >> ENTRIES_BITS, from & ((1 << ENTRIES_BITS) - 1));
        while block < self.tree.directory_blocks(&directory) {
            let bytes = self.tree.directory_block(&directory, block, &mut buffer)?;
            while let Some(entry) = entry(bytes, place as usize)? {
                place += 1;
                if each(entry, block << ENTRIES_BITS | place)? {
                    return Ok(());
                }
            }
            (block, place) = (block + 1, 0);
        }
        Ok(())
    }

    /// The value of an extended attribute, or `None` if the inode does not have it.
    fn attribute(&self, inode: INodeNo, wanted: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut found = None;
        let inode = self.inode(inode)?;
        self.tree.attributes(&inode, |prefix, name, value| {
            if wanted.strip_prefix(prefix) == Some(name) {
                found = Some(value.to_owned());
            }
            found.is_some()
        })?;
        Ok(found)
    }

    /// Returns the names of all extended attributes, each followed by a zero byte.
    fn attribute_names(&self, inode: INodeNo) -> io::Result<Vec<u8>> {
        let mut names = Vec::new();
        let inode = self.inode(inode)?;
        self.tree.attributes(&inode, |prefix, name, _| {
            if names.len() + prefix.len() + name.len() < ATTRIBUTE_BYTES_MAX {
                names.extend([prefix, name, &[0]].concat());
            }
            false
        })?;
        Ok(names)
    }

    /// Returns where the next data (or the next hole) begins, at or after `offset`.
    fn seek(&self, inode: INodeNo, offset: u64, wants_data: bool) -> io::Result<Option<u64>> {
        let inode = self.inode(inode)?;
        let mut at = offset;
        while at < inode.size {
            for part in self.tree.parts(&inode, at..at.saturating_add(READ_BYTES_MAX.into()))? {
                if (part.from != From::Hole) == wants_data {
                    return Ok(Some(at));
                }
                at += part.length;
            }
        }
        // After the end of a file there is a hole and no data.
        Ok((!wants_data && offset < inode.size).then_some(inode.size))
    }
}

impl Filesystem for Files {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let has = config.capabilities();
        self.opens_unasked = has.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.lists_unasked = has.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        // An older kernel ignores features that it does not know. It only asks more often.
        let _ = config.add_capabilities(wanted & has);
        let _ = config.set_max_background(AHEAD_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = || -> io::Result<Option<FileAttr>> {
            let number = self.tree.lookup(&self.inode(parent)?, name.as_bytes())?;
            number.map(|number| self.attributes(&self.tree.inode(number)?)).transpose()
        };
        match found() {
            Ok(attributes) => {
                reply.entry(&FOR_EVER, &attributes.unwrap_or_else(|| self.nothing()), Generation(0));
            }
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.inode(number).and_then(|inode| self.attributes(&inode)) {
            Ok(attributes) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.inode(number).and_then(|inode| self.tree.target(&inode)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.opens_unasked {
            true => reply.error(Errno::ENOSYS),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.lists_unasked {
            true => reply.error(Errno::ENOSYS),
            false => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR),
        }
    }

    fn flush(&self, _request: &Request, _number: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Nothing was written. After this answer the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let parts = || -> io::Result<Pieces> {
            let inode = self.inode(number)?;
            if !inode.is(FILE) || size > READ_BYTES_MAX {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let end = offset.saturating_add(size.into());
            Ok(Pieces::new(Arc::clone(&self.tree), self.tree.parts(&inode, offset..end)?))
        };
        match parts() {
            Ok(pieces) => self.data.read(pieces, move |read| match read {
                Ok(bytes) => reply.data(bytes),
                Err(error) => reply.error(number_of(&error)),
            }),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.entries(number, offset, |entry, behind| {
            Ok(reply.add(self.number(entry.number), behind, kind_of_entry(entry.kind)?, OsStr::from_bytes(entry.name)))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.entries(number, offset, |entry, behind| {
            let attributes = self.attributes(&self.tree.inode(entry.number)?)?;
            let name = OsStr::from_bytes(entry.name);
            Ok(reply.add(attributes.ino, behind, name, &FOR_EVER, &attributes, Generation(0)))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let block = self.tree.block_bytes() as u32;
        reply.statfs(self.tree.blocks, 0, 0, self.tree.inodes, 0, block, 255, block);
    }

    fn getxattr(&self, _request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.attribute(number, name.as_bytes()) {
            Ok(Some(value)) => tell(&value, size, reply),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn listxattr(&self, _request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        match self.attribute_names(number) {
            Ok(names) => tell(&names, size, reply),
            Err(error) => reply.error(number_of(&error)),
        }
    }

    fn lseek(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // `SEEK_DATA` and `SEEK_HOLE`. The kernel handles the others itself.
        let wants_data = match whence {
            3 => true,
            4 => false,
            _ => return reply.error(Errno::EINVAL),
        };
        match u64::try_from(offset).map_err(io::Error::other).and_then(|at| self.seek(number, at, wants_data)) {
            Ok(Some(found)) => reply.offset(found as i64),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(number_of(&error)),
        }
    }
}

/// Replies with a value, or with its length if the size of the request is 0.
fn tell(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        size if size < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// Maps an owner.
fn seen(ranges: &[(u32, u32, u32)], stored: u32) -> u32 {
    let in_range = |&(first, seen, count): &(u32, u32, u32)| {
        let at = stored.checked_sub(first).filter(|at| *at < count)?;
        seen.checked_add(at)
    };
    ranges.iter().find_map(in_range).unwrap_or(NOBODY)
}

fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let whole = match u64::try_from(seconds) {
        Ok(after) => UNIX_EPOCH.checked_add(Duration::from_secs(after)),
        Err(_) => UNIX_EPOCH.checked_sub(Duration::from_secs(seconds.unsigned_abs())),
    };
    let time = whole.and_then(|time| time.checked_add(Duration::from_nanos(nanoseconds.into())));
    time.unwrap_or(UNIX_EPOCH)
}

fn kind(mode: u16) -> io::Result<FileType> {
    Ok(match mode & KIND_MASK {
        FILE => FileType::RegularFile,
        DIRECTORY => FileType::Directory,
        LINK => FileType::Symlink,
        0o10_000 => FileType::NamedPipe,
        0o140_000 => FileType::Socket,
        0o20_000 => FileType::CharDevice,
        0o60_000 => FileType::BlockDevice,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    })
}

fn kind_of_entry(kind: u8) -> io::Result<FileType> {
    Ok(match kind {
        1 => FileType::RegularFile,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::NamedPipe,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    })
}

/// Returns the errno for an error. Damaged metadata and failed fetches become EIO.
fn number_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::NotFound => Errno::ENOENT,
        io::ErrorKind::NotADirectory => Errno::ENOTDIR,
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        _ => Errno::EIO,
    }
}
