//! The bytes of an image's files: read at once if they are local, otherwise when they have arrived.
//!
//! Unaware of: the protocol of the requests.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::erofs::{Erofs, From, Part};
use crate::lazy::Own;

/// A thread's buffer that is larger than this is freed after the read.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// The buffer that a thread reads into, which is reused.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where the bytes of files are.
#[derive(Clone)]
pub(super) enum Data {
    /// There is no data file. All bytes are in the metadata.
    None,
    /// In a complete data file.
    Whole(Arc<File>),
    /// In a data file that is being filled.
    Own(Arc<Own>),
}

/// The parts of a file that one request reads, in order.
pub(super) struct Pieces {
    tree: Arc<Erofs>,
    parts: Vec<Part>,
}

impl Pieces {
    pub(super) fn new(tree: Arc<Erofs>, parts: Vec<Part>) -> Pieces {
        Pieces { tree, parts }
    }

    fn on_device(&self) -> Vec<Range<u64>> {
        let on_device = |part: &Part| match part.from {
            From::Data(at) => Some(at..at + part.length),
            _ => None,
        };
        self.parts.iter().filter_map(on_device).collect()
    }
}

impl Data {
    /// Calls `then` with the bytes: now if they are local, otherwise from another thread when they
    /// have arrived.
    pub(super) fn read(&self, pieces: Pieces, then: impl FnOnce(io::Result<&[u8]>) + Send + 'static) {
        match self {
            Data::Own(own) => {
                let its = Arc::clone(own);
                let wanted = pieces.on_device();
                own.when_there(
                    wanted,
                    Box::new(move |came| match came {
                        Ok(()) => read_all(&pieces, |to, at| its.read(to, at), then),
                        Err(error) => then(Err(error)),
                    }),
                );
            }
            Data::Whole(file) => read_all(&pieces, |to, at| file.read_exact_at(to, at), then),
            Data::None => read_all(&pieces, |_, _| Err(io::ErrorKind::UnexpectedEof.into()), then),
        }
    }
}

fn read_all(pieces: &Pieces, device: impl Fn(&mut [u8], u64) -> io::Result<()>, then: impl FnOnce(io::Result<&[u8]>)) {
    BUFFER.with_borrow_mut(|buffer| {
        let length = pieces.parts.iter().map(|part| part.length as usize).sum();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let mut left = &mut buffer[..length];
        let mut read = || -> io::Result<()> {
            for part in &pieces.parts {
                let (now, later) = std::mem::take(&mut left).split_at_mut(part.length as usize);
                match part.from {
                    From::Hole => now.fill(0),
                    From::Metadata(at) => pieces.tree.read_metadata(now, at)?,
                    From::Data(at) => device(now, at)?,
                }
                left = later;
            }
            Ok(())
        };
        let done = read();
        then(done.map(|()| &buffer[..length]));
        if buffer.len() > KEPT_BYTES_MAX {
            *buffer = Vec::new();
        }
    });
}
