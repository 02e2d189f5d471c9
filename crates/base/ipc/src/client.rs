//! The client side of the protocol: the wrapper, and the subcommands that start, stop and query
//! `larderd`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_model::{Digest, Fingerprint};
use larder_sys::{Channel, Class, MESSAGE_DESCRIPTORS_MAX, effective_user};

use crate::frame::{Caller, DIRECTORY_BYTES_MAX, Expect, Frame, Nothing, Recorded, Remotes, State, Unshared};
use crate::incoming::Incoming;
use crate::{BLOBS_MAX, IpcError};

/// How long a wrapper waits for a connection, and for each frame that it sends. If the socket's
/// buffer has no room for a frame within this time, the hand-over is given up.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(100);
/// The largest manifest that is accepted from `larderd`, in bytes. The store would not read a
/// larger one.
const FOUND_BYTES_MAX: u64 = 256 << 20;
/// How long a subcommand waits for an answer. It is longer than the wrapper's limit, because no
/// build waits for a subcommand.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the socket at `path`. Fails with `Stranger` if another user's process listens there.
fn connect(path: &Path, patience: Duration) -> Result<Channel, IpcError> {
    let channel = Channel::connect(path, patience)?;
    match channel.peer()?.user {
        user if user == effective_user() => Ok(channel),
        user => Err(IpcError::Stranger(user)),
    }
}

/// Sends the request `first` with its descriptors. The class and the terms go before it, if the
/// caller has any.
fn begin(channel: &Channel, caller: Caller, first: &Frame, descriptors: &[BorrowedFd]) -> Result<(), IpcError> {
    let class = (caller.class != Class::Inherit).then_some(Frame::Class(caller.class));
    let before = [class, caller.terms.map(Frame::Terms)];
    let mut bytes: Vec<u8> = before.iter().flatten().flat_map(Frame::encode).collect();
    bytes.extend(first.encode());
    Ok(channel.send(&bytes, descriptors)?)
}

/// Checks whether a process of our user listens at `path`. The error says why not.
pub fn listens(path: &Path) -> Result<(), IpcError> {
    connect(path, HAND_OVER_PATIENCE).map(drop)
}

/// Hands over a parcel that is `parcel_bytes` long, and the files of its blobs.
///
/// There is no answer, and the caller does not wait until anything is recorded. As with all
/// requests, `caller` says in which class and on which terms `larderd` does the work.
pub fn hand_over(
    path: &Path,
    caller: Caller,
    parcel: &File,
    parcel_bytes: u64,
    blobs: &[File],
) -> Result<(), IpcError> {
    if blobs.len() as u64 > BLOBS_MAX {
        return Err(IpcError::TooMany);
    }
    let channel = connect(path, HAND_OVER_PATIENCE)?;
    let descriptors: Vec<BorrowedFd> = [parcel].into_iter().chain(blobs).map(AsFd::as_fd).collect();
    let first = Frame::HandOver { parcel_bytes, blobs: blobs.len() as u64 };
    let mut parts = descriptors.chunks(MESSAGE_DESCRIPTORS_MAX);
    begin(&channel, caller, &first, parts.next().unwrap_or_default())?;
    for some in parts {
        channel.send(&Frame::More.encode(), some)?;
    }
    Ok(())
}

/// Tells `larderd` that the record of `weak` was used.
pub fn note_use(path: &Path, caller: Caller, weak: &Fingerprint) -> Result<(), IpcError> {
    begin(&connect(path, HAND_OVER_PATIENCE)?, caller, &Frame::Used(*weak), &[])
}

/// Tells `larderd` that a new record is in the store. `directory` is the wrapper's working
/// directory.
pub fn note_recorded(
    path: &Path,
    caller: Caller,
    weak: &Fingerprint,
    strong: &Fingerprint,
    directory: &[u8],
) -> Result<(), IpcError> {
    begin(&connect(path, HAND_OVER_PATIENCE)?, caller, &recorded(weak, strong, directory), &[])
}

fn recorded(weak: &Fingerprint, strong: &Fingerprint, directory: &[u8]) -> Frame {
    Frame::Recorded(Recorded { weak: *weak, strong: *strong, directory: bounded(directory) })
}

/// Returns the state of `larderd`.
pub fn ask(path: &Path) -> Result<State, IpcError> {
    state(path, &Frame::Ask, &[])
}

/// Tells `larderd` to stop. `proof` is a file of the store, open for writing. It proves that the
/// caller can write to the store.
pub fn stop(path: &Path, proof: &File) -> Result<State, IpcError> {
    state(path, &Frame::Stop, &[proof.as_fd()])
}

fn state(path: &Path, question: &Frame, descriptors: &[BorrowedFd]) -> Result<State, IpcError> {
    match ask_for(path, question, descriptors, ANSWER_PATIENCE, 1)?.pop().ok_or(IpcError::Unexpected)? {
        Frame::State(state) => Ok(state),
        _ => Err(IpcError::Unexpected),
    }
}

/// Returns the state of the remotes: what `larderd` has sent to them and has still to send.
pub fn ask_remotes(path: &Path) -> Result<Remotes, IpcError> {
    match ask_for(path, &Frame::AskRemotes, &[], ANSWER_PATIENCE, 1)?.pop() {
        Some(Frame::Remotes(remotes)) => Ok(remotes),
        _ => Err(IpcError::Unexpected),
    }
}

