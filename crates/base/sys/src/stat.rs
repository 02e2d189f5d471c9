//! The result of a `stat` or `lstat` of a path.
//!
//! Unaware of: what is done with it.

/// The type of the file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Any other type. The value is the file type bits of the mode, shifted right by 12.
    Other(u8),
}

impl FileType {
    /// Returns the type for the file type bits of a mode, shifted right by 12.
    pub const fn of_code(code: u8) -> FileType {
        match code {
            0o10 => FileType::File,
            0o04 => FileType::Directory,
            0o12 => FileType::Link,
            other => FileType::Other(other),
        }
    }

    /// Returns the file type bits of the mode, shifted right by 12.
    pub const fn code(self) -> u8 {
        match self {
            FileType::File => 0o10,
            FileType::Directory => 0o04,
            FileType::Link => 0o12,
            FileType::Other(code) => code,
        }
    }
}

impl Stat {
    /// Returns the device and the inode, which identify a file whatever its path is.
    pub fn file_id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The result of one `stat` or `lstat`. It has all that the stat cache compares (a *stamp*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The type of the file.
    pub kind: FileType,
    /// The permission bits of the mode.
    pub mode: u32,
    /// A number that identifies the mounted file system while this system runs. It is the number of
    /// the block device.
    ///
    /// If there is no block device, or only a loop device, it is the mount's unique number with the
    /// highest bit set. Device numbers of loop devices are reused.
    pub volume: u64,
    /// The device number as `major << 32 | minor`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The mtime in nanoseconds since 1970. Programs can set it to any value.
    pub modified_ns: i64,
    /// The ctime in nanoseconds since 1970: when the content or the inode changed last. The kernel
    /// sets it.
    pub changed_ns: i64,
    /// The number of hard links.
    pub links: u32,
    /// The user id of the owner.
    pub owner: u32,
    /// The group id.
    pub group: u32,
}

/// The extent to which an unchanged ctime on a file system proves that nothing else has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// True if a regular file with the same stamp has the same content.
    pub files: bool,
    /// True if a directory with the same stamp has the same names.
    pub directories: bool,
}

impl Trust {
    /// Nothing is proved by the ctime, so contents and absent names are checked one by one.
    pub const NONE: Trust = Trust { files: false, directories: false };
}
