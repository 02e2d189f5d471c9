//! The server side of the protocol: reads the one request of a connection, and what follows a
//! fetch. Nothing that a client sends is trusted: not its user, nor lengths, nor counts.
//!
//! Unaware of: how a request is served.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use larder_model::{Digest, Fingerprint};
use larder_sys::{Channel, effective_user};

use crate::frame::{Caller, Frame, Recorded, State};
use crate::incoming::Incoming;
use crate::{BLOBS_MAX, IpcError, PARCEL_BYTES_MAX};

/// The request of a connection.
pub enum Request {
    /// The connection was closed without a request. The client only checked whether `larderd`
    /// listens.
    Nothing,
    /// A parcel and its blobs are to be recorded.
    HandOver {
        /// The parcel's file. It has not been checked, not even for being a regular file.
        parcel: OwnedFd,
        /// The parcel's size in bytes, as announced. It is within `PARCEL_BYTES_MAX`.
        parcel_bytes: u64,
        /// The blobs' files. They have not been checked.
        blobs: Vec<OwnedFd>,
    },
    /// The state of `larderd` is wanted.
    Ask,
    /// `larderd` is to exit. The file is the proof of writing. It has not been checked.
    Stop(Option<OwnedFd>),
    /// The record of this weak fingerprint was used.
    Used(Fingerprint),
    /// Records are to be fetched from the remotes.
    Fetch {
        /// The weak fingerprint.
        weak: Fingerprint,
        /// The wrapper's working directory.
        directory: Vec<u8>,
        /// The connection's state, for reading what the wrapper sends next.
        session: Session,
    },
    /// A new record is in the store.
    Recorded(Recorded),
    /// All queued records are to be sent within this many seconds.
    Flush(u64),
    /// The state of the remotes is wanted.
    AskRemotes,
}

/// The receive buffer of a connection that asked for a fetch.
pub struct Session(Incoming);

/// A message of the wrapper on such a connection.
pub enum Step {
    /// The wrapper wants this one of the found records.
    Want {
        /// The strong fingerprint of the record.
        strong: Fingerprint,
        /// The digest under which `larder explain` finds the record.
        subject: Digest,
    },
    /// The tool was started meanwhile.
    Running,
    /// The tool has ended, and this record came of its run.
    Recorded(Recorded),
}

impl Session {
    /// Returns the next message. Returns `None` if the wrapper has closed the connection.
    ///
    /// Fails with `Late` or with an I/O error if nothing comes within `patience`.
    pub fn next(&mut self, channel: &Channel, patience: Duration) -> Result<Option<Step>, IpcError> {
        let until = Instant::now() + patience;
        Ok(Some(match next(&mut self.0, channel, until, 0)? {
            None => return Ok(None),
            Some(Frame::Want { strong, subject }) => Step::Want { strong, subject },
            Some(Frame::Running) => Step::Running,
            Some(Frame::Recorded(recorded)) => Step::Recorded(recorded),
            Some(_) => return Err(IpcError::Unexpected),
        }))
    }
}

/// Sends a frame, and passes a file with it.
pub fn say(channel: &Channel, frame: &Frame, file: Option<BorrowedFd>) -> Result<(), IpcError> {
    Ok(channel.send(&frame.encode(), file.as_slice())?)
}

/// Receives the request of a connection, and the class and terms to serve it with. All of it must
/// come within `patience`. Fails with `Stranger` if the client runs as another user.
pub fn receive(channel: &Channel, patience: Duration) -> Result<(Caller, Request), IpcError> {
    match channel.peer()?.user {
        user if user == effective_user() => {}
        user => return Err(IpcError::Stranger(user)),
    }
    let until = Instant::now() + patience;
    let mut incoming = Incoming::default();
    let mut caller = Caller::UNSTATED;
    let mut first = next(&mut incoming, channel, until, 0)?;
    if let Some(Frame::Class(class)) = first {
        caller.class = class;
        first = Some(next(&mut incoming, channel, until, 0)?.ok_or(IpcError::Ended)?);
    }
    if let Some(Frame::Terms(terms)) = first {
        caller.terms = Some(terms);
        first = Some(next(&mut incoming, channel, until, 0)?.ok_or(IpcError::Ended)?);
    }
    Ok((caller, request(first, incoming, channel, until)?))
}

