//! The result of an export.

/// The result of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The size of the archive, in bytes.
    pub archive_bytes: u64,
    /// Names that the format cannot hold, for example FIFOs in a zip.
    pub left: u64,
    /// Hard links that became separate files.
    pub copied: u64,
    /// Names with attributes that the format cannot hold.
    pub attributes_left: u64,
}
