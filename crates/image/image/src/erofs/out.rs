//! Buffered output: two sections of one file that grow at the same time. They are written in parts,
//! so that memory is not needed for all of it.
//!
//! Unaware of: what is written.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::ImageError;

/// The bytes that are written at once: little enough to be in the processor's cache still.
const PART_BYTES: usize = 256 << 10;

/// The two sections.
pub(super) struct Out<'a> {
    /// Inodes and the data behind them.
    pub(super) inodes: Stretch,
    /// Whole blocks of data.
    blocks: Stretch,
    block_bytes: u64,
    into: &'a File,
}

/// A section: bytes that are not written yet, and their offset.
pub(super) struct Stretch {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Out<'a> {
    /// Returns an output with blocks of `block_bytes`. The section of whole blocks begins at
    /// `blocks_at`.
    pub(super) fn new(blocks_at: u64, block_bytes: u64, into: &'a File) -> Self {
        let stretch = |start| Stretch { start, bytes: Vec::new() };
        Out { inodes: stretch(0), blocks: stretch(blocks_at), block_bytes, into }
    }

    /// Adds data behind the last inode, or as a whole block elsewhere.
    pub(super) fn put(&mut self, elsewhere: bool, bytes: &[u8]) -> Result<(), ImageError> {
        if !elsewhere {
            self.inodes.add(bytes);
            return Ok(());
        }
        self.blocks.add(bytes);
        self.blocks.zeros_to(self.blocks.end().next_multiple_of(self.block_bytes));
        if self.blocks.bytes.len() >= PART_BYTES { self.blocks.write(self.into) } else { Ok(()) }
    }

    /// Writes the buffered inodes if there are many. Called between two inodes.
    pub(super) fn write_what_is_much(&mut self) -> Result<(), ImageError> {
        if self.inodes.bytes.len() >= PART_BYTES { self.inodes.write(self.into) } else { Ok(()) }
    }

    /// Writes the rest, and fills the last block of inodes with zeros.
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

    /// Returns the offset of the next byte.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Adds zeros up to an offset.
    pub(super) fn zeros_to(&mut self, place: u64) {
        self.bytes.resize((place.saturating_sub(self.start) as usize).max(self.bytes.len()), 0);
    }

    fn write(&mut self, into: &File) -> Result<(), ImageError> {
        let written = into.write_all_at(&self.bytes, self.start);
        written.map_err(ImageError::io("write it", Path::new("(the file to mount)")))?;
        self.start = self.end();
        self.bytes.clear();
        Ok(())
    }
}