fn request(
    first: Option<Frame>,
    mut incoming: Incoming,
    channel: &Channel,
    until: Instant,
) -> Result<Request, IpcError> {
    let announced = match first {
        None => return Ok(Request::Nothing),
        Some(Frame::Ask) => return Ok(Request::Ask),
        Some(Frame::Stop) => return Ok(Request::Stop(incoming.passed.pop())),
        Some(Frame::Used(weak)) => return Ok(Request::Used(weak)),
        Some(Frame::HandOver { parcel_bytes, blobs }) => (parcel_bytes, blobs),
        Some(Frame::Fetch { weak, directory }) => {
            return Ok(Request::Fetch { weak, directory, session: Session(incoming) });
        }
        Some(Frame::Recorded(recorded)) => return Ok(Request::Recorded(recorded)),
        Some(Frame::Flush(seconds)) => return Ok(Request::Flush(seconds)),
        Some(Frame::AskRemotes) => return Ok(Request::AskRemotes),
        Some(_) => return Err(IpcError::Unexpected),
    };
    let (parcel_bytes, blobs) = announced;
    if blobs > BLOBS_MAX || parcel_bytes > PARCEL_BYTES_MAX {
        return Err(IpcError::TooMany);
    }
    let all = blobs as usize + 1;
    while incoming.passed.len() < all {
        match next(&mut incoming, channel, until, all)? {
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

/// Sends the state of `larderd`, which is the answer to `Request::Ask` and `Request::Stop`.
pub fn answer(channel: &Channel, state: State) -> Result<(), IpcError> {
    Ok(channel.send(&Frame::State(state).encode(), &[])?)
}

/// Returns the next frame. Returns `None` if the connection ends before one begins.
fn next(
    incoming: &mut Incoming,
    channel: &Channel,
    until: Instant,
    announced: usize,
) -> Result<Option<Frame>, IpcError> {
    loop {
        if let Some(frame) = incoming.take()? {
            return Ok(Some(frame));
        }
        let left = until.checked_duration_since(Instant::now()).ok_or(IpcError::Late)?;
        channel.set_patience(left)?;
        if !incoming.receive(channel, announced)? {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::path::PathBuf;

    use larder_sys::{Class, Door, sealed_memory_file};

    use super::*;

    fn in_class(class: Class) -> Caller {
        Caller { class, ..Caller::UNSTATED }
    }

    /// Longer than anything here takes, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

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
            Ok(receive(&self.door.accept().expect("accepts").expect("a connection"), PATIENCE)?.1)
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
            crate::hand_over(&both.path, in_class(Class::Background), &parcel, 6, &blobs).expect("hands over");
            drop((parcel, blobs));
            match both.next() {
                Ok(Request::HandOver { parcel_bytes: 6, blobs, .. }) => assert_eq!(blobs.len(), count),
                Ok(_) => panic!("{count}: another request"),
                Err(error) => panic!("{count}: {error}"),
            }
        }
        let parcel = sealed_memory_file("parcel", b"parcel").expect("makes");
        let blobs: Vec<_> = (0..=BLOBS_MAX).map(|_| parcel.try_clone().expect("clones")).collect();
        assert!(matches!(
            crate::hand_over(&both.path, in_class(Class::Background), &parcel, 6, &blobs),
            Err(IpcError::TooMany)
        ));
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
        let class = Frame::Class(Class::Utility).encode();
        assert!(matches!(both.says(&[(&class, 0), (&one, 1)]), Ok(Request::HandOver { .. })));
        let terms = crate::Terms { remotes: Digest([1; 32]), trust: None, sends: true };
        let terms = Frame::Terms(terms).encode();
        assert!(matches!(both.says(&[(&class, 0), (&terms, 0), (&one, 1)]), Ok(Request::HandOver { .. })));
        assert!(matches!(both.says(&[(&terms, 0), (&class, 0), (&one, 1)]), Err(IpcError::Unexpected)), "wrong order");
        assert!(matches!(both.says(&[(&class, 0)]), Err(IpcError::Ended)), "no request follows");
        assert!(matches!(both.says(&[(&class, 0), (&class, 0)]), Err(IpcError::Unexpected)));
        let many = Frame::HandOver { parcel_bytes: 1, blobs: u64::MAX }.encode();
        assert!(matches!(both.says(&[(&many, 1)]), Err(IpcError::TooMany)));
        let long = Frame::HandOver { parcel_bytes: u64::MAX, blobs: 0 }.encode();
        assert!(matches!(both.says(&[(&long, 1)]), Err(IpcError::TooMany)));
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let both = both();
        let channel = Channel::connect(&both.path, PATIENCE).expect("connects");
        let silent = both.door.accept().expect("accepts").expect("a connection");
        let received = receive(&silent, Duration::from_millis(200));
        assert!(matches!(received, Err(IpcError::Io(_) | IpcError::Late)));
        drop(channel);
    }

    #[test]
    fn questions_are_answered() {
        let both = both();
        let path = both.path.clone();
        let asking = std::thread::spawn(move || crate::ask(&path));
        let (woken, _wake) = larder_sys::pipe().expect("makes");
        both.door.wait(PATIENCE, woken.as_fd()).expect("waits");
        let channel = both.door.accept().expect("accepts").expect("a connection");
        assert!(matches!(receive(&channel, PATIENCE), Ok((Caller::UNSTATED, Request::Ask))));
        let state = State { pid: 7, up_s: 8, idle_s: 9, recorded: 10, refused: 11 };
        answer(&channel, state).expect("answers");
        assert_eq!(asking.join().expect("ends").expect("is answered"), state);
        assert!(crate::listens(&both.path).is_ok());
        assert!(crate::listens(&both.path.with_file_name("nothing")).is_err());
    }

    #[test]
    fn a_fetch_and_what_follows() {
        let both = both();
        let (weak, strong) = (Digest([1; 32]), Digest([2; 32]));
        let mut fetching =
            crate::Fetching::begin(&both.path, in_class(Class::Utility), &weak, b"/w").expect("connects");
        let channel = both.door.accept().expect("accepts").expect("a connection");
        let mut session = match receive(&channel, PATIENCE) {
            Ok((Caller { class: Class::Utility, terms: None }, Request::Fetch { weak: asked, directory, session }))
                if asked == weak && directory == b"/w" =>
            {
                session
            }
            _ => panic!("another request"),
        };
        assert!(matches!(fetching.next(Duration::from_millis(5)), Ok(None)), "nothing yet");
        let expect = crate::Expect { median_us: 5, p90_us: 9, samples: 2, overdue: false };
        let file = sealed_memory_file("manifest", b"manifest").expect("makes");
        say(&channel, &Frame::Expect(expect), None).expect("says");
        say(&channel, &Frame::Found { manifest_bytes: 8 }, Some(file.as_fd())).expect("says");
        assert_eq!(fetching.next(PATIENCE).expect("gets a message"), Some(crate::Told::Expect(expect)));
        assert_eq!(fetching.next(PATIENCE).expect("gets a message"), Some(crate::Told::Found(b"manifest".to_vec())));
        fetching.want(&strong, &weak).expect("asks");
        fetching.say_running().expect("says");
        let wants = session.next(&channel, PATIENCE).expect("gets a message");
        assert!(matches!(wants, Some(Step::Want { strong: asked, .. }) if asked == strong));
        assert!(matches!(session.next(&channel, PATIENCE), Ok(Some(Step::Running))));
        say(&channel, &Frame::Fetched { bytes: 7 }, None).expect("says");
        assert_eq!(fetching.next(PATIENCE).expect("gets a message"), Some(crate::Told::Fetched(7)));
        fetching.recorded(&weak, &strong, b"/w").expect("says");
        drop(fetching);
        let recorded = Recorded { weak, strong, directory: b"/w".to_vec() };
        assert!(matches!(session.next(&channel, PATIENCE), Ok(Some(Step::Recorded(said))) if said == recorded));
        assert!(matches!(session.next(&channel, PATIENCE), Ok(None)), "the connection was closed");
    }

    #[test]
    fn one_that_does_not_know_it_is_no_trouble() {
        let both = both();
        let mut fetching =
            crate::Fetching::begin(&both.path, Caller::UNSTATED, &Digest([1; 32]), b"/w").expect("connects");
        drop(both.door.accept().expect("accepts").expect("a connection"));
        assert!(matches!(fetching.next(PATIENCE), Err(IpcError::Ended | IpcError::Io(_))));
        // The file is shorter than announced.
        let mut fetching =
            crate::Fetching::begin(&both.path, Caller::UNSTATED, &Digest([1; 32]), b"/w").expect("connects");
        let channel = both.door.accept().expect("accepts").expect("a connection");
        let file = sealed_memory_file("manifest", b"manifest").expect("makes");
        say(&channel, &Frame::Found { manifest_bytes: 9 }, Some(file.as_fd())).expect("says");
        assert!(matches!(fetching.next(PATIENCE), Err(IpcError::Unexpected)));
    }
}
