//! The wrapper's side, and that of the words which start and stop `larderd`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_model::{Digest, Fingerprint};
use larder_sys::{Channel, Class, MESSAGE_DESCRIPTORS_MAX, effective_user};

use crate::frame::{Caller, DIRECTORY_BYTES_MAX, Expect, Frame, Nothing, Remotes, State, Unshared};
use crate::incoming::Incoming;
use crate::{BLOBS_MAX, IpcError};

/// A wrapper waits no longer than this for a connection, and for each of the few frames that it sends: when nobody has
/// room for that, the hand-over is given up.
const HAND_OVER_PATIENCE: Duration = Duration::from_millis(100);
/// A larger manifest is not taken: the store would not read it.
const FOUND_BYTES_MAX: u64 = 256 << 20;
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

/// Say what is wanted, after the class that it is to be done in and the terms, where there are such.
fn begin(channel: &Channel, caller: Caller, first: &Frame, descriptors: &[BorrowedFd]) -> Result<(), IpcError> {
    let class = (caller.class != Class::Inherit).then_some(Frame::Class(caller.class));
    let before = [class, caller.terms.map(Frame::Terms)];
    let mut bytes: Vec<u8> = before.iter().flatten().flat_map(Frame::encode).collect();
    bytes.extend(first.encode());
    Ok(channel.send(&bytes, descriptors)?)
}

/// Whether somebody of our user listens at `path`: an error says why not.
pub fn listens(path: &Path) -> Result<(), IpcError> {
    connect(path, HAND_OVER_PATIENCE).map(drop)
}

/// Hand a parcel over, `parcel_bytes` long, and the files of its blobs. There is no answer: what becomes of it is not
/// waited for. It is recorded for `caller`, as are all these requests.
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

/// Say that the record of `weak` was used.
pub fn note_use(path: &Path, caller: Caller, weak: &Fingerprint) -> Result<(), IpcError> {
    begin(&connect(path, HAND_OVER_PATIENCE)?, caller, &Frame::Used(*weak), &[])
}

/// Say that something new is in the store.
pub fn note_recorded(
    path: &Path,
    caller: Caller,
    weak: &Fingerprint,
    strong: &Fingerprint,
    directory: &[u8],
) -> Result<(), IpcError> {
    let (weak, strong, directory) = (*weak, *strong, bounded(directory));
    begin(&connect(path, HAND_OVER_PATIENCE)?, caller, &Frame::Recorded { weak, strong, directory }, &[])
}

/// Ask how `larderd` is.
pub fn ask(path: &Path) -> Result<State, IpcError> {
    state(path, &Frame::Ask, &[])
}

/// Have `larderd` stop. `proof` is the store's file that only a process which can write the store opens for writing.
pub fn stop(path: &Path, proof: &File) -> Result<State, IpcError> {
    state(path, &Frame::Stop, &[proof.as_fd()])
}

fn state(path: &Path, question: &Frame, descriptors: &[BorrowedFd]) -> Result<State, IpcError> {
    match ask_for(path, question, descriptors, ANSWER_PATIENCE, 1)?.pop().ok_or(IpcError::Unexpected)? {
        Frame::State(state) => Ok(state),
        _ => Err(IpcError::Unexpected),
    }
}

/// How it is with the remotes.
pub fn ask_remotes(path: &Path) -> Result<Remotes, IpcError> {
    match ask_for(path, &Frame::AskRemotes, &[], ANSWER_PATIENCE, 1)?.pop() {
        Some(Frame::Remotes(remotes)) => Ok(remotes),
        _ => Err(IpcError::Unexpected),
    }
}

/// Wait until all is sent, or nothing can be sent, or for so long.
pub fn flush_remotes(path: &Path, patience: Duration) -> Result<(Remotes, Unshared), IpcError> {
    let answers = ask_for(path, &Frame::Flush(patience.as_secs()), &[], patience + ANSWER_PATIENCE, 2)?;
    match <[Frame; 2]>::try_from(answers) {
        Ok([Frame::Remotes(remotes), Frame::Unshared(unshared)]) => Ok((remotes, unshared)),
        _ => Err(IpcError::Unexpected),
    }
}

/// So many answers to a question.
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

/// A question after records that `larderd` may fetch from a remote. Whoever drops it wants nothing any more.
pub struct Fetching {
    channel: Channel,
    incoming: Incoming,
}

/// What `larderd` says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// How long such a fetch takes.
    Expect(Expect),
    /// The bytes of a manifest, of which nothing is known.
    Found(Vec<u8>),
    /// Nothing comes.
    Nothing(Nothing),
    /// What was wanted is in the store; so many bytes were fetched for it.
    Fetched(u64),
}

impl Fetching {
    /// Ask for the records of `weak`.
    pub fn begin(path: &Path, caller: Caller, weak: &Fingerprint, directory: &[u8]) -> Result<Fetching, IpcError> {
        let channel = connect(path, HAND_OVER_PATIENCE)?;
        begin(&channel, caller, &Frame::Fetch { weak: *weak, directory: bounded(directory) }, &[])?;
        Ok(Fetching { channel, incoming: Incoming::default() })
    }

    /// To be waited on for reading.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// What it says next; `None` where it says nothing within `patience`.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Told>, IpcError> {
        let until = Instant::now() + patience;
        let frame = loop {
            if let Some(frame) = self.incoming.take()? {
                break frame;
            }
            if !self.channel.has_more_within(until.saturating_duration_since(Instant::now()))? {
                if Instant::now() < until {
                    // A signal came.
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

    /// The file that was passed.
    fn file(&mut self, size_bytes: u64) -> Result<Vec<u8>, IpcError> {
        let passed = self.incoming.passed.pop().ok_or(IpcError::Unexpected)?;
        let (file, look) = larder_sys::passed_file(passed)?;
        if look.kind != larder_sys::Kind::File || look.size_bytes != size_bytes || size_bytes > FOUND_BYTES_MAX {
            return Err(IpcError::Unexpected);
        }
        let mut bytes = vec![0; size_bytes as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Have this one of the found records put into the store, with all that it needs.
    pub fn want(&self, strong: &Fingerprint, subject: &Digest) -> Result<(), IpcError> {
        self.say(&Frame::Want { strong: *strong, subject: *subject })
    }

    /// Say that the tool was started.
    pub fn say_running(&self) -> Result<(), IpcError> {
        self.say(&Frame::Running)
    }

    /// Say that something new is in the store.
    pub fn recorded(&self, weak: &Fingerprint, strong: &Fingerprint, directory: &[u8]) -> Result<(), IpcError> {
        self.say(&Frame::Recorded { weak: *weak, strong: *strong, directory: bounded(directory) })
    }

    fn say(&self, frame: &Frame) -> Result<(), IpcError> {
        self.channel.set_patience(HAND_OVER_PATIENCE)?;
        Ok(self.channel.send(&frame.encode(), &[])?)
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A directory that is not said is one of which nothing is known.
fn bounded(directory: &[u8]) -> Vec<u8> {
    if directory.len() <= DIRECTORY_BYTES_MAX { directory.to_vec() } else { Vec::new() }
}
