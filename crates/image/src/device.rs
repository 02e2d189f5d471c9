//! Device: all packs of an image one after the other, as the blocks that its trees speak of. A file stands for it, which is filled
//! where it is touched.

use std::fs::File;
use std::os::unix::fs::FileExt;

use larder_model::BLOCK_BYTES;

use crate::squeeze::Unpacker;
use crate::{Image, ImageError, packs};

/// The blocks of an image.
pub struct Device<'a> {
    image: &'a Image,
}

impl<'a> Device<'a> {
    /// Of this image.
    pub fn new(image: &'a Image) -> Self {
        Device { image }
    }

    /// How large the file is that stands for it, bytes.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.image.packs.blocks()) * BLOCK_BYTES
    }

    /// The packs that hold any byte of this range.
    pub fn packs_of(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        self.image.packs.of_range(offset, length)
    }

    /// Write a pack's blocks to their place in the file, once its bytes are found to be right. Nothing is written else.
    pub fn fill(&self, number: usize, bytes: &[u8], into: &File) -> Result<u64, ImageError> {
        let pack = self.image.packs.packs.get(number).ok_or(ImageError::TooLarge("the packs of its list"))?;
        let mut raw = Vec::new();
        packs::open(pack, bytes, &mut Unpacker::new()?, &mut raw)?;
        let offset = u64::from(self.image.packs.start(number)) * BLOCK_BYTES;
        into.write_all_at(&raw, offset).map_err(ImageError::io("fill it", std::path::Path::new("(the data file)")))?;
        Ok(raw.len() as u64)
    }
}
