//! Where bytes come from that are not there yet.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Brings bytes of an image's data file. Called from several threads at once, for ranges that do not overlap.
pub trait Fill: Send + Sync {
    /// Write the `length` bytes from `offset` on into the file `into`, at those offsets, all of them: when this
    /// returns, whoever waits reads what is there. Only through `into`: whoever opened the file itself would wait for
    /// themselves. An error is an I/O error for those who wait, and the range is asked for again when somebody reads it again.
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()>;

    /// What is best fetched together with a range that somebody waits for: a whole pack, say. It is only widened by this,
    /// and never beyond the file.
    fn together(&self, range: Range<u64>) -> Range<u64> {
        range
    }
}
