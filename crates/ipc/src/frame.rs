//! The messages on the socket, and their bytes.
//!
//! ```text
//! frame = u16 number of bytes that follow, u8 format version, u8 kind, …
//!   1 hand-over   number bytes of the parcel, number of blobs     with descriptors: the parcel's, then each blob's
//!   2 more        nothing                                         with the next descriptors: 253 go with one frame
//!   3 ask         nothing
//!   4 state       number pid, number seconds up, number seconds until it leaves when idle, number recorded, number refused
//!   5 stop        nothing
//!   6 used        digest weak fingerprint
//! ```
//! A wrapper sends 1 and as many 2 as it needs, or 6, and leaves. `larderd` answers 3 and 5 with 4.

use larder_model::{DecodeError, FORMAT_VERSION, Fingerprint, Reader, Writer};

/// A frame's length, which stands before it.
pub const HEADER_BYTES: usize = 2;
/// No frame is longer, without its header.
pub const FRAME_BYTES_MAX: usize = 128;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A parcel comes, and blobs with it.
    HandOver {
        /// Bytes of the parcel.
        parcel_bytes: u64,
        /// Number of blobs.
        blobs: u64,
    },
    /// More descriptors come.
    More,
    /// How are you?
    Ask,
    /// Thus.
    State(State),
    /// Leave.
    Stop,
    /// A record was used: the one of this weak fingerprint.
    Used(Fingerprint),
}

/// How `larderd` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Its process.
    pub pid: u64,
    /// Seconds since it began.
    pub up_s: u64,
    /// After so many seconds without a connection it leaves.
    pub idle_s: u64,
    /// Hand-overs that were recorded.
    pub recorded: u64,
    /// Connections of which nothing came.
    pub refused: u64,
}

impl Frame {
    /// The bytes, header included.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(FORMAT_VERSION);
        match self {
            Frame::HandOver { parcel_bytes, blobs } => {
                w.u8(1);
                w.number(*parcel_bytes);
                w.number(*blobs);
            }
            Frame::More => w.u8(2),
            Frame::Ask => w.u8(3),
            Frame::State(state) => {
                w.u8(4);
                for number in [state.pid, state.up_s, state.idle_s, state.recorded, state.refused] {
                    w.number(number);
                }
            }
            Frame::Stop => w.u8(5),
            Frame::Used(weak) => {
                w.u8(6);
                w.digest(weak);
            }
        }
        let length = w.bytes.len() as u16;
        [&length.to_le_bytes()[..], &w.bytes].concat()
    }

    /// How many bytes follow this header; an error where no frame is so long.
    pub fn length(header: [u8; HEADER_BYTES]) -> Result<usize, DecodeError> {
        let length = usize::from(u16::from_le_bytes(header));
        if length > FRAME_BYTES_MAX {
            return Err(DecodeError::Limit { limit: FRAME_BYTES_MAX as u64, at: 0 });
        }
        Ok(length)
    }

    /// Read the bytes after the header.
    pub fn decode(bytes: &[u8]) -> Result<Frame, DecodeError> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            FORMAT_VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        let frame = match r.u8()? {
            1 => Frame::HandOver { parcel_bytes: r.number()?, blobs: r.number()? },
            2 => Frame::More,
            3 => Frame::Ask,
            4 => Frame::State(State {
                pid: r.number()?,
                up_s: r.number()?,
                idle_s: r.number()?,
                recorded: r.number()?,
                refused: r.number()?,
            }),
            5 => Frame::Stop,
            6 => Frame::Used(r.digest()?),
            tag => return Err(r.unknown_tag(tag)),
        };
        r.finish()?;
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frame: Frame) {
        let bytes = frame.encode();
        assert!(bytes.len() <= HEADER_BYTES + FRAME_BYTES_MAX);
        assert_eq!(Frame::length([bytes[0], bytes[1]]), Ok(bytes.len() - HEADER_BYTES));
        assert_eq!(Frame::decode(&bytes[HEADER_BYTES..]), Ok(frame));
        for cut in HEADER_BYTES..bytes.len() {
            assert!(Frame::decode(&bytes[HEADER_BYTES..cut]).is_err(), "cut at {cut}");
        }
        assert!(Frame::decode(&[&bytes[HEADER_BYTES..], b"x"].concat()).is_err(), "too long");
    }

    #[test]
    fn there_and_back() {
        let most = u64::MAX;
        check(Frame::HandOver { parcel_bytes: most, blobs: most });
        check(Frame::More);
        check(Frame::Ask);
        check(Frame::State(State { pid: most, up_s: most, idle_s: most, recorded: most, refused: most }));
        check(Frame::Stop);
        check(Frame::Used(larder_model::Digest([9; 32])));
    }

    #[test]
    fn other_versions_and_lengths_are_refused() {
        assert_eq!(Frame::decode(&[FORMAT_VERSION + 1, 3]), Err(DecodeError::Version(FORMAT_VERSION + 1)));
        assert!(Frame::length([0xff, 0xff]).is_err());
        assert!(Frame::decode(&[]).is_err());
        assert!(Frame::decode(&[FORMAT_VERSION, 9]).is_err());
    }
}
