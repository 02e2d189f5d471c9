//! The messages on the socket, called frames, and their encoding.
//!
//! ```text
//! frame = u16 number of bytes that follow (little endian), u8 format version, u8 kind, …
//!   1 hand-over   number bytes of the parcel, number of blobs
//!                 with descriptors: the parcel's, then each blob's
//!   2 more        nothing; with the next descriptors: at most 253 go with one frame
//!   3 ask         nothing
//!   4 state       number pid, number seconds since the start, number seconds idle until it exits,
//!                 number recorded, number refused
//!   5 stop        nothing; with a descriptor: the proof of writing (below)
//!   6 used        digest weak fingerprint
//!   7 fetch       digest weak fingerprint, bytes working directory
//!   8 expect      number median of such fetches in µs, number 90th percentile in µs,
//!                 number of fetches measured, u8 1 if waiting is not worth it
//!   9 found       number bytes of the manifest; with a descriptor: the manifest's
//!  10 nothing     u8 why: 0 no remote has it · 1 no remote can be reached · 2 there is no remote
//!                 · 3 it failed · 4 larderd was started with other remotes or trusts other keys
//!  11 want        digest strong fingerprint, digest subject
//!  12 fetched     number bytes that were fetched
//!  13 running     nothing
//!  14 recorded    digest weak fingerprint, digest strong fingerprint, bytes working directory
//!  15 flush       number of seconds that it may take
//!  16 remotes?    nothing
//!  17 remotes     number of records to be sent, number sent, number dropped, number that failed,
//!                 digest of the settings
//!  18 class       u8 class that the work for this request is done in: 1 utility · 2 background
//!  19 terms       digest of the remotes, digest of the trusted keys (0 if no signature is needed),
//!                 u8 1 if records may be sent
//!  20 unshared    number of records that are lost, bytes why nothing can be sent
//! ```
//!
//! A connection carries one request:
//!
//! 1. Frames 18 and 19 may come before the request, in this order. Without 18 the work is done in
//!    `larderd`'s own class. A wrapper that has remotes configured sends 19 with 1, 6, 7 and 14.
//! 2. A wrapper sends 1 and as many 2 as it needs, or 6, or 14, and closes the connection without
//!    waiting.
//! 3. `larderd` answers 3 and 5 with 4, 16 with 17, and 15 with 17 and then 20.
//! 4. `larderd` obeys 5 only with a descriptor, open for writing, of a certain file in the store.
//!    So a process that may only read the store cannot stop it.
//! 5. `larderd` answers 7 with 8, and then with 9 or 10. It answers 11 with 8, and then with 12 or
//!    10. Meanwhile the wrapper may send 13 (the tool runs) and 14. It closes the connection when
//!    it wants nothing any more.
//!
//! A `larderd` that does not know one of these frames closes the connection.
//!
//! Unaware of: what the numbers and digests are used for.

use larder_model::{DecodeError, Digest, FORMAT_VERSION, Fingerprint, Reader, Writer};
use larder_sys::Class;

/// The size of the length field before each frame, in bytes.
pub const HEADER_BYTES: usize = 2;
/// The largest length of a frame without its length field, in bytes.
pub const FRAME_BYTES_MAX: usize = DIRECTORY_BYTES_MAX + 128;
/// The longest working directory that is sent, in bytes (`PATH_MAX`).
pub const DIRECTORY_BYTES_MAX: usize = 4096;
/// The longest text in `Unshared::trouble`, in bytes.
pub const TROUBLE_BYTES_MAX: usize = 1024;

