//! `larderd`'s side: one request from one connection. Nothing of it is believed: not who sends, not lengths, not counts.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use larder_model::Fingerprint;
use larder_sys::{Channel, effective_user};

use crate::frame::{FRAME_BYTES_MAX, Frame, HEADER_BYTES, State};
use crate::{BLOBS_MAX, IpcError, PARCEL_BYTES_MAX};

/// What a connection wants.
pub enum Request {
    /// It only looked whether somebody listens.
    Nothing,
    /// A parcel, and its blobs.
    HandOver {
        /// The parcel's file, of which nothing is known.
        parcel: OwnedFd,
        /// How many bytes it is said to have, within the limit.
        parcel_bytes: u64,
        /// The blobs' files, of which nothing is known.
        blobs: Vec<OwnedFd>,
    },
    /// How larderd is.
    Ask,
    /// That larderd stops.
    Stop,
    /// That the use of this record is noted.
    Used(Fingerprint),
}

/// Receive the request of a connection, which has `patience` for all of it.
pub fn receive(channel: &Channel, patience: Duration) -> Result<Request, IpcError> {
    match channel.peer()?.user {
        user if user == effective_user() => {}
        user => return Err(IpcError::Stranger(user)),
    }
    let mut incoming = Incoming { channel, until: Instant::now() + patience, bytes: Vec::new(), passed: Vec::new() };
    let announced = match incoming.frame(0)? {
        None => return Ok(Request::Nothing),
        Some(Frame::Ask) => return Ok(Request::Ask),
        Some(Frame::Stop) => return Ok(Request::Stop),
        Some(Frame::Used(weak)) => return Ok(Request::Used(weak)),
        Some(Frame::HandOver { parcel_bytes, blobs }) => (parcel_bytes, blobs),
        Some(Frame::More | Frame::State(_)) => return Err(IpcError::Unexpected),
    };
    let (parcel_bytes, blobs) = announced;
    if blobs > BLOBS_MAX || parcel_bytes > PARCEL_BYTES_MAX {
        return Err(IpcError::TooMany);
    }
    let all = blobs as usize + 1;
    while incoming.passed.len() < all {
        match incoming.frame(all)? {
            Some(Frame::More) => {}
            Some(_) => return Err(IpcError::Unexpected),
            None => return Err(IpcError::Ended),
        }
    }
    if incoming.passed.len() > all || !incoming.bytes.is_empty() {
        return Err(IpcError::TooMany);
    }
    let mut passed = incoming.passed.into_iter();
    let parcel = passed.next().ok_or(IpcError::Ended)?;
    Ok(Request::HandOver { parcel, parcel_bytes, blobs: passed.collect() })
}

/// Answer a question.
pub fn answer(channel: &Channel, state: State) -> Result<(), IpcError> {
    Ok(channel.send(&Frame::State(state).encode(), &[])?)
}

struct Incoming<'a> {
    channel: &'a Channel,
    until: Instant,
    /// What came and was not yet understood.
    bytes: Vec<u8>,
    passed: Vec<OwnedFd>,
}

