//! ImageRecord: what is stored under a key.
//!
//! ```text
//! record = u8 version, bytes key, number ms since 1970, number of paths, saved*, blob packs,
//!          blob pieces, number of files, number of their bytes, u8 (0: no trace, 1: blob trace),
//!          digest of all before
//! saved  = bytes path, blob tree
//! blob   = digest, number of bytes
//! ```
//! A record has a few hundred bytes. A remote keeps a copy of it for each prefix of the key by which
//! the image can be found. The trace of an image says which packs earlier jobs touched, in order.
//! It is not part of the image's content.

use crate::{Blob, DecodeError, Digest, IMAGE_KEY_BYTES_MAX, IMAGE_VERSION, ImageKey, Reader, Writer};

/// The maximum number of paths in one image.
pub const SAVED_PATHS_MAX: usize = 64;
/// The maximum length of a path, in bytes. It is the limit of Linux.
const PATH_BYTES_MAX: u64 = 4096;
/// The maximum compressed size of a tree, a list or a trace, in bytes. It is larger than any real
/// directory needs.
const PART_BYTES_MAX: u64 = 1 << 32;

/// A path that was saved, and the tree that was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPath {
    /// The path as the user wrote it: relative to the working directory, `~/…`, or absolute.
    pub path: Vec<u8>,
    /// The blob of its tree: the names of all files with their metadata.
    pub tree: Blob,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    /// The key of the image.
    pub key: ImageKey,
    /// When the image was saved, in milliseconds since 1970.
    pub created_ms: u64,
    /// The saved paths with their trees.
    pub saved: Vec<SavedPath>,
    /// The blob of the list of packs ([`crate::PackList`]).
    pub packs: Blob,
    /// The blob of the list of pieces ([`crate::PieceList`]).
    pub pieces: Blob,
    /// The number of files.
    pub files: u64,
    /// The sum of the sizes of the files, in bytes.
    pub size_bytes: u64,
    /// The blob of the trace: which packs earlier jobs touched, in order.
    pub trace: Option<Blob>,
}

impl ImageRecord {
    /// Returns the digest of the image's content. It does not depend on the key or on when the
    /// image was saved.
    pub fn image(&self) -> Digest {
        let mut w = Writer::default();
        for saved in &self.saved {
            w.bytes(&saved.path);
            w.digest(&saved.tree.digest);
        }
        w.digest(&self.packs.digest);
        Digest::of(&w.bytes)
    }

    /// Returns the blobs that this record refers to. The packs themselves are not among them:
    /// `packs` refers to those.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> + '_ {
        let trees = self.saved.iter().map(|saved| saved.tree);
        trees.chain([self.packs, self.pieces]).chain(self.trace)
    }

    /// Returns the blobs without which nothing can be restored or mounted.
    pub fn needed(&self) -> impl Iterator<Item = Blob> + '_ {
        self.saved.iter().map(|saved| saved.tree).chain([self.packs])
    }

    /// Returns the encoded record.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(IMAGE_VERSION);
        w.bytes(self.key.text().as_bytes());
        w.number(self.created_ms);
        w.number(self.saved.len() as u64);
        for saved in &self.saved {
            w.bytes(&saved.path);
            w.blob(&saved.tree);
        }
        w.blob(&self.packs);
        w.blob(&self.pieces);
        w.number(self.files);
        w.number(self.size_bytes);
        w.u8(self.trace.is_some().into());
        if let Some(trace) = &self.trace {
            w.blob(trace);
        }
        w.seal()
    }

    /// Decodes a record. Returns an error for a path that [`is_saved_name`] refuses, and if one
    /// saved path is in another.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::versioned_and_sealed(bytes, IMAGE_VERSION)?;
        let at = r.position();
        let key = std::str::from_utf8(r.bytes(IMAGE_KEY_BYTES_MAX as u64)?).ok().and_then(|text| text.parse().ok());
        let key = key.ok_or(DecodeError::Limit { limit: IMAGE_KEY_BYTES_MAX as u64, at })?;
        let created_ms = r.number()?;
        let count = r.count_up_to(SAVED_PATHS_MAX as u64)?;
        let mut saved: Vec<SavedPath> = Vec::with_capacity(count);
        for _ in 0..count {
            let at = r.position();
            let path = r.bytes(PATH_BYTES_MAX)?;
            // The paths are put in place one after the other, which is impossible if one is in
            // another.
            let meets = |other: &SavedPath| is_above(&other.path, path) || is_above(path, &other.path);
            if !is_saved_name(path) || saved.iter().any(meets) {
                return Err(DecodeError::Limit { limit: 0, at });
            }
            saved.push(SavedPath { path: path.to_vec(), tree: r.blob(PART_BYTES_MAX)? });
        }
        let (packs, pieces) = (r.blob(PART_BYTES_MAX)?, r.blob(PART_BYTES_MAX)?);
        let (files, size_bytes) = (r.number()?, r.number()?);
        let trace = if r.flag()? { Some(r.blob(PART_BYTES_MAX)?) } else { None };
        r.finish()?;
        Ok(ImageRecord { key, created_ms, saved, packs, pieces, files, size_bytes, trace })
    }
}

