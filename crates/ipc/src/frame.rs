//! The messages on the socket, and their bytes.
//!
//! ```text
//! frame = u16 number of bytes that follow, u8 format version, u8 kind, …
//!   1 hand-over   number bytes of the parcel, number of blobs     with descriptors: the parcel's, then each blob's
//!   2 more        nothing                                         with the next descriptors: 253 go with one frame
//!   3 ask         nothing
//!   4 state       number pid, number seconds up, number seconds until it leaves when idle, number recorded, number refused
//!   5 stop        nothing                                         with a descriptor: the proof of writing (below)
//!   6 used        digest weak fingerprint
//!   7 fetch       digest weak fingerprint, bytes working directory
//!   8 expect      number median of such fetches in µs, number nine tenths in µs, number of fetches that say so, u8 do not wait
//!   9 found       number bytes of the manifest                    with a descriptor: the manifest's
//!  10 nothing     u8 why: 0 no remote has it · 1 no remote can be reached · 2 there is no remote · 3 it failed ·
//!                 4 it began with other remotes, or trusts others
//!  11 want        digest strong fingerprint, digest subject
//!  12 fetched     number bytes that were fetched
//!  13 running     nothing
//!  14 recorded    digest weak fingerprint, digest strong fingerprint, bytes working directory
//!  15 flush       number of seconds that it may take
//!  16 remotes?    nothing
//!  17 remotes     number of records to be sent, number sent, number dropped, number that failed, digest of the settings
//!  18 class       u8 class that the work for this request is done in: 1 utility · 2 background
//!  19 terms       digest of the remotes, digest of who is trusted (0 where nobody has to sign), u8 may be sent
//!  20 unshared    number of records that are lost, and why nothing can be sent; behind the answer to 15
//! ```
//! 18 and 19 come before a request, in this order, if at all: without 18 the work is done as all of `larderd`'s; 19 is
//! said with 1, 7 and 14 where the wrapper knows of remotes. A wrapper sends 1 and as many 2 as it needs, or 6, or 14, and leaves. `larderd` answers 3 and 5 with 4, 15 and 16
//! with 17. It obeys 5 only with a descriptor, open for writing, of a file in the store: a process that may only read the
//! store does not stop it. To 7 it answers 8, and then 9 or 10; to 11 the same with 12 for 9. Meanwhile the wrapper may say 13, that
//! the tool runs, and 14, and leaves when it wants nothing any more. One that does not know these ends the connection.

use larder_model::{DecodeError, Digest, FORMAT_VERSION, Fingerprint, Reader, Writer};
use larder_sys::Class;

/// A frame's length, which stands before it.
pub const HEADER_BYTES: usize = 2;
/// No frame is longer, without its header.
pub const FRAME_BYTES_MAX: usize = DIRECTORY_BYTES_MAX + 128;
/// A longer working directory is not said (`PATH_MAX`).
pub const DIRECTORY_BYTES_MAX: usize = 4096;
/// Why nothing can be sent, bytes.
pub const TROUBLE_BYTES_MAX: usize = 1024;

/// No keys have this digest.
const NOBODY: Digest = Digest([0; 32]);

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
    /// Leave; comes with the store's `proof_of_writing`.
    Stop,
    /// A record was used: the one of this weak fingerprint.
    Used(Fingerprint),
    /// Has a remote records of this weak fingerprint?
    Fetch {
        /// The weak fingerprint.
        weak: Fingerprint,
        /// Where the wrapper works.
        directory: Vec<u8>,
    },
    /// How long it takes as a rule.
    Expect(Expect),
    /// Records were found, and come in a file.
    Found {
        /// Its bytes.
        manifest_bytes: u64,
    },
    /// Nothing comes.
    Nothing(Nothing),
    /// The record of this strong fingerprint, and all that it needs.
    Want {
        /// Which of those that were found.
        strong: Fingerprint,
        /// The commands that `explain` finds it by.
        subject: Digest,
    },
    /// It is in the store now.
    Fetched {
        /// So many bytes were fetched for it.
        bytes: u64,
    },
    /// The tool was started meanwhile.
    Running,
    /// Something new was recorded.
    Recorded {
        /// Where it is.
        weak: Fingerprint,
        /// Which it is.
        strong: Fingerprint,
        /// Where the wrapper works.
        directory: Vec<u8>,
    },
    /// Send what is to be sent, and answer then, or after so many seconds.
    Flush(u64),
    /// How are the remotes?
    AskRemotes,
    /// Thus.
    Remotes(Remotes),
    /// What a flush did not share: follows `Remotes`.
    Unshared(Unshared),
    /// What the next frame asks for is done in this class, which is not to inherit.
    Class(Class),
    /// On which terms it is asked for.
    Terms(Terms),
}

