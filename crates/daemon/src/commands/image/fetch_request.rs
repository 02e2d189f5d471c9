//! The requests of a broker to its fetchers. A fetcher is a process without rights that downloads and
//! decodes one image.
//!
//! ```text
//! request = kind, offset, length        u64 each, little-endian
//!           with descriptors: the socket for the reply, then the files of the kind
//! reply   = status u64 · text           up to the end of the connection
//! status  = 0 done · 1 failed, the remote cannot be reached at the moment · 2 failed
//! ```
//! A fetcher writes all that it makes into files that the broker opened, so it cannot choose what the
//! broker opens.
//!
//! Unaware of: what is in the files.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use larder_sys::Channel;

const REQUEST_BYTES: usize = 24;
/// The limit for the text of a reply. The rest is cut off.
const TEXT_BYTES_MAX: usize = 4096;
/// More descriptors than any request has.
const DESCRIPTORS_MAX: usize = 8;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// Writes to a file how much memory it takes to decode the image, in bytes, as a u64,
    /// little-endian.
    Weigh,
    /// Writes numbers about the image to a file: see `Description`.
    Describe,
    /// Writes the record to a file.
    Record,
    /// Writes the EROFS metadata to a file.
    Metadata,
    /// Writes metadata and contents to a file.
    Whole,
    /// Writes the saved path as squashfs to a file.
    Squashfs,
    /// Prepares metadata for lazy reads: the metadata, its copy, the list of chunks.
    Prepare,
    /// Writes a piece of the contents to the data file.
    Fill,
    /// Reads the ranges that jobs read from a file, and stores them with the image.
    Trace,
}

const KINDS: [RequestKind; 8] = [
    RequestKind::Describe,
    RequestKind::Record,
    RequestKind::Metadata,
    RequestKind::Whole,
    RequestKind::Squashfs,
    RequestKind::Prepare,
    RequestKind::Fill,
    RequestKind::Trace,
];

/// The result of a request.
#[derive(Debug)]
pub(super) enum Failed {
    /// The fetcher ended without an answer.
    Died,
    /// A remote cannot be reached at the moment.
    Unreachable(String),
    /// Something else, as a text for users.
    Other(String),
}

/// A received request.
pub(super) struct Request {
    pub(super) kind: RequestKind,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) reply: Channel,
    pub(super) files: Vec<OwnedFd>,
}

/// Sends a request, and waits for the reply. A process that does not answer in time counts as dead.
pub(super) fn ask(
    line: &Channel,
    kind: RequestKind,
    bytes: (u64, u64),
    files: &[BorrowedFd],
    patience: Duration,
) -> Result<(), Failed> {
    let other = |error: io::Error| Failed::Other(format!("the process that fetches images cannot be asked: {error}"));
    let (ours, theirs) = Channel::pair().map_err(other)?;
    ours.set_patience(patience).map_err(other)?;
    let number = KINDS.iter().position(|known| *known == kind).unwrap_or(0) as u64;
    let request = [number, bytes.0, bytes.1].map(u64::to_le_bytes).concat();
    let mut passed = vec![theirs.as_fd()];
    passed.extend(files);
    line.send(&request, &passed).map_err(|_| Failed::Died)?;
    drop(theirs);
    heard(&ours)
}

fn heard(reply: &Channel) -> Result<(), Failed> {
    let (mut said, mut buffer) = (Vec::new(), [0; 512]);
    // The reply brings no descriptors.
    while said.len() < 8 + TEXT_BYTES_MAX {
        match reply.receive(&mut buffer, &mut Vec::new(), 0) {
            Ok(0) | Err(_) => break,
            Ok(count) => said.extend_from_slice(&buffer[..count]),
        }
    }
    let Some((status, text)) = said.split_first_chunk::<8>() else { return Err(Failed::Died) };
    let text = || crate::say::one_line(&String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]));
    match u64::from_le_bytes(*status) {
        0 => Ok(()),
        1 => Err(Failed::Unreachable(text())),
        _ => Err(Failed::Other(text())),
    }
}

/// Receives the next request, or `None` at the end of the connection.
pub(super) fn next(line: &Channel) -> io::Result<Option<Request>> {
    let (mut came, mut passed) = (0, Vec::new());
    let mut bytes = [0; REQUEST_BYTES];
    while came < REQUEST_BYTES {
        match line.receive(&mut bytes[came..], &mut passed, DESCRIPTORS_MAX)? {
            0 => return Ok(None),
            count => came += count,
        }
    }
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
    let kind = usize::try_from(number(0)).ok().and_then(|kind| KINDS.get(kind).copied());
    let mut passed = passed.into_iter();
    let (Some(kind), Some(reply)) = (kind, passed.next()) else { return Err(io::ErrorKind::InvalidData.into()) };
    let (offset, length, reply) = (number(1), number(2), Channel::given(reply));
    Ok(Some(Request { kind, offset, length, reply, files: passed.collect() }))
}

/// Answers a request.
pub(super) fn answer(reply: &Channel, done: Result<(), Failed>) {
    let (status, text) = match done {
        Ok(()) => (0u64, String::new()),
        Err(Failed::Unreachable(text)) => (1, text),
        Err(Failed::Other(text)) => (2, text),
        // The broker finds the connection closed.
        Err(Failed::Died) => return,
    };
    let text = text.as_bytes();
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    // The broker may have gone.
    let _ = reply.send(&[&status.to_le_bytes(), text].concat(), &[]);
}

