//! The smallest images with an empty root directory, byte by byte from the descriptions of the
//! formats (Linux, `Documentation/filesystems/erofs.rst` and `squashfs.rst`). Making them here
//! needs no program.
//!
//! Unaware of: how the images are mounted.

/// The size that images are padded to, in bytes. It is one block of a block device.
const BLOCK_BYTES: usize = 4096;
const DIRECTORY: u16 = 0o040_755;

/// Copies bytes into the image at an offset.
fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the data device that belongs to the image `erofs`.
pub(super) fn data() -> Vec<u8> {
    vec![0; BLOCK_BYTES]
}

/// Returns the image `erofs` without a data device, for kernels before 5.16.
pub(super) fn whole() -> Vec<u8> {
    let mut image = erofs();
    // The incompatible features, the number of devices, and the position of the device table.
    image[1024 + 80..1024 + 90].fill(0);
    image
}

/// Makes an EROFS image: the superblock at offset 1024, the data device in a slot of 128 bytes,
/// then the root's inode with its two entries. It has a data device as larder's images do, because
/// kernels before 5.16 mount EROFS but refuse images with a data device.
pub(super) fn erofs() -> Vec<u8> {
    const SUPERBLOCK: usize = 1024;
    const DEVICE: usize = 1152;
    /// `CHUNKED_FILE` (files are lists of chunks) and `DEVICE_TABLE`.
    const FEATURES: u32 = 0x4 | 0x8;
    /// The number of the root inode. Inodes are numbered by slots of 32 bytes, and this is the
    /// first slot after the device's.
    const ROOT: u64 = 40;
    const ROOT_AT: usize = ROOT as usize * 32;
    const INLINE: u16 = 2 << 1;
    const NAMES: &[u8] = b"...";
    let mut image = vec![0; BLOCK_BYTES];
    put(&mut image, SUPERBLOCK, &0xe0f5_e1e2u32.to_le_bytes());
    image[SUPERBLOCK + 12] = 12;
    put(&mut image, SUPERBLOCK + 14, &(ROOT as u16).to_le_bytes());
    put(&mut image, SUPERBLOCK + 16, &1u64.to_le_bytes());
    put(&mut image, SUPERBLOCK + 36, &1u32.to_le_bytes());
    put(&mut image, SUPERBLOCK + 80, &FEATURES.to_le_bytes());
    put(&mut image, SUPERBLOCK + 86, &1u16.to_le_bytes());
    put(&mut image, SUPERBLOCK + 88, &((DEVICE / 128) as u16).to_le_bytes());
    put(&mut image, DEVICE + 64, &1u32.to_le_bytes());
    put(&mut image, ROOT_AT, &INLINE.to_le_bytes());
    put(&mut image, ROOT_AT + 4, &DIRECTORY.to_le_bytes());
    put(&mut image, ROOT_AT + 6, &2u16.to_le_bytes());
    put(&mut image, ROOT_AT + 8, &(24 + NAMES.len() as u32).to_le_bytes());
    put(&mut image, ROOT_AT + 20, &1u32.to_le_bytes());
    // Two entries of twelve bytes: the inode number, the offset of the name, the type (2 is a
    // directory).
    for (entry, name) in [24u16, 25].into_iter().enumerate() {
        let at = ROOT_AT + 32 + entry * 12;
        put(&mut image, at, &ROOT.to_le_bytes());
        put(&mut image, at + 8, &name.to_le_bytes());
        image[at + 10] = 2;
    }
    put(&mut image, ROOT_AT + 32 + 24, NAMES);
    image
}

/// Makes a squashfs 4.0 image: the superblock, one inode, no directory entries, one owner.
pub(super) fn squashfs() -> Vec<u8> {
    const NONE: u64 = u64::MAX;
    /// The header of a metadata block: its length, with this bit if it is not compressed.
    const PLAIN: u16 = 0x8000;
    const INODES: u64 = 96;
    const DIRECTORIES: u64 = INODES + 2 + 32;
    const OWNERS: u64 = DIRECTORIES + 2 + 4;
    const END: u64 = OWNERS + 8;
    let mut image = vec![0; BLOCK_BYTES];
    let words: [u32; 5] = [0x7371_7368, 1, 0, 128 << 10, 0];
    words.iter().enumerate().for_each(|(at, word)| put(&mut image, at * 4, &word.to_le_bytes()));
    // The fields: gzip, blocks of 2^17 bytes, flags (everything uncompressed, no fragments), one
    // owner, version 4.0.
    let halves: [u16; 6] = [1, 17, 0x081b, 1, 4, 0];
    halves.iter().enumerate().for_each(|(at, half)| put(&mut image, 20 + at * 2, &half.to_le_bytes()));
    let places = [0, END, OWNERS, NONE, INODES, DIRECTORIES, NONE, NONE];
    places.iter().enumerate().for_each(|(at, place)| put(&mut image, 32 + at * 8, &place.to_le_bytes()));
    let inode = INODES as usize;
    let halves: [u16; 5] = [PLAIN | 32, 1, DIRECTORY & 0o7777, 0, 0];
    halves.iter().enumerate().for_each(|(at, half)| put(&mut image, inode + at * 2, &half.to_le_bytes()));
    // The inode number, two links, a size of 3 (which means no entries), the inode as its own
    // parent.
    put(&mut image, inode + 2 + 12, &1u32.to_le_bytes());
    put(&mut image, inode + 2 + 20, &2u32.to_le_bytes());
    put(&mut image, inode + 2 + 24, &3u16.to_le_bytes());
    put(&mut image, inode + 2 + 28, &2u32.to_le_bytes());
    put(&mut image, DIRECTORIES as usize, &(PLAIN | 4).to_le_bytes());
    put(&mut image, OWNERS as usize, &DIRECTORIES.to_le_bytes());
    image
}
