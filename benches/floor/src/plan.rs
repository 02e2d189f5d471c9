//! The plan's bytes, read from front to back without a copy.

use std::ffi::CStr;

/// What is left of the plan.
pub(crate) struct Plan<'a>(pub(crate) &'a [u8]);

/// Inode, size in bytes, and the times of content and of status in ns since 1970.
pub(crate) type Stamp = [u64; 4];

impl<'a> Plan<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(crate) fn stamp(&mut self) -> Option<Stamp> {
        Some([self.u64()?, self.u64()?, self.u64()?, self.u64()?])
    }

    pub(crate) fn text(&mut self) -> Option<&'a CStr> {
        let text = CStr::from_bytes_until_nul(self.0).ok()?;
        self.0 = &self.0[text.count_bytes() + 1..];
        Some(text)
    }
}
