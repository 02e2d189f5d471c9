//! The bytes of an image's files: read if they are there, else once they have arrived.
//!
//! Unaware of: the protocol by which they are asked for.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::erofs::{Erofs, From, Part};
use crate::lazy::Own;

/// A buffer of a thread that is larger than this is not kept for its next read.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// What a thread reads into, again and again.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where the bytes are.
#[derive(Clone)]
pub(super) enum Data {
    /// Nowhere: no file has any that are not beside its inode.
    None,
    /// In a file that has all of them.
    Whole(Arc<File>),
    /// In a file that is filled.
    Own(Arc<Own>),
}

/// What is read of a file, in its order.
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
    /// Calls `then` with the bytes: now if they are there, else from another thread once they are.
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
