//! What comes over a socket, put together to frames.

use std::os::fd::OwnedFd;

use larder_sys::{Channel, MESSAGE_DESCRIPTORS_MAX};

use crate::IpcError;
use crate::frame::{FRAME_BYTES_MAX, Frame, HEADER_BYTES};

/// What came and was not yet taken.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) bytes: Vec<u8>,
    pub(crate) passed: Vec<OwnedFd>,
}

impl Incoming {
    /// The next frame, if all of it is there.
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

    /// Receive what is there; false at the end. `announced` descriptors are expected, or as many as come with one
    /// message before its frame says how many there are.
    pub(crate) fn receive(&mut self, channel: &Channel, announced: usize) -> Result<bool, IpcError> {
        let mut buffer = [0; HEADER_BYTES + FRAME_BYTES_MAX];
        match channel.receive(&mut buffer, &mut self.passed)? {
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