/// On which terms a wrapper uses remotes: those of its own settings. Whoever started `larderd` may have others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Of the remotes' URLs.
    pub remotes: Digest,
    /// Of the keys that a record must be signed with; `None` where it need not be.
    pub trust: Option<Digest>,
    /// What is recorded may be sent.
    pub sends: bool,
}

impl Terms {
    /// Whether what remotes of `theirs` give may be used by who has these terms.
    pub fn allow(&self, theirs: &Terms) -> bool {
        self.remotes == theirs.remotes && (self.trust.is_none() || self.trust == theirs.trust)
    }
}

/// For whom something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The class that it is done in.
    pub class: Class,
    /// Where it knows of remotes.
    pub terms: Option<Terms>,
}

impl Caller {
    /// One of whom nothing was said.
    pub const ANYBODY: Caller = Caller { class: Class::Inherit, terms: None };
}

/// How long fetches take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Half of them take at most so many microseconds.
    pub median_us: u64,
    /// Nine of ten take at most so many.
    pub p90_us: u64,
    /// So many fetches say so.
    pub samples: u64,
    /// Others are overdue: it is not worth waiting.
    pub overdue: bool,
}

/// Why nothing is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// No remote has it.
    NotThere,
    /// No remote can be reached.
    OutOfReach,
    /// There is no remote.
    NoRemote,
    /// What came was not what it should have been, or broke off.
    Failed,
    /// `larderd` began with other settings.
    OtherTerms,
}

impl Nothing {
    const ALL: [Nothing; 5] =
        [Nothing::NotThere, Nothing::OutOfReach, Nothing::NoRemote, Nothing::Failed, Nothing::OtherTerms];

    /// For people.
    pub fn sentence(self) -> &'static str {
        match self {
            Nothing::NotThere => "no remote has it",
            Nothing::OutOfReach => "no remote can be reached",
            Nothing::NoRemote => "larderd has no remote",
            Nothing::Failed => "the fetch failed",
            Nothing::OtherTerms => "larderd began with other remotes, or trusts others: `larder daemon stop` ends it",
        }
    }
}

/// How it is with the remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remotes {
    /// Records that are still to be sent.
    pub queued: u64,
    /// Records that were sent since it began.
    pub sent: u64,
    /// Records that were dropped, since more came than could be sent.
    pub dropped: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Of the remotes' settings that it began with.
    pub settings: Digest,
}

/// What a flush did not share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unshared {
    /// Records that are not shared and are not tried again, since this was asked last: a remote takes no such object, or
    /// more records came than could be sent.
    pub lost: u64,
    /// Why nothing can be sent, if waiting does not mend it; else empty.
    pub trouble: Vec<u8>,
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
            Frame::Fetch { weak, directory } => {
                w.u8(7);
                w.digest(weak);
                w.bytes(directory);
            }
            Frame::Expect(expect) => {
                w.u8(8);
                [expect.median_us, expect.p90_us, expect.samples].into_iter().for_each(|number| w.number(number));
                w.u8(expect.overdue.into());
            }
            Frame::Found { manifest_bytes } => {
                w.u8(9);
                w.number(*manifest_bytes);
            }
            Frame::Nothing(why) => {
                w.u8(10);
                w.u8(*why as u8);
            }
            Frame::Want { strong, subject } => {
                w.u8(11);
                w.digest(strong);
                w.digest(subject);
            }
            Frame::Fetched { bytes } => {
                w.u8(12);
                w.number(*bytes);
            }
            Frame::Running => w.u8(13),
            Frame::Recorded { weak, strong, directory } => {
                w.u8(14);
                w.digest(weak);
                w.digest(strong);
                w.bytes(directory);
            }
            Frame::Flush(seconds) => {
                w.u8(15);
                w.number(*seconds);
            }
            Frame::AskRemotes => w.u8(16),
            Frame::Remotes(remotes) => {
                w.u8(17);
                let Remotes { queued, sent, dropped, failed, settings } = remotes;
                [queued, sent, dropped, failed].into_iter().for_each(|number| w.number(*number));
                w.digest(settings);
            }
            Frame::Unshared(Unshared { lost, trouble }) => {
                w.u8(20);
                w.number(*lost);
                w.bytes(trouble);
            }
            Frame::Class(class) => {
                w.u8(18);
                w.u8(*class as u8);
            }
            Frame::Terms(Terms { remotes, trust, sends }) => {
                w.u8(19);
                w.digest(remotes);
                w.digest(&trust.unwrap_or(NOBODY));
                w.u8((*sends).into());
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
            7 => Frame::Fetch { weak: r.digest()?, directory: directory(&mut r)? },
            8 => Frame::Expect(Expect {
                median_us: r.number()?,
                p90_us: r.number()?,
                samples: r.number()?,
                overdue: r.flag()?,
            }),
            9 => Frame::Found { manifest_bytes: r.number()? },
            10 => {
                let code = r.u8()?;
                let why = Nothing::ALL.into_iter().find(|why| *why as u8 == code);
                Frame::Nothing(why.ok_or(r.unknown_tag(code))?)
            }
            11 => Frame::Want { strong: r.digest()?, subject: r.digest()? },
            12 => Frame::Fetched { bytes: r.number()? },
            13 => Frame::Running,
            14 => Frame::Recorded { weak: r.digest()?, strong: r.digest()?, directory: directory(&mut r)? },
            15 => Frame::Flush(r.number()?),
            16 => Frame::AskRemotes,
            17 => Frame::Remotes(Remotes {
                queued: r.number()?,
                sent: r.number()?,
                dropped: r.number()?,
                failed: r.number()?,
                settings: r.digest()?,
            }),
            18 => match r.u8()? {
                1 => Frame::Class(Class::Utility),
                2 => Frame::Class(Class::Background),
                code => return Err(r.unknown_tag(code)),
            },
            19 => Frame::Terms(Terms {
                remotes: r.digest()?,
                trust: Some(r.digest()?).filter(|trust| *trust != NOBODY),
                sends: r.flag()?,
            }),
            20 => Frame::Unshared(Unshared { lost: r.number()?, trouble: r.bytes(TROUBLE_BYTES_MAX as u64)?.to_vec() }),
            tag => return Err(r.unknown_tag(tag)),
        };
        r.finish()?;
        Ok(frame)
    }
}