/// The facts about an image that a broker needs. As a file:
///
/// ```text
/// size · traced (0 or 1) · number of pieces · number of ranges
/// · where each piece begins · start and end of each range          u64 each, little-endian
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    /// The size of the data file, in bytes.
    pub(super) size_bytes: u64,
    /// True if a trace of reads is wanted.
    pub(super) traced: bool,
    /// The offset of each piece in the data file, in ascending order.
    pub(super) pieces: Vec<u64>,
    /// The ranges that earlier jobs read.
    pub(super) order: Vec<std::ops::Range<u64>>,
}

/// The limits for the number of pieces and of ranges. A piece is a pack, of a third of a MiB.
const PIECES_MAX: u64 = 1 << 24;
const PIECE_UNIT_BYTES: u64 = 4096;

impl Description {
    /// Encodes it as a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let head = [self.size_bytes, self.traced.into(), self.pieces.len() as u64, self.order.len() as u64];
        let ranges = self.order.iter().flat_map(|range| [range.start, range.end]);
        head.into_iter().chain(self.pieces.iter().copied()).chain(ranges).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes such a file, and checks each number: the process that wrote it may lie.
    pub(super) fn read(mut from: impl Read) -> io::Result<Description> {
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        let mut number = || -> io::Result<u64> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let (size_bytes, traced, pieces, ranges) = (number()?, number()? == 1, number()?, number()?);
        if pieces > PIECES_MAX || ranges > PIECES_MAX || size_bytes > i64::MAX as u64 {
            return Err(wrong());
        }
        let mut found = Description { size_bytes, traced, ..Description::default() };
        for _ in 0..pieces {
            let start = number()?;
            let is_first = found.pieces.is_empty() && start == 0;
            let is_next = found.pieces.last().is_some_and(|last| *last < start);
            if !(is_first || is_next) || start >= size_bytes || !start.is_multiple_of(PIECE_UNIT_BYTES) {
                return Err(wrong());
            }
            found.pieces.push(start);
        }
        if found.pieces.is_empty() && size_bytes > 0 {
            return Err(wrong());
        }
        for _ in 0..ranges {
            let range = number()?..number()?;
            if range.start >= range.end || range.end > size_bytes.next_multiple_of(PIECE_UNIT_BYTES) {
                return Err(wrong());
            }
            found.order.push(range);
        }
        Ok(found)
    }

    /// Returns the piece that holds the byte at `offset`.
    pub(super) fn piece(&self, offset: u64) -> std::ops::Range<u64> {
        let end = self.size_bytes.next_multiple_of(PIECE_UNIT_BYTES);
        let after = self.pieces.partition_point(|start| *start <= offset);
        let start = after.checked_sub(1).map_or(0, |at| self.pieces[at]);
        start..self.pieces.get(after).copied().unwrap_or(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_it_was_written_or_refused() {
        let good = || Description { size_bytes: 9000, traced: true, pieces: vec![0, 4096], order: vec![1..2, 5..9000] };
        let read = |description: &Description| Description::read(&*description.encode());
        assert_eq!(read(&good()).expect("is valid"), good());
        assert_eq!(read(&Description::default()).expect("is valid"), Description::default());
        let bad = [
            Description { size_bytes: u64::MAX, ..good() },
            Description { pieces: vec![], ..good() },
            Description { pieces: vec![4096], ..good() },
            Description { pieces: vec![0, 4096, 4096], ..good() },
            Description { pieces: vec![0, 100], ..good() },
            Description { pieces: vec![0, 12_288], ..good() },
            Description { order: std::iter::once(7..7).collect(), ..good() },
            Description { order: std::iter::once(0..u64::MAX).collect(), ..good() },
        ];
        for bad in bad {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
        let mut huge = good().encode();
        huge[16..24].fill(0xff);
        assert!(Description::read(&*huge).is_err());
        assert!(Description::read(&good().encode()[..40]).is_err());
        assert_eq!(good().piece(4095), 0..4096);
        assert_eq!(good().piece(4096), 4096..12_288);
        assert_eq!(good().piece(u64::MAX), 4096..12_288);
    }

    #[test]
    fn requests_and_replies_are_read_as_they_are_written() {
        let (ours, theirs) = Channel::pair().expect("makes");
        let theirs = Channel::given(theirs);
        let file = larder_sys::pipe().expect("makes").0;
        for (kind, answered) in KINDS.into_iter().zip([0, 1, 2, 3].into_iter().cycle()) {
            let done = std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(&ours, kind, (3, u64::MAX), &[file.as_fd()], Duration::from_secs(60)));
                let request = next(&theirs).expect("receives").expect("is there");
                let Request { offset, length, files, .. } = &request;
                assert_eq!((request.kind, *offset, *length, files.len()), (kind, 3, u64::MAX, 1));
                let why = || "x".repeat(TEXT_BYTES_MAX + 1);
                let done = [Ok(()), Err(Failed::Unreachable(why())), Err(Failed::Other(why())), Err(Failed::Died)];
                answer(&request.reply, done.into_iter().nth(answered).expect("is there"));
                drop(request);
                asked.join().expect("ends")
            });
            match (answered, done) {
                (0, Ok(())) | (3, Err(Failed::Died)) => {}
                (1, Err(Failed::Unreachable(why))) | (2, Err(Failed::Other(why))) => assert!(why.starts_with("xxx")),
                other => panic!("{other:?}"),
            }
        }
        drop(ours);
        assert!(next(&theirs).expect("the end is no error").is_none());
    }
}
