//! Messages between gate and filler: three numbers each, and descriptors with some of them.
//!
//! Unaware of: what the two do.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use larder_sys::Channel;

const MESSAGE_BYTES: usize = 24;
/// The limit for descriptors that have arrived and were not taken yet. No message has so many.
const DESCRIPTORS_MAX: usize = 64;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To a new gate: the sizes of the file and of a unit. With it come the FUSE device, the root
    /// of its file system and the listening socket.
    Begin(u64, u64),
    /// To a new filler: the sizes of the file and of a unit. With it come the FUSE device and the
    /// root of its file system.
    Hello(u64, u64),
    /// To the gate: the image was mounted. With it comes a descriptor that becomes readable when
    /// the mount is gone.
    Mounted,
    /// To the gate: all bytes are local, and the kernel no longer asks for any.
    Complete,
}

impl Message {
    fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (kind, first, second) = match self {
            Message::Begin(size, unit) => (1, size, unit),
            Message::Hello(size, unit) => (2, size, unit),
            Message::Mounted => (6, 0, 0),
            Message::Complete => (7, 0, 0),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        for (at, number) in [kind, first, second].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&u64::to_le_bytes(number));
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        let number = |at: usize| bytes.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (first, second) = (number(1)?, number(2)?);
        Some(match number(0)? {
            1 => Message::Begin(first, second),
            2 => Message::Hello(first, second),
            6 => Message::Mounted,
            7 => Message::Complete,
            _ => return None,
        })
    }
}

/// One end of the connection.
pub(super) struct GateChannel {
    channel: Channel,
    came: Vec<u8>,
    passed: Vec<OwnedFd>,
}

impl GateChannel {
    pub(super) fn new(channel: Channel) -> GateChannel {
        GateChannel { channel, came: Vec::new(), passed: Vec::new() }
    }

    /// Splits it into one end for receiving and one for sending.
    pub(super) fn split(self) -> io::Result<(GateChannel, GateChannel)> {
        let other = self.channel.descriptor().try_clone_to_owned()?;
        Ok((self, GateChannel::new(Channel::given(other))))
    }

    /// Closes the connection, so that the other side notices.
    pub(super) fn hang_up(&self) {
        let _ = rustix::net::shutdown(self.channel.descriptor(), rustix::net::Shutdown::Both);
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    pub(super) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.channel.set_patience(patience)
    }

    pub(super) fn send(&self, message: Message, descriptors: &[BorrowedFd]) -> io::Result<()> {
        self.channel.send(&message.encode(), descriptors)
    }

    /// Receives once, and returns all messages that are complete. The end of the connection is an
    /// error.
    pub(super) fn receive(&mut self) -> io::Result<Vec<Message>> {
        let mut buffer = [0; 128 * MESSAGE_BYTES];
        let count = self.channel.receive(&mut buffer, &mut self.passed, DESCRIPTORS_MAX)?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        self.came.extend_from_slice(&buffer[..count]);
        let whole = self.came.len() / MESSAGE_BYTES * MESSAGE_BYTES;
        let messages = self.came[..whole].chunks(MESSAGE_BYTES).map(Message::decode).collect::<Option<Vec<_>>>();
        self.came.drain(..whole);
        messages.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Takes the first `N` descriptors that have arrived.
    pub(super) fn take<const N: usize>(&mut self) -> io::Result<[OwnedFd; N]> {
        if self.passed.len() < N {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let taken: Vec<OwnedFd> = self.passed.drain(..N).collect();
        taken.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        use Message::*;
        let all = [Begin(1, 2), Hello(3, u64::MAX), Mounted, Complete];
        for message in all {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        assert_eq!(Message::decode(&[0; MESSAGE_BYTES]), None);
        assert_eq!(Message::decode(&[1; 7]), None);
    }
}