/// The digest that encodes "no signature is needed". No set of keys has it.
const NO_KEYS: Digest = Digest([0; 32]);

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A request to record a parcel and its blobs, whose files come with it.
    HandOver {
        /// The size of the parcel, in bytes.
        parcel_bytes: u64,
        /// The number of blobs.
        blobs: u64,
    },
    /// A continuation that only carries further descriptors.
    More,
    /// A request for the state of `larderd`.
    Ask,
    /// The answer to `Ask` and `Stop`.
    State(State),
    /// A request to exit. It comes with the store's `proof_of_writing`.
    Stop,
    /// A notice that the record of this weak fingerprint was used.
    Used(Fingerprint),
    /// A request to look for records of this weak fingerprint on the remotes.
    Fetch {
        /// The weak fingerprint.
        weak: Fingerprint,
        /// The wrapper's working directory.
        directory: Vec<u8>,
    },
    /// An answer to `Fetch` and `Want`: how long such a fetch usually takes.
    Expect(Expect),
    /// An answer to `Fetch`: records were found. Their manifest comes in a file.
    Found {
        /// The size of the manifest, in bytes.
        manifest_bytes: u64,
    },
    /// An answer to `Fetch` and `Want`: nothing is fetched.
    Nothing(Nothing),
    /// A request to put one of the found records into the store, with all of its blobs.
    Want {
        /// The strong fingerprint of the record, which is one of those that were found.
        strong: Fingerprint,
        /// The digest under which `larder explain` finds the record.
        subject: Digest,
    },
    /// An answer to `Want`: the record is in the store now.
    Fetched {
        /// The number of bytes that were fetched for it.
        bytes: u64,
    },
    /// A notice during a fetch: the tool was started.
    Running,
    /// A notice that a new record is in the store.
    Recorded(Recorded),
    /// A request to send all queued records, and to answer when that is done or after this many
    /// seconds.
    Flush(u64),
    /// A request for the state of the remotes.
    AskRemotes,
    /// The answer to `AskRemotes`, and the first answer to `Flush`.
    Remotes(Remotes),
    /// The second answer to `Flush`: what was not sent.
    Unshared(Unshared),
    /// A prefix: the work for the next request is done in this class. It is never `Class::Inherit`.
    Class(Class),
    /// A prefix: the terms of the next request.
    Terms(Terms),
}

/// A new record in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The weak fingerprint, which names the manifest.
    pub weak: Fingerprint,
    /// The strong fingerprint, which names the entry in the manifest.
    pub strong: Fingerprint,
    /// The wrapper's working directory.
    pub directory: Vec<u8>,
}

/// The terms on which a wrapper uses remotes, from its own settings. The settings that `larderd`
/// was started with may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The digest of the remotes' URLs.
    pub remotes: Digest,
    /// The digest of the keys that may sign a record. `None` if a record needs no signature.
    pub trust: Option<Digest>,
    /// True if new records may be sent to the remotes.
    pub sends: bool,
}

impl Terms {
    /// Returns true if a client with these terms may use what the remotes of `theirs` provide.
    ///
    /// The remotes must be equal. If these terms require signatures, the trusted keys must be equal
    /// too.
    pub fn allow(&self, theirs: &Terms) -> bool {
        self.remotes == theirs.remotes && (self.trust.is_none() || self.trust == theirs.trust)
    }
}

/// The class and the terms that a request is served with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The class that the work is done in.
    pub class: Class,
    /// The terms. `None` if the wrapper has no remotes configured, or if it sent none.
    pub terms: Option<Terms>,
}

impl Caller {
    /// A caller that sent neither a class nor terms.
    pub const UNSTATED: Caller = Caller { class: Class::Inherit, terms: None };
}

/// How long fetches usually take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// The median duration, in microseconds.
    pub median_us: u64,
    /// The 90th percentile of the duration, in microseconds.
    pub p90_us: u64,
    /// The number of fetches that these figures come from.
    pub samples: u64,
    /// True if waiting is not worth it, because other fetches are overdue.
    pub overdue: bool,
}

larder_model::listed! {
    /// The reason why nothing is fetched. The discriminant is the code on the wire.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Nothing {
        /// No remote has it.
        NotThere,
        /// No remote can be reached.
        OutOfReach,
        /// There is no remote.
        NoRemote,
        /// The transfer broke off, or the fetched data was not valid.
        Failed,
        /// `larderd` was started with other remotes or trusts other keys.
        OtherTerms,
    }
}

impl Nothing {
    /// Returns the reason as text for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Nothing::NotThere => "no remote has it",
            Nothing::OutOfReach => "no remote can be reached",
            Nothing::NoRemote => "larderd has no remote",
            Nothing::Failed => "the fetch failed",
            Nothing::OtherTerms => "larderd runs with other remotes or trusted keys: stop it with `larder daemon stop`",
        }
    }
}

/// The state of the remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remotes {
    /// The number of records that are still to be sent.
    pub queued: u64,
    /// The number of records that were sent since `larderd` started.
    pub sent: u64,
    /// The number of records that were dropped, because more came than could be sent.
    pub dropped: u64,
    /// The number of attempts that failed.
    pub failed: u64,
    /// The digest of the remotes' settings that `larderd` was started with.
    pub settings: Digest,
}

/// What a flush did not send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unshared {
    /// The number of records that were given up since this was last asked. A record is given up if
    /// a remote refuses such objects for good, or if more records came than could be sent.
    pub lost: u64,
    /// The reason why nothing can be sent, if waiting does not help. Empty if there is none.
    pub trouble: Vec<u8>,
}

/// The state of `larderd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The process id.
    pub pid: u64,
    /// Seconds since it was started.
    pub up_s: u64,
    /// The seconds without a connection after which it exits.
    pub idle_s: u64,
    /// The number of hand-overs that were recorded.
    pub recorded: u64,
    /// The number of requests that were refused.
    pub refused: u64,
}

