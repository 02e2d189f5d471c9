//! A receive buffer that assembles the bytes from a socket into frames.

use std::os::fd::OwnedFd;

use larder_sys::{Channel, MESSAGE_DESCRIPTORS_MAX};

use crate::IpcError;
use crate::frame::{FRAME_BYTES_MAX, Frame, HEADER_BYTES};

/// The bytes and descriptors that were received and not yet taken.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) bytes: Vec<u8>,
    pub(crate) passed: Vec<OwnedFd>,
}

impl Incoming {
    /// Removes and returns the next frame. Returns `None` if it has not been received completely.
    pub(crate) fn take(&mut self) -> Result<Option<Frame>, IpcError> {
        let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let length = Frame::length(*header)?;
        if rest.len() < length {
            return Ok(None);
        }
        let frame = Frame::decode(&rest[..length])?;
        self.bytes.drain(..HEADER_BYTES + length);
        Ok(Some(frame))
    }

    /// Receives whatever is available. Returns false if the connection has ended between two
    /// frames.
    ///
    /// Fails with `TooMany` if more descriptors are held than `announced`. Before the frame that
    /// announces them is known, as many as fit into one message (`MESSAGE_DESCRIPTORS_MAX`) are
    /// accepted.
    pub(crate) fn receive(&mut self, channel: &Channel, announced: usize) -> Result<bool, IpcError> {
        let mut buffer = [0; HEADER_BYTES + FRAME_BYTES_MAX];
        let most = self.passed.len() + MESSAGE_DESCRIPTORS_MAX;
        match channel.receive(&mut buffer, &mut self.passed, most)? {
            0 if self.bytes.is_empty() => return Ok(false),
            0 => return Err(IpcError::Ended),
            count => self.bytes.extend_from_slice(&buffer[..count]),
        }
        if self.passed.len() > announced.max(MESSAGE_DESCRIPTORS_MAX) {
            return Err(IpcError::TooMany);
        }
        Ok(true)
    }
}
