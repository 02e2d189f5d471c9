//! A file mapped as shared words: counters and stamps, which many processes read and write without a lock.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped file, as atomic 64-bit words. What another process writes there may change at any moment, which is what
/// atomics are for; the file must never be truncated while it is in use.
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

impl Words {
    /// Map the first `count` words of `file`, which must have them.
    pub fn map(file: &File, count: usize, writable: bool) -> io::Result<Words> {
        let bytes = count * 8;
        if bytes == 0 || file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses; it is not used after `drop` unmaps it.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Words { start, count })
    }

    /// The words. Storing to them when the mapping is not writable ends the process.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` words, page-aligned, for as long as `self` lives; atomics allow that
        // others change them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made by `map`, and no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * 8) };
    }
}
