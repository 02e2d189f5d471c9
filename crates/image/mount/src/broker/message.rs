//! Requests to a broker and its replies, and how they are encoded.
//!
//! ```text
//! u32 length of the rest, u8 version 1, u8 kind, then one text: u16 length, bytes
//! ```
//!
//! Numbers are little-endian. Descriptors are passed with the message (`SCM_RIGHTS`).
//!
//! | request | text | descriptors |
//! |---|---|---|
//! | `MountHeld`, `MountKept` | the image's name | the target directory |
//! | `MountForProcess` | the image's name | the target directory, a pidfd |
//! | `Detached` | the image's name | |
//! | `Unmount` | empty | the root directory of the mount |
//! | `Next` | the identifier to continue after, or empty for the first mount | |
//! | `Layer` | user, group and the image's name, with spaces in between | |
//!
//! The text of a reply is the mount's identifier, or the reason for a refusal. The mount itself is
//! passed with the reply to `Detached` and `Layer`. The reply to `Next` has three lines: the mount's
//! identifier, the image's name and the target.
//!
//! Unaware of: what a request leads to.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use larder_sys::Channel;

const VERSION: u8 = 1;
/// The limit for the text of a message, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 4096;
const HEADER_BYTES: usize = 4;
const MESSAGE_BYTES_MAX: usize = 2 + 2 + TEXT_BYTES_MAX;
/// The byte that a client sends after the reply to `Layer` if it no longer uses the mount.
pub(super) const RELEASE: u8 = 0;
/// The limit for the descriptors that are passed with one message.
const DESCRIPTORS_MAX: usize = 2;

/// The kind of a request or a reply. On the wire it is the position in `KINDS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Request: mount the image as long as this connection is open.
    MountHeld,
    /// Request: mount the image as long as the passed process lives.
    MountForProcess,
    /// Request: mount the image until it is unmounted.
    MountKept,
    /// Request: make a detached mount, which the client attaches itself. What it writes there is
    /// deleted when the connection ends.
    Detached,
    /// Request: unmount the passed mount.
    Unmount,
    /// Reply: the request was carried out.
    Done,
    /// Reply: the request was refused.
    Refused,
    /// Request: describe the mount of this user whose identifier comes next in their order.
    Next,
    /// Reply: the user has no such mount.
    Nothing,
    /// Request: make a detached mount that is read-only, whose files this user and group own. The
    /// client makes it writable itself. When it no longer uses the mount, it sends `RELEASE`.
    Layer,
}

const KINDS: [MessageKind; 10] = [
    MessageKind::MountHeld,
    MessageKind::MountForProcess,
    MessageKind::MountKept,
    MessageKind::Detached,
    MessageKind::Unmount,
    MessageKind::Done,
    MessageKind::Refused,
    MessageKind::Next,
    MessageKind::Nothing,
    MessageKind::Layer,
];

/// A request or a reply with the descriptors that were passed with it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: MessageKind,
    pub(super) text: String,
    pub(super) passed: Vec<OwnedFd>,
}

pub(super) fn encode(kind: MessageKind, text: &str) -> Vec<u8> {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = &text.as_bytes()[..end];
    let number = KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len()) as u8;
    let mut bytes = ((4 + text.len()) as u32).to_le_bytes().to_vec();
    bytes.extend([VERSION, number]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text);
    bytes
}

/// Decodes a message without its length prefix. Returns `None` if the bytes are not a message.
pub(super) fn decode(bytes: &[u8]) -> Option<(MessageKind, String)> {
    let [VERSION, kind, low, high, text @ ..] = bytes else { return None };
    if text.len() != usize::from(u16::from_le_bytes([*low, *high])) || text.len() > TEXT_BYTES_MAX {
        return None;
    }
    Some((*KINDS.get(usize::from(*kind))?, String::from_utf8(text.to_vec()).ok()?))
}

/// Decodes, and encodes again without the length. For the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(crate) fn again(bytes: &[u8]) -> Option<Vec<u8>> {
    decode(bytes).map(|(kind, text)| encode(kind, &text)[HEADER_BYTES..].to_vec())
}

/// Receives one whole message, after which no further bytes may follow. All of it must arrive
/// before `until`, even if its bytes arrive one at a time.
pub(super) fn receive(channel: &Channel, until: Instant) -> io::Result<Message> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "the bytes are not a message of this protocol");
    let (mut came, mut passed) = (Vec::new(), Vec::new());
    let mut buffer = [0; HEADER_BYTES + MESSAGE_BYTES_MAX];
    loop {
        let length = came.get(..HEADER_BYTES).and_then(|bytes: &[u8]| bytes.try_into().ok()).map(u32::from_le_bytes);
        if let Some(length) = length {
            let whole = HEADER_BYTES + length as usize;
            if length as usize > MESSAGE_BYTES_MAX || came.len() > whole {
                return Err(odd());
            }
            if came.len() == whole {
                let (kind, text) = decode(&came[HEADER_BYTES..]).ok_or_else(odd)?;
                return Ok(Message { kind, text, passed });
            }
        }
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the message did not arrive in time");
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or_else(late)?;
        channel.set_patience(left)?;
        match channel.receive(&mut buffer, &mut passed, DESCRIPTORS_MAX) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
            Err(error) => return Err(error),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(count) => came.extend_from_slice(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        for kind in KINDS {
            let bytes = encode(kind, "deps-1");
            assert_eq!(decode(&bytes[4..]), Some((kind, "deps-1".to_owned())));
            assert_eq!(bytes.len() - 4, u32::from_le_bytes(bytes[..4].try_into().expect("four")) as usize);
        }
        assert_eq!(encode(MessageKind::Unmount, "k"), [5, 0, 0, 0, 1, 4, 1, 0, b'k']);
        assert_eq!(decode(&encode(MessageKind::Done, &"ä".repeat(3000))[4..]).expect("is one").1.len(), TEXT_BYTES_MAX);
        for odd in [&[][..], &[2, 0, 0, 0], &[1, 10, 0, 0], &[1, 0, 2, 0, b'x'], &[1, 0, 1, 0, 0xff]] {
            assert_eq!(decode(odd), None, "{odd:?}");
        }
    }
}
