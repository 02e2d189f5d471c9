//! The positions of the parts of a file system, and its numbers as bytes.

use larder_model::BLOCK_BYTES;

pub(super) const BLOCK: usize = BLOCK_BYTES as usize;
pub(super) const SUPERBLOCK: usize = 1024;
pub(super) const DEVICE: usize = 1152;
pub(super) const DEVICE_BYTES: usize = 128;
/// Marks an unused device slot. For an image that is mounted before its data is there,
/// `larder-mount` adds devices in these slots.
pub(super) const SPARE: &[u8] = b"larder: spare";
pub(super) const SPARES: usize = 2;
/// The bytes before the first inode.
pub(super) const HEAD_BYTES: usize = DEVICE + (1 + SPARES) * DEVICE_BYTES;

pub(super) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
