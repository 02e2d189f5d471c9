//! Bundles: many records with their blobs in one object, so that a build is fetched in a few
//! requests.
//!
//! ```text
//! bundle  = u8 format version, u8 (0: as it is, 1: Zstandard), content
//! content = number of records, record*, number of blobs, bytes*
//! record  = digest weak fingerprint, digest strong fingerprint, bytes record (record.rs)
//! ```
//! A bundle is a blob: it never changes, and its digest is verified like that of any blob. The
//! blobs in it carry no digests; the reader computes them. Its records are checked like those of a
//! list.
//!
//! Unaware of: which records are bundled, and when.

use std::collections::HashSet;

use bytes::Bytes;
use larder_model::{DecodeError, Digest, Manifest, Origin, Reader, Single, Writer};

use crate::record::{Dropped, Item, fetched, unsealed};
use crate::sign::{Domain, Keys};

/// The most bytes of records and blobs that are packed into one bundle, before compression. Writer
/// and reader both hold a bundle in memory as a whole.
pub(crate) const PACKED_AT_ONCE_BYTES: u64 = 2 << 20;
/// The most records in one bundle.
pub(crate) const RECORDS_MAX: usize = 16_384;
/// The most blobs in one bundle.
const BLOBS_MAX: usize = 4 * RECORDS_MAX;

/// A record with every blob that it names.
#[derive(Clone, Debug)]
pub struct Whole {
    /// A manifest with one entry.
    pub manifest: Vec<u8>,
    /// The blobs, each of them once.
    pub blobs: Vec<Bytes>,
}

/// A record in the form that is packed into a bundle.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) weak: Digest,
    pub(crate) item: Item,
    pub(crate) blobs: Vec<Bytes>,
}

/// The content of a bundle.
#[derive(Clone, Debug, Default)]
pub struct Unpacked {
    /// The records. They are not verified yet: see [`Unpacked::believed`].
    records: Vec<Packed>,
    /// The blobs with their digests, which were computed from the bytes.
    pub blobs: Vec<(Digest, Bytes)>,
}

/// A record as it is encoded in a bundle, with the fingerprints that the bundle claims for it.
#[derive(Clone, Debug)]
struct Packed {
    weak: Digest,
    strong: Digest,
    record: Bytes,
}

impl Unpacked {
    /// Verifies the records whose weak fingerprint `is_wanted`. Calls `take` for each trusted
    /// record, with the bytes of its manifest. Returns why each of the others was rejected.
    pub(crate) fn believed(
        &self,
        keys: &Keys,
        is_wanted: impl Fn(&Digest) -> bool,
        mut take: impl FnMut(&Bytes, &Single<'_>),
    ) -> Vec<Dropped> {
        let look = |one: &Packed| {
            let (encoded, signer) = unsealed(&one.record, Domain::Action, keys)?;
            let manifest = fetched(&encoded, signer, &one.weak, &one.strong)?;
            take(&manifest, &Single::open(&manifest).map_err(|_| Dropped::Damaged)?);
            Ok(())
        };
        let wanted = self.records.iter().filter(|one| is_wanted(&one.weak));
        wanted.map(look).filter_map(Result::err).collect()
    }
}

impl Piece {
    /// Returns the record for a bundle. Returns `None` if it must not be published (see
    /// [`Item::of`]), or if it was handed over by a sandbox; such a record is published only by
    /// itself.
    pub(crate) fn of(whole: Whole, keys: &Keys) -> Option<Piece> {
        let manifest = Manifest::decode(&whole.manifest).ok()?;
        let [entry] = manifest.entries.as_slice() else { return None };
        if entry.origin == Origin::HandedOver {
            return None;
        }
        let (_, result) = entry.open().ok()?;
        let item = Item::of(&manifest.weak, entry, result.exit_code, keys)?;
        let weak = manifest.weak;
        Some(Piece { weak, item, blobs: whole.blobs })
    }

    /// Returns how many bytes it adds to a bundle, before compression.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.item.size + self.blobs.iter().map(|blob| blob.len() as u64).sum::<u64>()
    }
}

/// Encodes a bundle. A blob that several records name is in it once.
pub(crate) fn pack(pieces: &[Piece]) -> Bytes {
    let mut w = Writer::default();
    w.number(pieces.len() as u64);
    for Piece { weak, item, .. } in pieces {
        w.digest(weak);
        w.digest(&item.strong);
        w.bytes(item.bytes.as_deref().unwrap_or_default());
    }
    let mut seen = HashSet::new();
    let blobs: Vec<&Bytes> = pieces.iter().flat_map(|piece| &piece.blobs).filter(|blob| seen.insert(*blob)).collect();
    w.number(blobs.len() as u64);
    blobs.into_iter().for_each(|blob| w.bytes(blob));
    compression::pack(&w.bytes).into()
}