/// Waits until every queued record is sent, until sending is impossible, or until `patience` is
/// over.
pub fn flush_remotes(path: &Path, patience: Duration) -> Result<(Remotes, Unshared), IpcError> {
    let answers = ask_for(path, &Frame::Flush(patience.as_secs()), &[], patience + ANSWER_PATIENCE, 2)?;
    match <[Frame; 2]>::try_from(answers) {
        Ok([Frame::Remotes(remotes), Frame::Unshared(unshared)]) => Ok((remotes, unshared)),
        _ => Err(IpcError::Unexpected),
    }
}

/// Sends a question and returns its answers, which are `count` frames.
fn ask_for(
    path: &Path,
    question: &Frame,
    descriptors: &[BorrowedFd],
    patience: Duration,
    count: usize,
) -> Result<Vec<Frame>, IpcError> {
    let channel = connect(path, patience)?;
    channel.send(&question.encode(), descriptors)?;
    let (mut incoming, mut answers) = (Incoming::default(), Vec::new());
    loop {
        while let Some(frame) = incoming.take()? {
            answers.push(frame);
            if answers.len() == count {
                return Ok(answers);
            }
        }
        match incoming.receive(&channel, 0) {
            Ok(true) => {}
            Ok(false) => return Err(IpcError::Ended),
            Err(IpcError::Io(error)) if is_late(&error) => return Err(IpcError::Late),
            Err(error) => return Err(error),
        }
    }
}

/// A connection on which a wrapper asked for records that `larderd` may fetch from a remote.
/// Dropping it tells `larderd` that nothing is wanted any more.
pub struct Fetching {
    channel: Channel,
    incoming: Incoming,
}

/// An answer of `larderd` on such a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// How long such a fetch usually takes.
    Expect(Expect),
    /// The bytes of a manifest with the records that were found. They have not been verified.
    Found(Vec<u8>),
    /// Nothing is fetched, for this reason.
    Nothing(Nothing),
    /// The wanted record is in the store now. The number is the bytes that were fetched for it.
    Fetched(u64),
}

impl Fetching {
    /// Asks for the records of `weak`. `directory` is the wrapper's working directory.
    pub fn begin(path: &Path, caller: Caller, weak: &Fingerprint, directory: &[u8]) -> Result<Fetching, IpcError> {
        let channel = connect(path, HAND_OVER_PATIENCE)?;
        begin(&channel, caller, &Frame::Fetch { weak: *weak, directory: bounded(directory) }, &[])?;
        Ok(Fetching { channel, incoming: Incoming::default() })
    }

    /// Returns the socket's descriptor, which is readable when an answer may have come.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// Returns the next answer. Returns `None` if none comes within `patience`.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Told>, IpcError> {
        let until = Instant::now() + patience;
        let frame = loop {
            if let Some(frame) = self.incoming.take()? {
                break frame;
            }
            if !self.channel.has_more_within(until.saturating_duration_since(Instant::now()))? {
                if Instant::now() < until {
                    // A signal interrupted the wait.
                    continue;
                }
                return Ok(None);
            }
            match self.incoming.receive(&self.channel, 1) {
                Ok(true) => {}
                Ok(false) => return Err(IpcError::Ended),
                Err(IpcError::Io(error)) if is_late(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        };
        Ok(Some(match frame {
            Frame::Expect(expect) => Told::Expect(expect),
            Frame::Found { manifest_bytes } => Told::Found(self.file(manifest_bytes)?),
            Frame::Nothing(why) => Told::Nothing(why),
            Frame::Fetched { bytes } => Told::Fetched(bytes),
            _ => return Err(IpcError::Unexpected),
        }))
    }

    /// Reads the file that was passed, which must be a regular file of `size_bytes`.
    fn file(&mut self, size_bytes: u64) -> Result<Vec<u8>, IpcError> {
        let passed = self.incoming.passed.pop().ok_or(IpcError::Unexpected)?;
        let (file, look) = larder_sys::passed_file(passed)?;
        if look.kind != larder_sys::FileType::File || look.size_bytes != size_bytes || size_bytes > FOUND_BYTES_MAX {
            return Err(IpcError::Unexpected);
        }
        let mut bytes = vec![0; size_bytes as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Asks `larderd` to put the found record `strong` into the store, with all of its blobs.
    /// `subject` is the digest under which `larder explain` finds the record.
    pub fn want(&self, strong: &Fingerprint, subject: &Digest) -> Result<(), IpcError> {
        self.say(&Frame::Want { strong: *strong, subject: *subject })
    }

    /// Tells `larderd` that the tool was started.
    pub fn say_running(&self) -> Result<(), IpcError> {
        self.say(&Frame::Running)
    }

    /// Tells `larderd` that a new record is in the store. `directory` is the wrapper's working
    /// directory.
    pub fn recorded(&self, weak: &Fingerprint, strong: &Fingerprint, directory: &[u8]) -> Result<(), IpcError> {
        self.say(&recorded(weak, strong, directory))
    }

    fn say(&self, frame: &Frame) -> Result<(), IpcError> {
        self.channel.set_patience(HAND_OVER_PATIENCE)?;
        Ok(self.channel.send(&frame.encode(), &[])?)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the directory, or nothing if it is longer than `DIRECTORY_BYTES_MAX`. `larderd` takes an
/// empty directory to be unknown.
fn bounded(directory: &[u8]) -> Vec<u8> {
    if directory.len() <= DIRECTORY_BYTES_MAX { directory.to_vec() } else { Vec::new() }
}
