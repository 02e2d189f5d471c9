//! The wrapper's side, and that of the words which start and stop `larderd`.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use larder_model::Fingerprint;
use larder_sys::{Channel, MESSAGE_DESCRIPTORS_MAX, effective_user};

use crate::frame::{Frame, HEADER_BYTES, State};
use crate::{BLOBS_MAX, IpcError};

/// A wrapper waits no longer than this for a connection, and for each of the few frames that it sends: when nobody has
/// room for that, the hand-over is given up.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(100);
/// Somebody who types a word waits longer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Connect to whoever of our user listens at `path`.
fn connect(path: &Path, patience: Duration) -> Result<Channel, IpcError> {
    let channel = Channel::connect(path, patience)?;
    match channel.peer()?.user {
        user if user == effective_user() => Ok(channel),
        user => Err(IpcError::Stranger(user)),
    }
}

/// Whether somebody of our user listens at `path`: an error says why not.
pub fn listens(path: &Path) -> Result<(), IpcError> {
    connect(path, HAND_OVER_PATIENCE).map(drop)
}

/// Hand a parcel over, `parcel_bytes` long, and the files of its blobs. There is no answer: what becomes of it is not
/// waited for.
pub fn hand_over(path: &Path, parcel: &File, parcel_bytes: u64, blobs: &[File]) -> Result<(), IpcError> {
    if blobs.len() as u64 > BLOBS_MAX {
        return Err(IpcError::TooMany);
    }
    let channel = connect(path, HAND_OVER_PATIENCE)?;
    let descriptors: Vec<BorrowedFd> = [parcel].into_iter().chain(blobs).map(AsFd::as_fd).collect();
    let first = Frame::HandOver { parcel_bytes, blobs: blobs.len() as u64 };
    let frames = std::iter::once(first).chain(std::iter::repeat(Frame::More));
    for (frame, some) in frames.zip(descriptors.chunks(MESSAGE_DESCRIPTORS_MAX)) {
        channel.send(&frame.encode(), some)?;
    }
    Ok(())
}

/// Say that the record of `weak` was used.
pub fn note_use(path: &Path, weak: &Fingerprint) -> Result<(), IpcError> {
    Ok(connect(path, HAND_OVER_PATIENCE)?.send(&Frame::Used(*weak).encode(), &[])?)
}

/// Ask how `larderd` is, or have it stop.
pub fn ask(path: &Path, question: &Frame) -> Result<State, IpcError> {
    let channel = connect(path, ANSWER_PATIENCE)?;
    channel.send(&question.encode(), &[])?;
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 256];
        match channel.receive(&mut buffer, &mut Vec::new())? {
            0 => return Err(IpcError::Ended),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else { continue };
        let length = Frame::length(*header)?;
        if rest.len() >= length {
            return match Frame::decode(&rest[..length])? {
                Frame::State(state) => Ok(state),
                _ => Err(IpcError::Unexpected),
            };
        }
    }
}