fn directory(r: &mut Reader) -> Result<Vec<u8>, DecodeError> {
    Ok(r.bytes(DIRECTORY_BYTES_MAX as u64)?.to_vec())
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
        check(Frame::Used(Digest([9; 32])));
        let (weak, strong, directory) = (Digest([1; 32]), Digest([2; 32]), vec![b'd'; DIRECTORY_BYTES_MAX]);
        check(Frame::Fetch { weak, directory: directory.clone() });
        check(Frame::Expect(Expect { median_us: most, p90_us: most, samples: most, overdue: true }));
        check(Frame::Found { manifest_bytes: most });
        Nothing::ALL.into_iter().for_each(|why| check(Frame::Nothing(why)));
        check(Frame::Want { strong, subject: weak });
        check(Frame::Fetched { bytes: most });
        check(Frame::Running);
        check(Frame::Recorded { weak, strong, directory });
        check(Frame::Flush(most));
        check(Frame::AskRemotes);
        check(Frame::Unshared(Unshared { lost: most, trouble: vec![b'x'; TROUBLE_BYTES_MAX] }));
        check(Frame::Class(Class::Utility));
        check(Frame::Class(Class::Background));
        check(Frame::Terms(Terms { remotes: weak, trust: None, sends: true }));
        check(Frame::Terms(Terms { remotes: weak, trust: Some(strong), sends: false }));
        check(Frame::Remotes(Remotes { queued: most, sent: most, dropped: most, failed: most, settings: weak }));
    }

    #[test]
    fn other_versions_and_lengths_are_refused() {
        assert_eq!(Frame::decode(&[FORMAT_VERSION + 1, 3]), Err(DecodeError::Version(FORMAT_VERSION + 1)));
        assert!(Frame::length([0xff, 0xff]).is_err());
        assert!(Frame::decode(&[]).is_err());
        assert!(Frame::decode(&[FORMAT_VERSION, 21]).is_err());
        assert!(Frame::decode(&[FORMAT_VERSION, 18, 0]).is_err() && Frame::decode(&[FORMAT_VERSION, 18, 3]).is_err());
        assert!(Frame::decode(&[FORMAT_VERSION, 10, 5]).is_err());
    }

    #[test]
    fn who_has_to_trust_takes_nothing_from_who_does_not() {
        let terms = |remotes, trust: Option<u8>| Terms {
            remotes: Digest([remotes; 32]),
            trust: trust.map(|key| Digest([key; 32])),
            sends: true,
        };
        assert!(terms(1, None).allow(&terms(1, None)) && terms(1, None).allow(&terms(1, Some(1))));
        assert!(terms(1, Some(1)).allow(&terms(1, Some(1))));
        assert!(!terms(1, Some(1)).allow(&terms(1, None)) && !terms(1, Some(1)).allow(&terms(1, Some(2))));
        assert!(!terms(1, None).allow(&terms(2, None)));
    }
}
