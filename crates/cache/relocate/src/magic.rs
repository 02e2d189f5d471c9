//! The first bytes of file formats.
//!
//! Unaware of: what else is in a file.

use object::archive::MAGIC;

/// Returns true if the bytes begin like an archive.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}
