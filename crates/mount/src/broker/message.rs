//! Requests and replies, and their bytes.
//!
//! ```text
//! u32 length of the rest, u8 version 1, u8 kind, then fields: u16 length, bytes
//! ```
//!
//! Numbers are little-endian. A request has one field, the image's name; `Mount` comes with the target directory, and a
//! process where the lease is one; `Unmount` with the mount's root directory; `Next` has the name of a mount instead,
//! and asks for the one after it. A reply has one field, a text: the mount's name, or why there is none; a `Detached`
//! mount comes with it. The reply to `Next` is the mount's name, the image's and the target, a line each.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use larder_sys::Channel;

const VERSION: u8 = 1;
/// The longest name or text, bytes.
pub(super) const TEXT_BYTES_MAX: usize = 4096;
const HEADER_BYTES: usize = 4;
const MESSAGE_BYTES_MAX: usize = 2 + 2 + TEXT_BYTES_MAX;
/// No request or reply has more.
const DESCRIPTORS_MAX: usize = 2;

/// What is asked of a broker, or said by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Mount it, as long as this connection stays.
    MountHeld,
    /// Mount it, as long as the process lives that is passed.
    MountForProcess,
    /// Mount it until it is unmounted.
    MountKept,
    /// Make a mount that the client places itself; what it writes goes when that connection ends.
    Detached,
    /// Unmount what is passed.
    Unmount,
    /// It was done.
    Done,
    /// It was not done.
    Refused,
    /// Say what the next mount is, in the order of their names.
    Next,
    /// No mount of the user's is there.
    Nothing,
}

const KINDS: [Kind; 9] = [
    Kind::MountHeld,
    Kind::MountForProcess,
    Kind::MountKept,
    Kind::Detached,
    Kind::Unmount,
    Kind::Done,
    Kind::Refused,
    Kind::Next,
    Kind::Nothing,
];

/// A request or a reply.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) passed: Vec<OwnedFd>,
}

pub(super) fn encode(kind: Kind, text: &str) -> Vec<u8> {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let text = &text.as_bytes()[..end];
    let number = KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len()) as u8;
    let mut bytes = ((4 + text.len()) as u32).to_le_bytes().to_vec();
    bytes.extend([VERSION, number]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text);
    bytes
}

/// The message of these bytes, without what its length said; `None` where it is none.
pub(super) fn decode(bytes: &[u8]) -> Option<(Kind, String)> {
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

/// Receive one whole message, and nothing after it. All of it must be there by `until`, however its bytes come.
pub(super) fn receive(channel: &Channel, until: Instant) -> io::Result<Message> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "what came is no message of ours");
    let (mut came, mut passed) = (Vec::new(), Vec::new());
    let mut buffer = [0; HEADER_BYTES + MESSAGE_BYTES_MAX];
    loop {
        let length = came.get(..HEADER_BYTES).and_then(|bytes: &[u8]| bytes.try_into().ok()).map(u32::from_le_bytes);
        if let Some(length) = length {
            let whole = HEADER_BYTES + length as usize;
            if length as usize > MESSAGE_BYTES_MAX || came.len() > whole || passed.len() > DESCRIPTORS_MAX {
                return Err(odd());
            }
            if came.len() == whole {
                let (kind, text) = decode(&came[HEADER_BYTES..]).ok_or_else(odd)?;
                return Ok(Message { kind, text, passed });
            }
        }
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it took too long to come");
        let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or_else(late)?;
        channel.set_patience(left)?;
        match channel.receive(&mut buffer, &mut passed) {
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
        assert_eq!(encode(Kind::Unmount, "k"), [5, 0, 0, 0, 1, 4, 1, 0, b'k']);
        assert_eq!(decode(&encode(Kind::Done, &"ä".repeat(3000))[4..]).expect("is one").1.len(), TEXT_BYTES_MAX);
        for odd in [&[][..], &[2, 0, 0, 0], &[1, 9, 0, 0], &[1, 0, 2, 0, b'x'], &[1, 0, 1, 0, 0xff]] {
            assert_eq!(decode(odd), None, "{odd:?}");
        }
    }
}
