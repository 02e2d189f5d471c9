//! A manifest with exactly one entry, decoded once: the form in which one record is sent to a
//! remote or handed over to `larderd`.
//!
//! Unaware of: which signers are trusted, where records are stored.

use std::error::Error;
use std::fmt;

use crate::{ActionResult, DecodeError, Entry, Manifest};

/// A manifest with one entry that was decoded completely. Code that has a `Single` need not decode
/// its bytes again.
#[derive(Clone, Debug)]
pub struct Single<'a> {
    bytes: &'a [u8],
    manifest: Manifest<'a>,
    result: ActionResult<'a>,
}

/// Why bytes are not a valid single-entry manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSingle {
    /// The bytes cannot be decoded.
    Malformed(DecodeError),
    /// The manifest has this many entries instead of one.
    Entries(usize),
    /// The strong fingerprint is not that of the observations.
    NotBound,
}

impl fmt::Display for NotSingle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSingle::Malformed(error) => error.fmt(f),
            NotSingle::Entries(count) => write!(f, "it has {count} entries"),
            NotSingle::NotBound => f.write_str("its strong fingerprint does not match its observations"),
        }
    }
}

impl Error for NotSingle {}

impl From<DecodeError> for NotSingle {
    fn from(error: DecodeError) -> Self {
        NotSingle::Malformed(error)
    }
}

impl<'a> Single<'a> {
    /// Decodes a record that this machine made.
    pub fn open(bytes: &'a [u8]) -> Result<Single<'a>, NotSingle> {
        Single::of(bytes, |_, entry| Ok(entry.open()?.1))
    }

    /// Decodes a record of unknown origin, and checks its strong fingerprint: see
    /// [`Entry::open_bound_to`].
    pub fn open_bound(bytes: &'a [u8]) -> Result<Single<'a>, NotSingle> {
        Single::of(bytes, |manifest, entry| entry.open_bound_to(&manifest.weak).map_err(|_| NotSingle::NotBound))
    }

    fn of(
        bytes: &'a [u8],
        open: impl Fn(&Manifest<'a>, &Entry<'a>) -> Result<ActionResult<'a>, NotSingle>,
    ) -> Result<Single<'a>, NotSingle> {
        let manifest = Manifest::decode(bytes)?;
        let [entry] = manifest.entries.as_slice() else { return Err(NotSingle::Entries(manifest.entries.len())) };
        let result = open(&manifest, entry)?;
        Ok(Single { bytes, manifest, result })
    }

    /// The encoded manifest, as it is in a store and on a remote.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the decoded manifest.
    pub fn manifest(&self) -> &Manifest<'a> {
        &self.manifest
    }

    /// Returns the only entry of the manifest.
    pub fn entry(&self) -> &Entry<'a> {
        &self.manifest.entries[0]
    }

    /// Returns the result that the entry records.
    pub fn result(&self) -> &ActionResult<'a> {
        &self.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, Digest, ExplainWalk, Made, ObservationSet, Observer, Streams};

    #[test]
    fn it_has_one_entry_that_is_bound_to_its_fingerprint() {
        let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
        let (weak, walk) = (Digest::of(b"weak"), ExplainWalk::default());
        let made = Made { made_in: Digest([3; 32]), bound: None };
        let (set, mut body) = (ObservationSet::default(), Vec::new());
        let result = ActionResult { exit_code: 7, ..ActionResult::of(streams) };
        let entry = Entry::new(&weak, Observer::Preload, 9, &made, &set, &result, &mut body);
        let manifest = |weak, entries| Manifest { entries, ..Manifest::new(weak, &walk) }.encode();

        let bytes = manifest(weak, vec![entry.clone()]);
        for single in [Single::open(&bytes), Single::open_bound(&bytes)] {
            let single = single.expect("own bytes");
            assert_eq!((single.bytes(), single.entry(), single.result().exit_code), (&bytes[..], &entry, 7));
        }
        let mut other = entry.clone();
        other.strong = Digest([1; 32]);
        let two = manifest(weak, vec![entry.clone(), other]);
        assert_eq!(Single::open(&two).err(), Some(NotSingle::Entries(2)));
        assert_eq!(Single::open(&manifest(weak, Vec::new())).err(), Some(NotSingle::Entries(0)));
        let foreign = manifest(Digest::of(b"another"), vec![entry]);
        assert_eq!(Single::open_bound(&foreign).err(), Some(NotSingle::NotBound));
        assert!(Single::open(&foreign).is_ok(), "records of this machine are not checked");
        assert!(matches!(Single::open(&bytes[1..]), Err(NotSingle::Malformed(_))));
    }
}
