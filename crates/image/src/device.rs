//! Device: all packs of an image one after the other, as the blocks that its trees speak of. A file stands for it,
//! which is filled where it is touched.

use std::cell::RefCell;
use std::os::fd::AsFd;

use larder_model::BLOCK_BYTES;

use crate::squeeze::Unpacker;
use crate::{Image, ImageError, packs};

thread_local! {
    /// What a thread fills with, again and again: new memory for each pack would take a third as long as unpacking it.
    static OWN: RefCell<Option<(Unpacker, Vec<u8>)>> = const { RefCell::new(None) };
}

/// The blocks of an image.
pub struct Device<'a> {
    image: &'a Image,
    /// Where its first block is in the file that stands for it, bytes.
    start: u64,
}

impl<'a> Device<'a> {
    /// Of this image.
    pub fn new(image: &'a Image) -> Self {
        Device { image, start: 0 }
    }

    /// Of this image, in a file that has other bytes before it, so many: only `fill` says where in the file that is.
    pub fn behind(image: &'a Image, start: u64) -> Self {
        Device { image, start }
    }

    /// How large the file is that stands for it, bytes.
    pub fn size_bytes(&self) -> u64 {
        u64::from(self.image.packs.blocks()) * BLOCK_BYTES
    }

    /// The packs that hold any byte of this range.
    pub fn packs_of(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        self.image.packs.of_range(offset, length)
    }

    /// The bytes of the device that come with this one: those of a pack.
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

    /// Write a pack's blocks to their place in the file, once its bytes are found to be right. Nothing is written else.
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
