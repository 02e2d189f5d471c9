//! What is known of how well a program can be observed by the preloaded library: the judgement of the kernel observer,
//! which saw a run of it as well.
//!
//! ```text
//! judgement = u8 format version, u8 tag: 1 believed · 2 disbelieved · 3 again · 4 unreported, number of looks, look*, digest
//! look      = bytes path, u8 way: 1 content · 2 kind · 3 link · 4 listing · 5 absence · 6 error, number errno
//! ```
//! Paths are those of the system, not of a place: no root is replaced in them.

use crate::{DecodeError, FORMAT_VERSION, Looked, Reader, Writer};

const PATH_BYTES_MAX: u64 = 64 << 10;

/// What is known of a program, or of a tool with the programs that it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The library sees all that it does, but for these looks of loader and libc, which belong to each of its runs.
    Believed(Vec<Unseen>),
    /// The library misses some of what it does.
    Disbelieved,
    /// Something was started that is not known yet: the next run is to be seen by both.
    Again,
    /// Only the kernel can watch it, and a wrapper inside cannot tell the kernel what it hands out: it is not to be
    /// watched.
    Unreported,
    /// The command changes these files in place, as roots and names say them: what is in them is to be noted before it
    /// runs. Kept apart from the others, under a key of its own.
    Changes(Vec<Vec<u8>>),
}

/// A look that the library does not see.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unseen {
    /// Where.
    pub path: Vec<u8>,
    /// In which way.
    pub way: Way,
}

/// In which way something was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Its content was read.
    Content,
    /// It was looked at.
    Kind,
    /// It was looked at as a link.
    Link,
    /// Its names were listed.
    Listing,
    /// It was looked for and not there.
    Absence,
    /// Looking failed otherwise, with this error.
    Error(u32),
}

impl Unseen {
    /// As if it had been seen.
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
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(FORMAT_VERSION);
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
        w.seal()
    }

    /// Read a file's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Judgement, DecodeError> {
        match bytes.first() {
            Some(&FORMAT_VERSION) => {}
            Some(&other) => return Err(DecodeError::Version(other)),
            None => return Err(DecodeError::Truncated(0)),
        }
        let mut r = Reader::sealed(bytes)?;
        r.u8()?;
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
            6 => {
                let at = r.position();
                let errno = u32::try_from(r.number()?);
                Way::Error(errno.map_err(|_| DecodeError::Limit { limit: u32::MAX.into(), at })?)
            }
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
        let plain = [Judgement::Disbelieved, Judgement::Again, Judgement::Unreported];
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
