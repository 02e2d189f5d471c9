//! The parcel: what a wrapper that cannot write to the store hands over to `larderd`, and its
//! encoding.
//!
//! ```text
//! parcel    = u8 format version, outcome, number of judgements, judgement*,
//!             u8 1 if a record follows and else 0, [record], digest
//! outcome   = u8 1 hit · 2 miss that is recorded · 3 miss, number reason · 4 bypass, number reason
//!             · 5 fallback, number cause
//! judgement = digest key, bytes judgement
//! record    = bytes manifest, digest subject, number of blobs, blob*
//! blob      = digest, number bytes
//! ```
//!
//! The manifest has the store's format and exactly one entry, which is the new one. The files of
//! its blobs are passed as descriptors, in the order of the list. A reason's number is its index in
//! `Unrecorded::ALL`, `Bypass::ALL` or `Fallback::ALL`. The digest at the end covers all bytes
//! before it.
//!
//! Unaware of: how the parcel is sent, whether its record is valid.

use larder_model::{Blob, Bypass, DecodeError, Digest, FORMAT_VERSION, Fallback, Outcome, Reader, Unrecorded, Writer};

/// The largest size of a parcel, in bytes.
pub const PARCEL_BYTES_MAX: u64 = 96 << 20;
/// The largest number of blobs in one hand-over.
pub const BLOBS_MAX: u64 = 1024;
const MANIFEST_BYTES_MAX: u64 = 80 << 20;
const JUDGEMENT_BYTES_MAX: u64 = 4 << 20;
const JUDGEMENTS_MAX: u64 = 4096;

/// The outcome of a command, and what was learned in its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel<'a> {
    /// The outcome, which `larderd` counts.
    pub outcome: Outcome,
    /// The judgements on whether programs can be observed: the key of each in the store, and its
    /// encoding.
    pub judgements: Vec<(Digest, &'a [u8])>,
    /// The record to be stored, if there is one.
    pub record: Option<Handed<'a>>,
}

/// A record that is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed<'a> {
    /// The encoding of a manifest with one entry.
    pub manifest: &'a [u8],
    /// The digest under which `larder explain` finds the record. It covers the working directory,
    /// the source or tool, and the output, but no flags.
    pub subject: Digest,
    /// The blobs that the entry needs.
    pub blobs: Vec<Blob>,
}

impl<'a> Parcel<'a> {
    /// Returns the encoding of the parcel.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(FORMAT_VERSION);
        let (tag, reason) = match self.outcome {
            Outcome::Hit => (1, None),
            Outcome::Miss(None) => (2, None),
            Outcome::Miss(Some(why)) => (3, Some(why.index())),
            Outcome::Bypass(why) => (4, Some(why.index())),
            Outcome::Fallback(cause) => (5, Some(cause.index())),
        };
        w.u8(tag);
        reason.into_iter().for_each(|index| w.number(index as u64));
        w.number(self.judgements.len() as u64);
        for (key, judgement) in &self.judgements {
            w.digest(key);
            w.bytes(judgement);
        }
        w.u8(self.record.is_some().into());
        if let Some(record) = &self.record {
            w.bytes(record.manifest);
            w.digest(&record.subject);
            w.number(record.blobs.len() as u64);
            record.blobs.iter().for_each(|blob| w.blob(blob));
        }
        w.seal()
    }

    /// Decodes a parcel. Fails if its version, its digest, a limit or the grammar is not met.
    pub fn decode(bytes: &'a [u8]) -> Result<Parcel<'a>, DecodeError> {
        let mut r = Reader::versioned_and_sealed(bytes, FORMAT_VERSION)?;
        let outcome = outcome(&mut r)?;
        let mut judgements = Vec::new();
        for _ in 0..r.count_up_to(JUDGEMENTS_MAX)? {
            judgements.push((r.digest()?, r.bytes(JUDGEMENT_BYTES_MAX)?));
        }
        let record = if r.flag()? { Some(Handed::decode(&mut r)?) } else { None };
        r.finish()?;
        Ok(Parcel { outcome, judgements, record })
    }
}

impl<'a> Handed<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Handed<'a>, DecodeError> {
        let manifest = r.bytes(MANIFEST_BYTES_MAX)?;
        let subject = r.digest()?;
        let blobs = (0..r.count_up_to(BLOBS_MAX)?).map(|_| r.blob(u64::MAX)).collect::<Result<_, _>>()?;
        Ok(Handed { manifest, subject, blobs })
    }
}

fn outcome(r: &mut Reader) -> Result<Outcome, DecodeError> {
    fn reason<R: Copy>(r: &mut Reader, all: &[R]) -> Result<R, DecodeError> {
        let at = r.position();
        let index = usize::try_from(r.number()?).ok();
        let found = index.and_then(|index| all.get(index)).copied();
        found.ok_or(DecodeError::Limit { limit: all.len() as u64 - 1, at })
    }
    Ok(match r.u8()? {
        1 => Outcome::Hit,
        2 => Outcome::Miss(None),
        3 => Outcome::Miss(Some(reason(r, Unrecorded::ALL)?)),
        4 => Outcome::Bypass(reason(r, Bypass::ALL)?),
        5 => Outcome::Fallback(reason(r, Fallback::ALL)?),
        tag => return Err(r.unknown_tag(tag)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_never_damaged() {
        let blobs = vec![Blob { digest: Digest([7; 32]), size_bytes: 5000 }];
        let record = Handed { manifest: b"manifest", subject: Digest([5; 32]), blobs };
        let outcomes = [
            Outcome::Hit,
            Outcome::Miss(None),
            Outcome::Miss(Some(Unrecorded::Clock)),
            Outcome::Bypass(Bypass::TooHard),
            Outcome::Fallback(Fallback::Verify),
        ];
        for outcome in outcomes {
            for record in [None, Some(record.clone())] {
                let parcel = Parcel { outcome, judgements: vec![(Digest([1; 32]), &b"judged"[..])], record };
                let bytes = parcel.encode();
                assert_eq!(Parcel::decode(&bytes), Ok(parcel));
                for at in 0..bytes.len() {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 0x41;
                    assert!(Parcel::decode(&damaged).is_err(), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn no_count_is_believed() {
        let sealed = |bytes: &[u8]| {
            let mut w = Writer::default();
            w.bytes.extend_from_slice(bytes);
            w.seal()
        };
        for body in [
            &[FORMAT_VERSION, 3, 200, 1][..],
            &[FORMAT_VERSION, 6],
            &[FORMAT_VERSION, 1, 200, 200, 200, 200, 1],
            &[FORMAT_VERSION, 1, 0, 2],
            &[FORMAT_VERSION, 1, 0, 1, 255, 255, 255, 255, 15],
        ] {
            assert!(Parcel::decode(&sealed(body)).is_err(), "{body:?}");
        }
    }
}
