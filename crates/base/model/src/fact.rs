//! One fact about a path. `observation.rs` has the grammar of its bytes.
//!
//! Unaware of: which path it is about.

use crate::{DecodeError, Digest, Reader, Writer};

/// The most bytes of a path in a fact or a set.
pub(crate) const PATH_BYTES_MAX: u64 = 64 << 10;

/// One fact about a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<'a> {
    /// A regular file with this content. Symbolic links are followed.
    Content {
        /// The digest of its bytes.
        digest: Digest,
        /// At least one execute bit is set.
        executable: bool,
        /// The tool asked whether it is a symbolic link, and it was not.
        plain: bool,
        /// If the content contains a root: the digest of the content with roots replaced, which
        /// counts in another place.
        rooted: Option<Digest>,
    },
    /// A directory. Symbolic links are followed.
    Directory,
    /// A symbolic link with this target, in which roots are replaced.
    Link(&'a [u8]),
    /// An operation on the path fails with this error.
    Error {
        /// 0: `stat`. 1: open for reading. [`Fact::OWNER`] and [`Fact::IS_DIRECTORY`]: see there.
        /// `Fact::ACCESS` plus the requested mode: `access`.
        operation: u8,
        /// The errno on this platform. 0 means that `access` for reading or writing succeeds.
        errno: u32,
    },
    /// A directory that lists exactly these names.
    Listing(Digest),
    /// A directory that lists exactly these names, with these file types, in this order.
    Ordered(Digest),
    /// A directory that lists exactly these names. Their file types count too, unless the name
    /// begins with a dot.
    Kinds(Digest),
    /// A file of another type, such as a FIFO, or one whose content does not count or cannot be
    /// read. The value is `st_mode >> 12`.
    Other(u8),
    /// The mtime, in nanoseconds since 1970. Recorded if a program could compare it or write it
    /// down.
    Modified(i64),
    /// The permission bits. Recorded if a program gives them to files that it makes.
    Mode(u32),
    /// To whom it belongs, with links followed. Recorded if a program gives owners to files, as `cp -p`
    /// does, or if code of the build looks at a file.
    Belongs {
        /// The user ID of the owner, or [`Fact::OWN`] for that of the process.
        owner: u32,
        /// The group ID, or [`Fact::OWN`] for that of the process.
        group: u32,
        /// The number of hard links, if it counts, or [`Fact::SEVERAL`].
        links: Option<u32>,
    },
    /// The rest of what `stat` says. Recorded if a program could write it down.
    Status(Status),
}

/// The part of `stat` that `ls -l`, `du` and `tar` write down of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Permission bits.
    pub mode: u32,
    /// The user ID of the owner.
    pub owner: u32,
    /// The group ID.
    pub group: u32,
    /// The number of hard links.
    pub links: u32,
    /// The inode number.
    pub inode: u64,
    /// The mtime, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The size in bytes. That of a directory depends on the names that it once had.
    pub size_bytes: u64,
    /// The space that it takes, in blocks of 512 bytes. Files of equal content may take more or less.
    pub blocks: u64,
}

impl<'a> Fact<'a> {
    /// The operation of an error from `access`. The requested mode is added: 1 execute, 2 write, 4
    /// read.
    pub const ACCESS: u8 = 0x10;

    /// No error: the path, with links not followed, belongs to the user whose ID is `errno`. Recorded
    /// if a program refuses files of other users, as git does.
    pub const OWNER: u8 = 2;

    /// The operation of an error from a use of the path as a directory. Links are followed. The error
    /// is `ENOTDIR`: it is something else.
    pub const IS_DIRECTORY: u8 = 3;

    /// More than one, in [`Fact::Belongs`].
    pub const SEVERAL: u32 = u32::MAX;

    /// The ID of the process itself, in [`Fact::Belongs`]. It is no valid ID.
    pub const OWN: u32 = u32::MAX;

