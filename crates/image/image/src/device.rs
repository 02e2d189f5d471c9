//! The device of an image: its uncompressed packs one after the other. Trees refer to its blocks. A
//! file stands for it, and its ranges are written when they are first read.
//!
//! Unaware of: where packs come from, how the file is mounted.

use std::cell::RefCell;
use std::os::fd::AsFd;

use larder_model::BLOCK_BYTES;

use crate::compress::Unpacker;
use crate::{Image, ImageError, packs};

thread_local! {
    /// A thread's decompressor and buffer. Allocating them for each pack would take a third of the
    /// time that unpacking it takes.
    static OWN: RefCell<Option<(Unpacker, Vec<u8>)>> = const { RefCell::new(None) };
}

/// The device of an image.
pub struct Device<'a> {
    image: &'a Image,
    /// The offset of its first block in the file, in bytes.
    start: u64,
}

impl<'a> Device<'a> {
    /// Returns the device of an image, in a file of its own.
    pub fn new(image: &'a Image) -> Self {
        Device { image, start: 0 }
    }

    /// Returns the device of an image in a file that begins with `start` other bytes. Only `fill`
    /// adds `start`; all other offsets are those of the device.
    pub fn behind(image: &'a Image, start: u64) -> Self {
        Device { image, start }
    }

    /// Returns the size of the device, in bytes.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.image.packs.blocks()) * BLOCK_BYTES
    }

    /// Returns the numbers of the packs that hold any byte of this range.
    pub fn packs_of(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        self.image.packs.of_range(offset, length)
    }

    /// Returns the range of the pack that holds the byte at `offset`.
    pub fn piece(&self, offset: u64) -> std::ops::Range<u64> {
        let packs = &self.image.packs;
        let numbers = packs.of_range(offset, 1);
        let start = |number: usize| u64::from(packs.start(number)) * BLOCK_BYTES;
        match numbers.start < packs.packs.len() && !numbers.is_empty() {
            true => {
                start(numbers.start)..start(numbers.start) + u64::from(packs.packs[numbers.start].blocks) * BLOCK_BYTES
            }
            false => self.size_bytes()..u64::MAX,
        }
    }

    /// Verifies a pack and writes its blocks to their place in the file. Returns how many bytes
    /// were written. Writes nothing if the pack is damaged.
    pub fn fill(&self, number: usize, bytes: &[u8], into: impl AsFd) -> Result<u64, ImageError> {
        let pack = self.image.packs.packs.get(number).ok_or(ImageError::TooLarge("the packs of its list"))?;
        OWN.with_borrow_mut(|own| {
            let (unpacker, raw) = match own {
                Some(own) => own,
                None => own.insert((Unpacker::new()?, Vec::new())),
            };
            packs::open(pack, bytes, unpacker, raw)?;
            self.write(number, raw, into)
        })
    }

    fn write(&self, number: usize, raw: &[u8], into: impl AsFd) -> Result<u64, ImageError> {
        let offset = self.start + u64::from(self.image.packs.start(number)) * BLOCK_BYTES;
        let mut written = 0;
        while written < raw.len() {
            let count =
                rustix::io::retry_on_intr(|| rustix::io::pwrite(&into, &raw[written..], offset + written as u64));
            written += count.map_err(ImageError::io("fill it", std::path::Path::new("(the data file)")))?;
        }
        Ok(raw.len() as u64)
    }
}
