//! The source of an image's bytes that are not local yet.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The default size of a piece, in bytes. With 20 ms a fetch and 16 fetches at once that is 800
/// MB/s.
const PIECE_BYTES: u64 = 1 << 20;

/// Fetches bytes of an image's data file, one piece at a time. Several threads call it at once, for
/// different pieces.
pub trait Fill: Send + Sync {
    /// Writes `length` bytes, which are one piece, into the file `into` at the offsets from
    /// `offset` on. All of them must be written when this returns, because waiting readers then
    /// read the file.
    ///
    /// If this returns an error, the waiting readers get an I/O error, and the next read of the
    /// piece calls this again. If the error is `HostUnreachable`, the source cannot be reached at
    /// the moment. Then the caller first retries for a while.
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()>;

    /// Returns the piece that holds the byte at `offset`: the bytes that one fetch brings, such as
    /// a pack. Pieces cover the file, do not overlap, and begin at multiples of 4096. The last one
    /// may end beyond the end of the file.
    fn piece(&self, offset: u64) -> Range<u64> {
        let start = offset / PIECE_BYTES * PIECE_BYTES;
        start..start + PIECE_BYTES
    }
}