    /// Returns the part of the fact that counts when two runs are compared, or `None` if nothing of
    /// it does.
    pub(crate) fn compared(&self) -> Option<Fact<'a>> {
        match self {
            Fact::Content { digest, executable, rooted, .. } => {
                let digest = rooted.unwrap_or(*digest);
                Some(Fact::Content { digest, executable: *executable, plain: false, rooted: None })
            }
            Fact::Listing(_) | Fact::Ordered(_) | Fact::Kinds(_) | Fact::Link(_) | Fact::Other(_) => Some(self.clone()),
            Fact::Error { .. }
            | Fact::Directory
            | Fact::Mode(_)
            | Fact::Modified(_)
            | Fact::Status(_)
            | Fact::Belongs { .. } => None,
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Fact::Content { digest, executable, plain, rooted } => {
                w.u8(1);
                w.digest(digest);
                w.u8(u8::from(*executable) | u8::from(*plain) << 1 | u8::from(rooted.is_some()) << 2);
                if let Some(rooted) = rooted {
                    w.digest(rooted);
                }
            }
            Fact::Directory => w.u8(2),
            Fact::Link(target) => {
                w.u8(3);
                w.bytes(target);
            }
            Fact::Error { operation, errno } => {
                w.u8(4);
                w.u8(*operation);
                w.number(u64::from(*errno));
            }
            Fact::Listing(digest) => {
                w.u8(5);
                w.digest(digest);
            }
            Fact::Ordered(digest) => {
                w.u8(9);
                w.digest(digest);
            }
            Fact::Kinds(digest) => {
                w.u8(11);
                w.digest(digest);
            }
            Fact::Other(kind) => {
                w.u8(6);
                w.u8(*kind);
            }
            Fact::Mode(mode) => {
                w.u8(10);
                w.number((*mode).into());
            }
            Fact::Belongs { owner, group, links } => {
                w.u8(12);
                for number in [*owner, *group, links.unwrap_or(0)] {
                    w.number(number.into());
                }
            }
            Fact::Modified(ns) => {
                w.u8(7);
                w.number(*ns as u64);
            }
            Fact::Status(status) => {
                w.u8(8);
                for number in [status.mode, status.owner, status.group, status.links] {
                    w.number(number.into());
                }
                w.number(status.inode);
                w.number(status.modified_ns as u64);
                w.number(status.size_bytes);
                w.number(status.blocks);
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => {
                let (digest, bits) = (r.digest()?, r.u8()?);
                if bits > 7 {
                    return Err(r.unknown_tag(bits));
                }
                let rooted = if bits & 4 != 0 { Some(r.digest()?) } else { None };
                Fact::Content { digest, executable: bits & 1 != 0, plain: bits & 2 != 0, rooted }
            }
            2 => Fact::Directory,
            3 => Fact::Link(r.bytes(PATH_BYTES_MAX)?),
            4 => {
                let operation = r.u8()?;
                Fact::Error { operation, errno: r.u32()? }
            }
            5 => Fact::Listing(r.digest()?),
            6 => Fact::Other(r.u8()?),
            7 => Fact::Modified(r.number()? as i64),
            8 => Fact::Status(Status {
                mode: r.u32()?,
                owner: r.u32()?,
                group: r.u32()?,
                links: r.u32()?,
                inode: r.number()?,
                modified_ns: r.number()? as i64,
                size_bytes: r.number()?,
                blocks: r.number()?,
            }),
            9 => Fact::Ordered(r.digest()?),
            10 => Fact::Mode(r.u32()?),
            11 => Fact::Kinds(r.digest()?),
            12 => {
                let (owner, group, links) = (r.u32()?, r.u32()?, r.u32()?);
                Fact::Belongs { owner, group, links: Some(links).filter(|links| *links > 0) }
            }
            tag => return Err(r.unknown_tag(tag)),
        })
    }

    /// Skips a fact. Most facts are contents, so these are skipped without decoding them.
    pub(crate) fn pass_over(r: &mut Reader<'a>) -> Result<(), DecodeError> {
        const CONTENT: u8 = 1;
        const DIGEST_BYTES: usize = 32;
        let mut ahead = r.clone();
        if ahead.u8()? != CONTENT {
            return Fact::decode(r).map(drop);
        }
        let bits = ahead.take(DIGEST_BYTES + 1)?[DIGEST_BYTES];
        if bits & 4 != 0 {
            ahead.take(DIGEST_BYTES)?;
        }
        *r = ahead;
        Ok(())
    }
}
