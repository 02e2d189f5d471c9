//! An EROFS image as a FUSE file system: what the kernel asks, answered from the metadata, and from data that is waited
//! for without holding up anything else.
//!
//! The tree never changes, so the kernel may keep all that it was told for as long as it likes: names, also those that
//! are not there, attributes, links and bytes. It asks for each once, and never before a file is opened.
//!
//! Unaware of: who mounts it, and where bytes come from.

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
use crate::erofs::{DIRECTORY, Entry, Erofs, FILE, From, Inode, KIND_MASK, LINK, entry};

/// The kernel may believe for so long what it was told. It never becomes wrong; more than a few years are not needed.
const FOR_EVER: Duration = Duration::from_secs(1 << 28);
/// The number that FUSE gives the top directory; other inodes have theirs and this many more, so that none is it.
const ROOT: u64 = 1;
const NUMBERED_FROM: u64 = 2;
/// One read, bytes. The kernel asks for 1 MiB at most; an answer that is shorter than a question would be taken for the
/// end of the file, so that a longer one is an error.
const READ_BYTES_MAX: u32 = 16 << 20;
/// Whom files belong to whose owner is not to be seen, as with the kernel's own maps of owners.
const NOBODY: u32 = 65534;
/// How many reads the kernel makes ahead of readers at once.
const AHEAD_MAX: u16 = 64;
/// An extended attribute, bytes: Linux' own limit for one, and for all names of a file.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// Entries are found again by block and place in it; a block has fewer entries than this.
const ENTRIES_BITS: u32 = 16;

/// See above.
pub(super) struct Files {
    tree: Arc<Erofs>,
    data: Data,
    owners: Option<Owners>,
    /// The kernel asks no more once it was told that opening is not needed. Before it knew that, every open is answered.
    opens_unasked: bool,
    lists_unasked: bool,
}

impl Files {
    /// Of this tree, with these bytes of its files, and owners that are to be seen as others.
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

    /// As the kernel knows an inode.
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

    /// Attributes by which the kernel remembers that a name is not there.
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

    /// Calls `each` with the entries of a directory from a place on, and with the place behind each, until it has enough.
    fn entries(
        &self,
        directory: INodeNo,
        from: u64,
        mut each: impl FnMut(Entry, u64) -> io::Result<bool>,
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

    /// The value of an attribute, if the inode has it.
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

    /// The names of all attributes, each with a zero behind it.
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

    /// Where data or a hole begins, from `offset` on.
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
        // There is a hole behind every file, and no data.
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
        // What an older kernel does not know it does without: it only asks more often.
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
        // Nothing was written; asked once, it is not asked again.
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
        // The kernel asks for nothing but these: `SEEK_DATA` and `SEEK_HOLE`.
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

/// A value, or how long it is, as is asked.
fn tell(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        size if size < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// An owner as it is to be seen.
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

/// The number of an error that a reader is told: what is damaged or cannot be fetched is an I/O error.
fn number_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::NotFound => Errno::ENOENT,
        io::ErrorKind::NotADirectory => Errno::ENOTDIR,
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        _ => Errno::EIO,
    }
}
