//! ImageRecord: what lies under a key.
//!
//! ```text
//! record = u8 version, bytes key, number ms since 1970, number of paths, saved*, blob packs, blob pieces, number of files,
//!          number of their bytes, u8 (0: no trace, 1: blob trace), digest of all before
//! saved  = bytes path, blob tree
//! blob   = digest, number of bytes
//! ```
//! A record is a few hundred bytes: it is sent to every list that its image is found by. The trace says what earlier
//! jobs touched, in their order; it is no part of the image.

use crate::{Blob, DecodeError, Digest, IMAGE_KEY_BYTES_MAX, IMAGE_VERSION, ImageKey, Reader, Writer};

/// Paths of one image.
pub const SAVED_PATHS_MAX: usize = 64;
/// A path, bytes: Linux' own limit.
const PATH_BYTES_MAX: u64 = 4096;
/// A tree, a list or a trace, bytes compressed: beyond any directory that people keep.
const PART_BYTES_MAX: u64 = 1 << 32;

/// A path that was saved, and what was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPath {
    /// As it was named: relative to the working directory, `~/…`, or absolute.
    pub path: Vec<u8>,
    /// Its names with all that is known of them.
    pub tree: Blob,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// Its name.
    pub key: ImageKey,
    /// When it was saved: milliseconds since 1970.
    pub created_ms: u64,
    /// What was saved.
    pub saved: Vec<SavedPath>,
    /// Where the bytes of its files are ([`crate::PackList`]).
    pub packs: Blob,
    /// What is in the packs ([`crate::PieceList`]).
    pub pieces: Blob,
    /// Files in it.
    pub files: u64,
    /// Their sizes together, bytes.
    pub size_bytes: u64,
    /// What was touched by earlier jobs, in their order.
    pub trace: Option<Blob>,
}

impl ImageRecord {
    /// What the image is, whatever it is called and whenever it was saved.
    pub fn image(&self) -> Digest {
        let mut w = Writer::default();
        for saved in &self.saved {
            w.bytes(&saved.path);
            w.digest(&saved.tree.digest);
        }
        w.digest(&self.packs.digest);
        Digest::of(&w.bytes)
    }

    /// The blobs that it names; the packs are named by one of them.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> + '_ {
        let trees = self.saved.iter().map(|saved| saved.tree);
        trees.chain([self.packs, self.pieces]).chain(self.trace)
    }

    /// Those of them without which nothing can be restored or mounted.
    pub fn needed(&self) -> impl Iterator<Item = Blob> + '_ {
        self.saved.iter().map(|saved| saved.tree).chain([self.packs])
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(IMAGE_VERSION);
        w.bytes(self.key.text().as_bytes());
        w.number(self.created_ms);
        w.number(self.saved.len() as u64);
        for saved in &self.saved {
            w.bytes(&saved.path);
            blob(&mut w, &saved.tree);
        }
        blob(&mut w, &self.packs);
        blob(&mut w, &self.pieces);
        w.number(self.files);
        w.number(self.size_bytes);
        w.u8(self.trace.is_some().into());
        if let Some(trace) = &self.trace {
            blob(&mut w, trace);
        }
        w.seal()
    }

    /// Read a file's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes.first() {
            Some(&IMAGE_VERSION) => {}
            Some(&other) => return Err(DecodeError::Version(other)),
            None => return Err(DecodeError::Truncated(0)),
        }
        let mut r = Reader::sealed(bytes)?;
        r.u8()?;
        let at = r.position();
        let key = std::str::from_utf8(r.bytes(IMAGE_KEY_BYTES_MAX as u64)?).ok().and_then(|text| text.parse().ok());
        let key = key.ok_or(DecodeError::Limit { limit: IMAGE_KEY_BYTES_MAX as u64, at })?;
        let created_ms = r.number()?;
        let at = r.position();
        let count = r.count()?;
        if count > SAVED_PATHS_MAX {
            return Err(DecodeError::Limit { limit: SAVED_PATHS_MAX as u64, at });
        }
        let saved = |r: &mut Reader<'_>| Ok(SavedPath { path: r.bytes(PATH_BYTES_MAX)?.to_vec(), tree: read_blob(r)? });
        let saved = (0..count).map(|_| saved(&mut r)).collect::<Result<_, DecodeError>>()?;
        let (packs, pieces) = (read_blob(&mut r)?, read_blob(&mut r)?);
        let (files, size_bytes) = (r.number()?, r.number()?);
        let trace = if r.flag()? { Some(read_blob(&mut r)?) } else { None };
        r.finish()?;
        Ok(ImageRecord { key, created_ms, saved, packs, pieces, files, size_bytes, trace })
    }
}

fn blob(w: &mut Writer, blob: &Blob) {
    w.digest(&blob.digest);
    w.number(blob.size_bytes);
}

fn read_blob(r: &mut Reader<'_>) -> Result<Blob, DecodeError> {
    let digest = r.digest()?;
    let at = r.position();
    let size_bytes = r.number()?;
    if size_bytes > PART_BYTES_MAX {
        return Err(DecodeError::Limit { limit: PART_BYTES_MAX, at });
    }
    Ok(Blob { digest, size_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_never_damaged() {
        let blob = |n: u8| Blob { digest: Digest([n; 32]), size_bytes: n.into() };
        let record = ImageRecord {
            key: "deps-1".parse().expect("a key"),
            created_ms: 1 << 40,
            saved: vec![SavedPath { path: b"node_modules".to_vec(), tree: blob(1) }],
            packs: blob(2),
            pieces: blob(3),
            files: 4,
            size_bytes: 5,
            trace: Some(blob(6)),
        };
        let bytes = record.encode();
        assert_eq!(ImageRecord::decode(&bytes), Ok(record.clone()));
        assert_eq!(record.blobs().count(), 4);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(ImageRecord::decode(&damaged).is_err(), "byte {at}");
            assert!(ImageRecord::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let traced = ImageRecord { trace: None, created_ms: 0, ..record.clone() };
        assert_eq!(record.image(), traced.image());
        let other = ImageRecord { packs: blob(9), ..record.clone() };
        assert_ne!(record.image(), other.image());
    }
}
