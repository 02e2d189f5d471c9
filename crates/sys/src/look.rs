//! What the file system says of a path.

/// What kind of thing a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else: the file type bits of its mode, shifted right by 12.
    Other(u8),
}

/// What one look at a path gives: enough for a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// The mounted file system that it is on, as long as this system runs: the block device, or where there is none
    /// (or one that is used again, a loop device) the mount's unique number with the highest bit set.
    pub volume: u64,
    /// `major << 32 | minor` of the device.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size.
    pub size_bytes: u64,
    /// Time of the last change of the content, nanoseconds since 1970; anybody can set it.
    pub modified_ns: i64,
    /// Time of the last change of content or inode, nanoseconds since 1970; the kernel sets it.
    pub changed_ns: i64,
    /// Number of names.
    pub links: u32,
    /// The user that it belongs to.
    pub owner: u32,
    /// The group that it belongs to.
    pub group: u32,
}

/// How far the change times of a file system can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// A file whose stamp is unchanged has the same content.
    pub files: bool,
    /// A directory whose stamp is unchanged has the same names.
    pub directories: bool,
}

impl Trust {
    /// Nothing is believed: contents and absences are looked at one by one.
    pub const NONE: Trust = Trust { files: false, directories: false };
}
