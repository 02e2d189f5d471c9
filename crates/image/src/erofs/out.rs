//! Where the bytes go: two stretches of one file that grow beside each other, written a part at a time, so that no
//! memory is asked for the whole of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::ImageError;

/// So much is written at once, bytes: what is in a processor's cache still.
const PART_BYTES: usize = 256 << 10;

/// Both stretches.
pub(super) struct Out<'a> {
    /// Inodes, and what is with them.
    pub(super) inodes: Stretch,
    /// Whole blocks.
    blocks: Stretch,
    block_bytes: u64,
    into: &'a File,
}

/// Bytes from a place on that are not written yet.
pub(super) struct Stretch {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Out<'a> {
    /// For blocks of so many bytes, the first of those that are elsewhere at `blocks_at`.
    pub(super) fn new(blocks_at: u64, block_bytes: u64, into: &'a File) -> Self {
        let stretch = |start| Stretch { start, bytes: Vec::new() };
        Out { inodes: stretch(0), blocks: stretch(blocks_at), block_bytes, into }
    }

    /// What is with an inode, or blocks elsewhere.
    pub(super) fn put(&mut self, elsewhere: bool, bytes: &[u8]) -> Result<(), ImageError> {
        if !elsewhere {
            self.inodes.add(bytes);
            return Ok(());
        }
        self.blocks.add(bytes);
        self.blocks.zeros_to(self.blocks.end().next_multiple_of(self.block_bytes));
        if self.blocks.bytes.len() >= PART_BYTES { self.blocks.write(self.into) } else { Ok(()) }
    }

    /// Between two inodes.
    pub(super) fn write_what_is_much(&mut self) -> Result<(), ImageError> {
        if self.inodes.bytes.len() >= PART_BYTES { self.inodes.write(self.into) } else { Ok(()) }
    }

    /// All that is left, with zeros to the end of the last block of inodes.
    pub(super) fn end(mut self) -> Result<(), ImageError> {
        self.inodes.zeros_to(self.inodes.end().next_multiple_of(self.block_bytes));
        self.inodes.write(self.into)?;
        self.blocks.write(self.into)
    }
}

impl Stretch {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Where the next byte goes.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Up to there nothing is said.
    pub(super) fn zeros_to(&mut self, place: u64) {
        self.bytes.resize((place.saturating_sub(self.start) as usize).max(self.bytes.len()), 0);
    }

    fn write(&mut self, into: &File) -> Result<(), ImageError> {
        let written = into.write_all_at(&self.bytes, self.start);
        written.map_err(ImageError::io("write it", Path::new("(what is mounted)")))?;
        self.start = self.end();
        self.bytes.clear();
        Ok(())
    }
}
