//! Numbers and extended attributes in the bytes of an image.
//!
//! Unaware of: where in an image the bytes are.

use std::io;

pub(super) fn damaged(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Reads the size of an extended attribute, in bytes, from its first four bytes.
pub(super) fn attribute_bytes(head: &[u8]) -> usize {
    4 + usize::from(head[0]) + usize::from(u16_at(head, 2))
}

/// An extended attribute as the metadata stores it.
pub(super) struct Attribute<'b> {
    /// Its size in the metadata, in bytes.
    pub(super) taken: usize,
    /// The prefix of its name, which is stored as a number. For example, 1 stands for `user.`.
    pub(super) prefix: &'static [u8],
    /// The name after the prefix.
    pub(super) name: &'b [u8],
    pub(super) value: &'b [u8],
}

pub(super) fn attribute(bytes: &[u8]) -> io::Result<Attribute<'_>> {
    let taken = attribute_bytes(bytes);
    let prefix: &[u8] = match bytes[1] {
        0 => b"",
        1 => b"user.",
        2 => b"system.posix_acl_access",
        3 => b"system.posix_acl_default",
        4 => b"trusted.",
        6 => b"security.",
        _ => return Err(damaged("an attribute has a name of an unknown kind")),
    };
    let rest = bytes.get(4..taken).ok_or_else(|| damaged("an attribute is cut"))?;
    let (name, value) = rest.split_at(usize::from(bytes[0]));
    Ok(Attribute { taken, prefix, name, value })
}