/// Decodes a bundle. The records are verified later, one by one: a caller that waits for the first
/// record need not wait for the last.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Unpacked, DecodeError> {
    let content: Bytes = compression::unpack(bytes)?.into();
    let mut r = Reader::new(&content);
    let mut unpacked = Unpacked::default();
    for _ in 0..limited(r.count()?, RECORDS_MAX)? {
        let (weak, strong) = (r.digest()?, r.digest()?);
        let record = content.slice_ref(r.bytes(compression::CONTENT_BYTES_MAX as u64)?);
        unpacked.records.push(Packed { weak, strong, record });
    }
    for _ in 0..limited(r.count()?, BLOBS_MAX)? {
        let blob = content.slice_ref(r.bytes(compression::CONTENT_BYTES_MAX as u64)?);
        unpacked.blobs.push((Digest::of(&blob), blob));
    }
    r.finish()?;
    Ok(unpacked)
}

/// Returns `count`, or an error if it is more than `most`.
pub(crate) fn limited(count: usize, most: usize) -> Result<usize, DecodeError> {
    if count > most { Err(DecodeError::Damaged) } else { Ok(count) }
}

/// The two header bytes of a bundle, and compression.
pub(crate) mod compression {
    use larder_model::DecodeError;

    /// The version of this format.
    pub(crate) const BUNDLE_FORMAT: u8 = 1;
    /// The most bytes that a bundle may unpack to. A bundle that claims more is rejected.
    pub(super) const CONTENT_BYTES_MAX: usize = 8 << 20;
    const PLAIN: u8 = 0;
    const ZSTD: u8 = 1;

    pub(crate) fn pack(content: &[u8]) -> Vec<u8> {
        let (how, packed) = match zstd(content) {
            Some(packed) => (ZSTD, packed),
            None => (PLAIN, content.to_vec()),
        };
        [&[BUNDLE_FORMAT, how][..], &packed].concat()
    }

    pub(crate) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        match bytes {
            [BUNDLE_FORMAT, PLAIN, content @ ..] if content.len() <= CONTENT_BYTES_MAX => Ok(content.to_vec()),
            [BUNDLE_FORMAT, ZSTD, packed @ ..] => unzstd(packed).ok_or(DecodeError::Damaged),
            [version, ..] => Err(DecodeError::Version(*version)),
            [] => Err(DecodeError::Truncated(0)),
        }
    }

    /// Compresses at level 1, because the network is slower than that.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn zstd(content: &[u8]) -> Option<Vec<u8>> {
        zstd::bulk::compress(content, 1).ok()
    }

    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn unzstd(packed: &[u8]) -> Option<Vec<u8>> {
        let said = zstd::zstd_safe::get_frame_content_size(packed).ok()??;
        let room = usize::try_from(said).ok().filter(|size| *size <= CONTENT_BYTES_MAX)?;
        zstd::bulk::decompress(packed, room).ok()
    }

    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn zstd(_: &[u8]) -> Option<Vec<u8>> {
        None
    }

    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn unzstd(_: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_these() {
        let weak = Digest([1; 32]);
        let item = Item { strong: Digest([2; 32]), digest: Digest([3; 32]), size: 3, bytes: Some(Bytes::from("abc")) };
        let piece = Piece { weak, item, blobs: vec![Bytes::from("blob"), Bytes::from("blob")] };
        let packed = pack(&[piece]);
        let content = compression::unpack(&packed).expect("the bundle was packed here");
        let expected = [&[1][..], &[1; 32], &[2; 32], b"\x03abc", b"\x01", b"\x04blob"].concat();
        assert_eq!(content, expected, "the bundle has a repeated blob once");
        let unpacked = unpack(&packed).expect("the bundle is well-formed");
        assert_eq!(unpacked.blobs, [(Digest::of(b"blob"), Bytes::from("blob"))]);
        let believed =
            |is_wanted| unpacked.believed(&Keys::default(), |_| is_wanted, |_, _| panic!("the record is malformed"));
        assert_eq!((unpacked.records.len(), believed(true).len()), (1, 1));
        assert!(believed(false).is_empty(), "an unwanted record is not verified");
    }

    #[test]
    fn what_is_damaged_is_nothing() {
        let packed = pack(&[]);
        assert!(unpack(&packed).is_ok());
        for bytes in [&b""[..], b"\x01", b"\x02\x00", b"\x01\x02", b"\x01\x00", b"\x01\x01xyz", b"\x01\x00\xff\xff\x7f"]
        {
            assert!(unpack(bytes).is_err(), "{bytes:?}");
        }
        let mut long = packed.to_vec();
        long.push(0);
        assert!(unpack(&long).is_err());
    }

    /// The reader never allocates more than the limit, whatever a bundle claims.
    #[test]
    fn one_that_unpacks_to_too_much() {
        let much = compression::pack(&vec![0; compression::CONTENT_BYTES_MAX + 1]);
        assert!(compression::unpack(&much).is_err());
    }
}
