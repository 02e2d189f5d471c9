//! Where bytes come from that are not there yet.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// What one fetch brings where nothing else is known, bytes: with 20 ms a fetch and sixteen at once that is 800 MB/s.
const PIECE_BYTES: u64 = 1 << 20;

/// Brings bytes of an image's data file, a piece at a time. Called from several threads at once, for different pieces.
pub trait Fill: Send + Sync {
    /// Write the `length` bytes from `offset` on, which are a piece, into the file `into`, at those offsets, all of
    /// them: when this returns, whoever waits reads what is there. An error is an I/O error for those who wait, and the
    /// piece is asked for again when it is read again. If the error is `HostUnreachable`, the bytes cannot be reached
    /// now: then it is asked again for a while first.
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()>;

    /// The piece that holds the byte at `offset`: what one fetch brings, such as a pack. Pieces cover the file, do not
    /// overlap, and begin at multiples of 4096; the last one may end beyond the file.
    fn piece(&self, offset: u64) -> Range<u64> {
        let start = offset / PIECE_BYTES * PIECE_BYTES;
        start..start + PIECE_BYTES
    }
}