impl Incoming<'_> {
    /// The next frame; `None` where the connection ends before one begins.
    fn frame(&mut self, announced: usize) -> Result<Option<Frame>, IpcError> {
        loop {
            if let Some((header, rest)) = self.bytes.split_first_chunk::<HEADER_BYTES>() {
                let length = Frame::length(*header)?;
                if rest.len() >= length {
                    let frame = Frame::decode(&rest[..length])?;
                    self.bytes.drain(..HEADER_BYTES + length);
                    return Ok(Some(frame));
                }
            }
            let left = self.until.checked_duration_since(Instant::now()).ok_or(IpcError::Late)?;
            self.channel.set_patience(left)?;
            let mut buffer = [0; HEADER_BYTES + FRAME_BYTES_MAX];
            match self.channel.receive(&mut buffer, &mut self.passed)? {
                0 if self.bytes.is_empty() => return Ok(None),
                0 => return Err(IpcError::Ended),
                count => self.bytes.extend_from_slice(&buffer[..count]),
            }
            // Those of one message come at once, before its frame says how many there are.
            let most = announced.max(larder_sys::MESSAGE_DESCRIPTORS_MAX);
            if self.passed.len() > most {
                return Err(IpcError::TooMany);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::path::PathBuf;

    use larder_sys::{Door, sealed_memory_file};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    struct Both {
        _dir: tempfile::TempDir,
        path: PathBuf,
        door: Door,
    }

    fn both() -> Both {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        Both { door: Door::open(&path).expect("listens"), path, _dir: dir }
    }

    impl Both {
        fn next(&self) -> Result<Request, IpcError> {
            receive(&self.door.accept().expect("accepts").expect("somebody"), PATIENCE)
        }

        fn says(&self, parts: &[(&[u8], usize)]) -> Result<Request, IpcError> {
            let channel = Channel::connect(&self.path, PATIENCE).expect("connects");
            let file = sealed_memory_file("x", b"x").expect("makes");
            for (bytes, count) in parts {
                let descriptors: Vec<BorrowedFd> = vec![file.as_fd(); *count];
                channel.send(bytes, &descriptors).expect("sends");
            }
            drop(channel);
            self.next()
        }
    }

    #[test]
    fn hand_overs_of_every_size() {
        let both = both();
        for count in [0, 1, 252, 253, 254, 600, BLOBS_MAX as usize] {
            let parcel = sealed_memory_file("parcel", b"parcel").expect("makes");
            let blobs: Vec<_> = (0..count).map(|_| parcel.try_clone().expect("clones")).collect();
            crate::hand_over(&both.path, &parcel, 6, &blobs).expect("hands over");
            drop((parcel, blobs));
            match both.next() {
                Ok(Request::HandOver { parcel_bytes: 6, blobs, .. }) => assert_eq!(blobs.len(), count),
                Ok(_) => panic!("{count}: something else"),
                Err(error) => panic!("{count}: {error}"),
            }
        }
        let parcel = sealed_memory_file("parcel", b"parcel").expect("makes");
        let blobs: Vec<_> = (0..=BLOBS_MAX).map(|_| parcel.try_clone().expect("clones")).collect();
        assert!(matches!(crate::hand_over(&both.path, &parcel, 6, &blobs), Err(IpcError::TooMany)));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let both = both();
        let one = Frame::HandOver { parcel_bytes: 1, blobs: 0 }.encode();
        let two = Frame::HandOver { parcel_bytes: 1, blobs: 1 }.encode();
        let more = Frame::More.encode();
        assert!(matches!(both.says(&[]), Ok(Request::Nothing)));
        assert!(matches!(both.says(&[(&one, 1)]), Ok(Request::HandOver { .. })));
        assert!(matches!(both.says(&[(&one[..3], 1), (&one[3..], 0)]), Ok(Request::HandOver { .. })), "in pieces");
        assert!(matches!(both.says(&[(&two, 1), (&more, 1)]), Ok(Request::HandOver { .. })));
        assert!(matches!(both.says(&[(b"GET / HTTP/1.1\r\n\r\n", 0)]), Err(IpcError::Malformed(_))));
        assert!(matches!(both.says(&[(&one[..3], 0)]), Err(IpcError::Ended)));
        assert!(matches!(both.says(&[(&one, 0)]), Err(IpcError::Ended)), "no descriptor");
        assert!(matches!(both.says(&[(&one, 2)]), Err(IpcError::TooMany)));
        assert!(matches!(both.says(&[(&two, 1), (&more, 2)]), Err(IpcError::TooMany)));
        assert!(matches!(both.says(&[(&two, 1), (&two, 1)]), Err(IpcError::Unexpected)));
        assert!(matches!(both.says(&[(&more, 1)]), Err(IpcError::Unexpected)));
        let many = Frame::HandOver { parcel_bytes: 1, blobs: u64::MAX }.encode();
        assert!(matches!(both.says(&[(&many, 1)]), Err(IpcError::TooMany)));
        let long = Frame::HandOver { parcel_bytes: u64::MAX, blobs: 0 }.encode();
        assert!(matches!(both.says(&[(&long, 1)]), Err(IpcError::TooMany)));
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let both = both();
        let channel = Channel::connect(&both.path, PATIENCE).expect("connects");
        assert!(matches!(both.next(), Err(IpcError::Io(_) | IpcError::Late)));
        drop(channel);
    }

    #[test]
    fn questions_are_answered() {
        let both = both();
        let path = both.path.clone();
        let asking = std::thread::spawn(move || crate::ask(&path, &Frame::Ask));
        let (woken, _wake) = larder_sys::pipe().expect("makes");
        both.door.wait(Duration::from_secs(5), woken.as_fd()).expect("waits");
        let channel = both.door.accept().expect("accepts").expect("somebody");
        assert!(matches!(receive(&channel, PATIENCE), Ok(Request::Ask)));
        let state = State { pid: 7, up_s: 8, idle_s: 9, recorded: 10, refused: 11 };
        answer(&channel, state).expect("answers");
        assert_eq!(asking.join().expect("ends").expect("is answered"), state);
        assert!(crate::listens(&both.path).is_ok());
        assert!(crate::listens(&both.path.with_file_name("nothing")).is_err());
    }
}
