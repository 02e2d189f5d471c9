//! Judgement: whether the preloaded library sees everything that a program does. larder finds out
//! by a run that the kernel observer watches as well.
//!
//! ```text
//! judgement = u8 format version, u8 tag, number of looks, look*, [digest program], digest
//! tag       = 1 believed · 2 disbelieved · 3 again · 4 unreported · 5 changes · 6 open, with program
//! look      = bytes path, u8 way, [number errno]
//! way       = 1 content · 2 kind · 3 link · 4 listing · 5 absence · 6 error, with errno
//! ```
//! The paths of a believed program are paths of this system, without placeholders for roots. The
//! paths of `changes` have their roots replaced.
//!
//! Unaware of: where judgements are stored, how two observers are compared.

use crate::{DecodeError, Digest, FORMAT_VERSION, Looked, Reader, Writer};

const PATH_BYTES_MAX: u64 = 64 << 10;

/// What is known of a program, or of a tool together with the programs that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The library sees all that the program does, except for these accesses by the dynamic loader
    /// and libc. They happen in every run, so they are added to each one.
    Believed(Vec<Unseen>),
    /// The library misses some of what the program does.
    Disbelieved,
    /// A program was started that is not known yet. The next run must be watched by both observers.
    Again,
    /// The command must not be observed. Only the kernel could observe it, and a wrapper that it
    /// starts cannot report to the kernel observer what it puts in place.
    Unreported,
    /// The command changes these files in place, so their content must be noted before it runs.
    /// Roots and names by chance in the paths are replaced. This is stored under a key of its own,
    /// apart from the other judgements.
    Changes(Vec<Vec<u8>>),
    /// The last run of a command started the program whose verdict has this key, and there was no
    /// verdict. As long as there is none, the command must be watched by both observers, because it
    /// may be the only one that starts the program. This is stored under a key of its own as well.
    Open(Digest),
}

/// An access that the library does not see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unseen {
    /// The path that is accessed.
    pub path: Vec<u8>,
    /// The kind of access.
    pub way: Way,
}

/// A kind of access to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Its content was read.
    Content,
    /// `stat`, or another call that follows a symbolic link.
    Kind,
    /// `lstat` or another call that does not follow a symbolic link.
    Link,
    /// The directory was listed.
    Listing,
    /// The path was looked up and was absent.
    Absence,
    /// The lookup failed with another error, this errno.
    Error(u32),
}

impl Unseen {
    /// Returns the access in the form in which observers report accesses.
    pub fn looked(&self) -> Looked {
        let mut looked = Looked::default();
        match self.way {
            Way::Content => (looked.content, looked.kind) = (true, true),
            Way::Kind => looked.kind = true,
            Way::Link => looked.link = true,
            Way::Listing => (looked.listed, looked.kind) = (true, true),
            Way::Absence => looked.absent = true,
            Way::Error(errno) => looked.failed = Some((0, errno)),
        }
        looked
    }
}

impl Judgement {
    /// Returns the encoded judgement.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(FORMAT_VERSION);
        let read = |path: &Vec<u8>| Unseen { path: path.clone(), way: Way::Content };
        let changed: Vec<Unseen>;
        let (tag, unseen): (u8, &[Unseen]) = match self {
            Judgement::Believed(unseen) => (1, unseen),
            Judgement::Disbelieved => (2, &[]),
            Judgement::Again => (3, &[]),
            Judgement::Unreported => (4, &[]),
            Judgement::Changes(paths) => {
                changed = paths.iter().map(read).collect();
                (5, &changed)
            }
            Judgement::Open(_) => (6, &[]),
        };
        w.u8(tag);
        w.number(unseen.len() as u64);
        for look in unseen {
            w.bytes(&look.path);
            match look.way {
                Way::Content => w.u8(1),
                Way::Kind => w.u8(2),
                Way::Link => w.u8(3),
                Way::Listing => w.u8(4),
                Way::Absence => w.u8(5),
                Way::Error(errno) => {
                    w.u8(6);
                    w.number(errno.into());
                }
            }
        }
        if let Judgement::Open(program) = self {
            w.digest(program);
        }
        w.seal()
    }

    /// Decodes a judgement.
    pub fn decode(bytes: &[u8]) -> Result<Judgement, DecodeError> {
        let mut r = Reader::versioned_and_sealed(bytes, FORMAT_VERSION)?;
        let tag = r.u8()?;
        let mut unseen = Vec::new();
        for _ in 0..r.count()? {
            unseen.push(Unseen { path: r.bytes(PATH_BYTES_MAX)?.to_vec(), way: Way::decode(&mut r)? });
        }
        let judgement = match tag {
            1 => Judgement::Believed(unseen),
            2 => Judgement::Disbelieved,
            3 => Judgement::Again,
            4 => Judgement::Unreported,
            5 => Judgement::Changes(unseen.into_iter().map(|look| look.path).collect()),
            6 => Judgement::Open(r.digest()?),
            tag => return Err(r.unknown_tag(tag)),
        };
        r.finish()?;
        Ok(judgement)
    }
}

impl Way {
    fn decode(r: &mut Reader) -> Result<Way, DecodeError> {
        Ok(match r.u8()? {
            1 => Way::Content,
            2 => Way::Kind,
            3 => Way::Link,
            4 => Way::Listing,
            5 => Way::Absence,
            6 => Way::Error(r.u32()?),
            tag => return Err(r.unknown_tag(tag)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_never_damaged() {
        let ways = [Way::Content, Way::Kind, Way::Link, Way::Listing, Way::Absence, Way::Error(13)];
        let unseen = ways.into_iter().map(|way| Unseen { path: b"/etc/ld.so.cache".to_vec(), way }).collect();
        let changes = Judgement::Changes(vec![b"\0\x01/zconf.h".to_vec(), b"/x".to_vec()]);
        let open = Judgement::Open(Digest::of(b"program"));
        let plain = [Judgement::Disbelieved, Judgement::Again, Judgement::Unreported, open];
        for judgement in [Judgement::Believed(unseen), changes].into_iter().chain(plain) {
            let bytes = judgement.encode();
            assert_eq!(Judgement::decode(&bytes), Ok(judgement.clone()));
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x41;
                assert!(Judgement::decode(&damaged).is_err(), "byte {at}");
            }
        }
    }
}
