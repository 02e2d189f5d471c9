//! Memory as a process has it that was just started: every page is touched for the first time, every time.
#![allow(unsafe_code, reason = "mappings; each is one value's own and goes away with it")]

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::io;
use std::ops::{Deref, DerefMut};

/// Mapped memory that nobody else has.
pub(crate) struct Mapped {
    start: *mut u8,
    size_bytes: usize,
}

impl Mapped {
    /// Zero bytes that no page stands for yet.
    pub(crate) fn fresh(size_bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), size_bytes, protection, MapFlags::PRIVATE)? };
        Ok(Self { start: start.cast(), size_bytes })
    }

    /// The bytes of a file, whose pages are all there at once with `populate`. The file must not shrink meanwhile.
    pub(crate) fn file(file: impl AsFd, size_bytes: usize, populate: bool) -> io::Result<Self> {
        let flags = if populate { MapFlags::PRIVATE | MapFlags::POPULATE } else { MapFlags::PRIVATE };
        // Writable only for the sake of one type: a private mapping never changes its file.
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), size_bytes, protection, flags, file, 0)? };
        Ok(Self { start: start.cast(), size_bytes })
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes, and lives as long as this.
        unsafe { std::slice::from_raw_parts(self.start, self.size_bytes) }
    }
}

impl DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.size_bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference into it any more.
        let _ = unsafe { munmap(self.start.cast(), self.size_bytes) };
    }
}