/// Returns true if `path` has the form in which paths are saved: `.`, `/`, or components between
/// single slashes. The components may follow `/`, `~/` or any number of `../`. For example,
/// `../shared` is allowed, but `a/../../b`, `~/../x` and `/..` are not.
pub fn is_saved_name(path: &[u8]) -> bool {
    let (is_absolute, names) = match path.strip_prefix(b"/") {
        Some(names) => (true, names),
        None => (false, path),
    };
    if path.contains(&0) || matches!(path, b"~") {
        return false;
    }
    if path == b"." || path == b"/" {
        return true;
    }
    let mut may_lead_up = !is_absolute;
    names.split(|&byte| byte == b'/').all(|name| match name {
        b"" | b"." => false,
        b".." => may_lead_up,
        _ => {
            may_lead_up = false;
            true
        }
    })
}

/// Returns true if `path` is `above` or is in it.
fn is_above(above: &[u8], path: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || above == b"/")
        || (above == b"." && !matches!(path.first(), Some(b'/' | b'~')) && !path.starts_with(b".."))
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

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let record = |paths: &[&[u8]]| ImageRecord {
            key: "deps-1".parse().expect("a key"),
            created_ms: 1,
            saved: paths
                .iter()
                .map(|path| SavedPath { path: path.to_vec(), tree: Blob { digest: Digest([1; 32]), size_bytes: 1 } })
                .collect(),
            packs: Blob { digest: Digest([2; 32]), size_bytes: 2 },
            pieces: Blob { digest: Digest([3; 32]), size_bytes: 3 },
            files: 1,
            size_bytes: 1,
            trace: None,
        };
        let is_read = |paths: &[&[u8]]| ImageRecord::decode(&record(paths).encode()).is_ok();
        for path in [
            &b"."[..],
            b"a",
            b"a/b",
            b"/",
            b"/a/b",
            b"~/a",
            b"..",
            b"../a",
            b"../../a",
            b"a..b",
            b"...",
            b"~a",
            b"\xff",
        ] {
            assert!(is_read(&[path]), "{path:?}");
        }
        for path in [
            &b""[..],
            b"a/..",
            b"a/../b",
            b"/..",
            b"/../a",
            b"~",
            b"~/",
            b"~/..",
            b"~/../a",
            b"a\0b",
            b"a//b",
            b"./a",
            b"a/.",
            b"a/",
            b"//a",
        ] {
            assert!(!is_read(&[path]), "{path:?}");
        }
        for paths in [[&b"a"[..], b"a"], [b"a", b"a/b"], [b"/a/b", b"/"], [b"x/y", b"."]] {
            assert!(!is_read(&paths), "{paths:?}");
        }
        assert!(is_read(&[b"a", b"ab", b"a-b"]) && is_read(&[b".", b"~/a", b"/x", b"../y"]));
    }
}