/// A part of a frame, to be encoded.
enum Part<'a> {
    Byte(u8),
    Number(u64),
    Name(Digest),
    Bytes(&'a [u8]),
}

impl Frame {
    /// Returns the encoded frame with its length field.
    pub fn encode(&self) -> Vec<u8> {
        use Part::{Byte, Bytes, Name, Number};
        let (tag, parts) = match self {
            Frame::HandOver { parcel_bytes, blobs } => (1, vec![Number(*parcel_bytes), Number(*blobs)]),
            Frame::More => (2, Vec::new()),
            Frame::Ask => (3, Vec::new()),
            Frame::State(State { pid, up_s, idle_s, recorded, refused }) => {
                (4, [pid, up_s, idle_s, recorded, refused].map(|number| Number(*number)).into())
            }
            Frame::Stop => (5, Vec::new()),
            Frame::Used(weak) => (6, vec![Name(*weak)]),
            Frame::Fetch { weak, directory } => (7, vec![Name(*weak), Bytes(directory)]),
            Frame::Expect(Expect { median_us, p90_us, samples, overdue }) => {
                (8, vec![Number(*median_us), Number(*p90_us), Number(*samples), Byte((*overdue).into())])
            }
            Frame::Found { manifest_bytes } => (9, vec![Number(*manifest_bytes)]),
            Frame::Nothing(why) => (10, vec![Byte(*why as u8)]),
            Frame::Want { strong, subject } => (11, vec![Name(*strong), Name(*subject)]),
            Frame::Fetched { bytes } => (12, vec![Number(*bytes)]),
            Frame::Running => (13, Vec::new()),
            Frame::Recorded(Recorded { weak, strong, directory }) => {
                (14, vec![Name(*weak), Name(*strong), Bytes(directory)])
            }
            Frame::Flush(seconds) => (15, vec![Number(*seconds)]),
            Frame::AskRemotes => (16, Vec::new()),
            Frame::Remotes(Remotes { queued, sent, dropped, failed, settings }) => {
                (17, vec![Number(*queued), Number(*sent), Number(*dropped), Number(*failed), Name(*settings)])
            }
            Frame::Class(class) => (18, vec![Byte(*class as u8)]),
            Frame::Terms(Terms { remotes, trust, sends }) => {
                (19, vec![Name(*remotes), Name(trust.unwrap_or(NO_KEYS)), Byte((*sends).into())])
            }
            Frame::Unshared(Unshared { lost, trouble }) => (20, vec![Number(*lost), Bytes(trouble)]),
        };
        let mut w = Writer::versioned(FORMAT_VERSION);
        w.u8(tag);
        for part in parts {
            match part {
                Byte(byte) => w.u8(byte),
                Number(number) => w.number(number),
                Name(digest) => w.digest(&digest),
                Bytes(bytes) => w.bytes(bytes),
            }
        }
        let length = w.bytes.len() as u16;
        [&length.to_le_bytes()[..], &w.bytes].concat()
    }

    /// Returns how many bytes follow this length field. Fails if the length exceeds
    /// `FRAME_BYTES_MAX`.
    pub fn length(header: [u8; HEADER_BYTES]) -> Result<usize, DecodeError> {
        let length = usize::from(u16::from_le_bytes(header));
        if length > FRAME_BYTES_MAX {
            return Err(DecodeError::Limit { limit: FRAME_BYTES_MAX as u64, at: 0 });
        }
        Ok(length)
    }

    /// Decodes the bytes after the length field.
    pub fn decode(bytes: &[u8]) -> Result<Frame, DecodeError> {
        let mut r = Reader::versioned(bytes, FORMAT_VERSION)?;
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
            10 => Frame::Nothing(r.one_of(Nothing::ALL)?),
            11 => Frame::Want { strong: r.digest()?, subject: r.digest()? },
            12 => Frame::Fetched { bytes: r.number()? },
            13 => Frame::Running,
            14 => {
                let (weak, strong) = (r.digest()?, r.digest()?);
                Frame::Recorded(Recorded { weak, strong, directory: directory(&mut r)? })
            }
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
                trust: Some(r.digest()?).filter(|trust| *trust != NO_KEYS),
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
        Nothing::ALL.iter().for_each(|why| check(Frame::Nothing(*why)));
        check(Frame::Want { strong, subject: weak });
        check(Frame::Fetched { bytes: most });
        check(Frame::Running);
        check(Frame::Recorded(Recorded { weak, strong, directory }));
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
    fn required_signatures_must_be_required_by_both() {
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
