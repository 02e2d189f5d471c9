//! Records: the entries of a manifest as they are stored on a remote, one by one, and the lists of
//! them.
//!
//! ```text
//! list   = u8 format version, digest weak fingerprint, number of items, item*, digest
//! item   = digest strong fingerprint, digest of the record, number of its bytes,
//!          u8 (0: it is a blob of that digest, 1: bytes)
//! record = bytes manifest of one entry,
//!          u8 (0: unsigned, 1: 32 bytes public key, 64 bytes signature)
//! ```
//! A record never changes. Its manifest has no fields that describe the fingerprint. The text that
//! says why a result is bound to one place (`bound_by`) is left out unless it is compared. Both may
//! contain arguments and values of variables.
//!
//! A list grows. The newest items are first. The records of the first items are in the list itself,
//! up to a limit; the others are blobs.
//!
//! An image's record has this format, too. Instead of a manifest it holds an `ImageRecord`; instead
//! of the strong fingerprint an item has the digest of the image's key. It is an item of the list
//! of its key, and of the lists of prefixes of its key.
//!
//! Unaware of: how anything is sent.

use crate::sign::{Domain, Keys, SIGNATURE_BYTES};
use bytes::Bytes;
use larder_model::{
    Bound, DecodeError, Digest, Entry, IMAGE_VERSION, ImageRecord, MANIFEST_ENTRIES_MAX, Manifest, NotSingle, Origin,
    Reader, Single, Writer,
};

/// The version of these formats. The version of the entries' format is in the names of objects.
pub(crate) const RECORD_FORMAT: u8 = 1;
/// The most bytes of records in their list. Most lookups then need a single request, and lists stay
/// small.
const INLINE_BYTES_MAX: usize = 96 << 10;
/// The most bytes of a record: the limit of an entry, and its fields.
pub(crate) const RECORD_BYTES_MAX: u64 = 96 << 20;

/// An item of a list: a record, or the name of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) strong: Digest,
    /// The digest of the record's bytes. It names the blob if the record is one.
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// The record's bytes, if they are in the list or were fetched.
    pub(crate) bytes: Option<Bytes>,
}

/// The records of one weak fingerprint, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) items: Vec<Item>,
}

/// Why a record is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// Its bytes do not have the digest that the list says, or are malformed.
    Damaged,
    /// It belongs to another fingerprint, or its strong fingerprint does not match its
    /// observations.
    Foreign,
    /// Signatures are required, and no trusted key signed it.
    Unsigned,
    /// Its run failed, and no trusted key signed it.
    Failed,
}

impl Item {
    /// Returns the record of an entry. It is signed if we have a key and the entry was recorded
    /// with our own store.
    ///
    /// Returns `None` if the record must not be published:
    ///
    /// - The run failed and the record would not be signed, because no client would trust it.
    /// - The entry was fetched and signatures are required, because its maker has published it
    ///   signed.
    pub(crate) fn of(weak: &Digest, entry: &Entry<'_>, exit_code: u8, keys: &Keys) -> Option<Item> {
        let is_own = entry.origin == Origin::Own;
        let is_signed = is_own && keys.can_sign();
        if (exit_code != 0 && !is_signed) || (matches!(entry.origin, Origin::Fetched(_)) && keys.are_required()) {
            return None;
        }
        let mut entry = entry.clone();
        entry.origin = Origin::Own;
        // For other limits this text is only shown to people. It may be an argument or a variable's
        // value.
        if !matches!(entry.bound, Some(Bound::AsLong | Bound::AsNamed | Bound::Chance)) {
            entry.bound_by = &[];
        }
        let strong = entry.strong;
        let single = Manifest { weak: *weak, fields: Vec::new(), entries: vec![entry] };
        Some(Item::sealed(strong, &single.encode(), Domain::Action, is_own.then_some(keys)))
    }

    /// Returns the record of an image.
    pub(crate) fn of_image(record: &ImageRecord, keys: &Keys) -> Item {
        Item::sealed(record.key.digest(), &record.encode(), Domain::Image, Some(keys))
    }

    fn sealed(strong: Digest, encoded: &[u8], domain: Domain, keys: Option<&Keys>) -> Item {
        let mut w = Writer::default();
        w.bytes(encoded);
        match keys.and_then(|keys| keys.sign(domain, encoded)) {
            None => w.u8(0),
            Some(signature) => {
                w.u8(1);
                w.bytes.extend_from_slice(&signature);
            }
        }
        let digest = Digest::of(&w.bytes);
        Item { strong, digest, size: w.bytes.len() as u64, bytes: Some(w.bytes.into()) }
    }

    /// Returns the bytes without the signature, and the key that signed them, if it is trusted.
    fn unsealed(&self, domain: Domain, keys: &Keys) -> Result<(Bytes, Option<Digest>), Dropped> {
        let bytes = self.bytes.as_ref().ok_or(Dropped::Damaged)?;
        if Digest::of(bytes) != self.digest {
            return Err(Dropped::Damaged);
        }
        unsealed(bytes, domain, keys)
    }

    /// Returns whether it carries a signature, of any key. Returns `None` if the bytes are not
    /// here.
    fn is_signed(&self) -> Option<bool> {
        let mut r = Reader::new(self.bytes.as_ref()?);
        r.bytes(RECORD_BYTES_MAX).ok()?;
        Some(r.u8().ok()? != 0)
    }

    /// Returns the image and its signer, or why the record is rejected.
    pub(crate) fn believed_image(&self, keys: &Keys) -> Result<(ImageRecord, Option<Digest>), Dropped> {
        let (encoded, signer) = self.unsealed(Domain::Image, keys)?;
        let record = ImageRecord::decode(&encoded).map_err(|_| Dropped::Damaged)?;
        if record.key.digest() == self.strong { Ok((record, signer)) } else { Err(Dropped::Foreign) }
    }

    /// Returns when the image was saved, in ms since the epoch. Returns `None` if this is not an
    /// image or the bytes are not here.
    fn saved_ms(&self) -> Option<u64> {
        let encoded = Reader::new(self.bytes.as_ref()?).bytes(RECORD_BYTES_MAX).ok()?;
        encoded.starts_with(&[IMAGE_VERSION]).then_some(())?;
        let record = ImageRecord::decode(encoded).ok()?;
        (record.key.digest() == self.strong).then_some(record.created_ms)
    }

    /// Returns the bytes of its manifest, or why the record is rejected. The entry in it names the
    /// signer.
    pub(crate) fn believed(&self, weak: &Digest, keys: &Keys) -> Result<Bytes, Dropped> {
        let (encoded, signer) = self.unsealed(Domain::Action, keys)?;
        fetched(&encoded, signer, weak, &self.strong)
    }
}

/// Returns a record's bytes without the signature, and the key that signed them, if it is trusted.
pub(crate) fn unsealed(record: &Bytes, domain: Domain, keys: &Keys) -> Result<(Bytes, Option<Digest>), Dropped> {
    let mut r = Reader::new(record);
    let parsed = || -> Result<(&[u8], Option<&[u8]>), DecodeError> {
        let encoded = r.bytes(RECORD_BYTES_MAX)?;
        let signature = match r.u8()? {
            0 => None,
            _ => Some(r.take(SIGNATURE_BYTES)?),
        };
        r.finish()?;
        Ok((encoded, signature))
    };
    let (encoded, signature) = parsed().map_err(|_| Dropped::Damaged)?;
    let signer = signature.and_then(|signature| keys.signer(domain, encoded, signature));
    if keys.are_required() && signer.is_none() {
        return Err(Dropped::Unsigned);
    }
    Ok((record.slice_ref(encoded), signer))
}

/// Verifies a record and returns its manifest as the local store keeps it. The entry in it is
/// marked as fetched, with its signer, whatever origin the record itself claims.
pub(crate) fn fetched(
    encoded: &[u8],
    signer: Option<Digest>,
    weak: &Digest,
    strong: &Digest,
) -> Result<Bytes, Dropped> {
    let single = judged(encoded, signer.is_some(), weak, strong)?;
    let mut entry = single.entry().clone();
    entry.origin = Origin::Fetched(signer);
    Ok(Manifest { weak: *weak, fields: Vec::new(), entries: vec![entry] }.encode().into())
}

/// Parses a record and verifies that it belongs to these fingerprints.
fn judged<'a>(encoded: &'a [u8], signed: bool, weak: &Digest, strong: &Digest) -> Result<Single<'a>, Dropped> {
    let single = Single::open_bound(encoded).map_err(|why| match why {
        NotSingle::NotBound => Dropped::Foreign,
        NotSingle::Malformed(_) | NotSingle::Entries(_) => Dropped::Damaged,
    })?;
    if single.manifest().weak != *weak || single.entry().strong != *strong {
        return Err(Dropped::Foreign);
    }
    if single.result().exit_code != 0 && !signed {
        return Err(Dropped::Failed);
    }
    Ok(single)
}

impl List {
    /// Decodes a list. Fails if it is damaged, or belongs to another fingerprint than `weak`.
    pub(crate) fn decode(weak: &Digest, bytes: &Bytes) -> Result<List, Dropped> {
        let damaged = |_: DecodeError| Dropped::Damaged;
        let mut r = Reader::sealed(bytes).map_err(damaged)?;
        if r.u8().map_err(damaged)? != RECORD_FORMAT {
            return Err(Dropped::Damaged);
        }
        if r.digest().map_err(damaged)? != *weak {
            return Err(Dropped::Foreign);
        }
        let count = r.count().map_err(damaged)?;
        if count > MANIFEST_ENTRIES_MAX {
            return Err(Dropped::Damaged);
        }
        let mut item = || -> Result<Item, DecodeError> {
            let (strong, digest, size) = (r.digest()?, r.digest()?, r.number()?);
            let here = match r.u8()? {
                0 => None,
                _ => Some(bytes.slice_ref(r.bytes(INLINE_BYTES_MAX as u64)?)),
            };
            Ok(Item { strong, digest, size, bytes: here })
        };
        let items: Vec<Item> = (0..count).map(|_| item()).collect::<Result<_, _>>().map_err(damaged)?;
        r.finish().map_err(damaged)?;
        Ok(List { items })
    }

    /// Encodes the list. Also returns the items whose records are here but did not fit: they must
    /// be stored as blobs before the list.
    pub(crate) fn encode(&self, weak: &Digest) -> (Bytes, Vec<&Item>) {
        let mut w = Writer::default();
        let mut apart = Vec::new();
        let mut room = INLINE_BYTES_MAX;
        w.u8(RECORD_FORMAT);
        w.digest(weak);
        w.number(self.items.len() as u64);
        for item in &self.items {
            w.digest(&item.strong);
            w.digest(&item.digest);
            w.number(item.size);
            match &item.bytes {
                Some(bytes) if bytes.len() <= room => {
                    room -= bytes.len();
                    w.u8(1);
                    w.bytes(bytes);
                }
                here => {
                    // Older ones are not in the list either, so that a reader gets the newest
                    // first.
                    room = 0;
                    w.u8(0);
                    apart.extend(here.is_some().then_some(item));
                }
            }
        }
        (w.seal().into(), apart)
    }

    /// Adds `new` at the front and `other` at the end, and keeps one item for each strong
    /// fingerprint.
    ///
    /// If two items have one fingerprint, a signed one replaces an unsigned one, and never the
    /// reverse. If both are signed or neither is, the image that was saved later wins. Otherwise
    /// the first one stays, in the order `new`, `self`, `other`. The oldest items beyond
    /// [`MANIFEST_ENTRIES_MAX`] are dropped.
    pub(crate) fn merge(&mut self, new: &[Item], other: &List) {
        let old = std::mem::take(&mut self.items);
        for item in new.iter().chain(&old).chain(&other.items) {
            match self.items.iter_mut().find(|known| known.strong == item.strong) {
                None => self.items.push(item.clone()),
                Some(known) if known.bytes.is_none() && known.digest == item.digest => known.bytes = item.bytes.clone(),
                Some(known) => {
                    // A delayed writer, or one that adds a trace, does not bring back an older
                    // image.
                    let is_later = || known.saved_ms().zip(item.saved_ms()).is_some_and(|(known, other)| other > known);
                    let takes_over = match (known.is_signed(), item.is_signed()) {
                        (Some(false), Some(true)) => true,
                        (Some(true), Some(false)) => false,
                        _ => is_later(),
                    };
                    if takes_over {
                        *known = item.clone();
                    }
                }
            }
        }
        self.items.truncate(MANIFEST_ENTRIES_MAX);
    }

    /// Returns true if an item of `other` is missing here although there is room for it.
    pub(crate) fn lacks(&self, other: &List) -> bool {
        self.items.len() < MANIFEST_ENTRIES_MAX && !self.has_all(&other.items)
    }

    /// Returns true if all these items are in the list.
    pub(crate) fn has_all(&self, new: &[Item]) -> bool {
        new.iter().all(|item| self.items.iter().any(|known| known.strong == item.strong))
    }
}

#[cfg(test)]
mod tests {
    use larder_model::Blob;

    use super::*;

    fn image(created_ms: u64, keys: &Keys) -> Item {
        let blob = Blob { digest: Digest([1; 32]), size_bytes: 1 };
        let record = ImageRecord {
            key: "deps-1".parse().expect("a key"),
            created_ms,
            saved: Vec::new(),
            packs: blob,
            pieces: blob,
            files: 0,
            size_bytes: 0,
            trace: None,
        };
        Item::of_image(&record, keys)
    }

    /// A signed image stays even if a later unsigned one arrives, in whatever order they are
    /// merged.
    #[test]
    fn nobody_takes_the_place_of_a_signed_image() {
        let keys = Keys::default().sign_with(&"11".repeat(32)).expect("a key");
        let (signed, unsigned) = (image(1, &keys), image(2, &Keys::default()));
        let later = image(3, &keys);
        for (new, old, other, stays) in [
            (&unsigned, &signed, &signed, &signed),
            (&signed, &unsigned, &unsigned, &signed),
            (&unsigned, &unsigned, &signed, &signed),
            (&signed, &later, &unsigned, &later),
            (&later, &signed, &unsigned, &later),
        ] {
            let mut list = List { items: vec![old.clone()] };
            list.merge(std::slice::from_ref(new), &List { items: vec![other.clone()] });
            assert_eq!(list.items, std::slice::from_ref(stays));
        }
    }

    /// A signature of an image's record is not valid for an action's record.
    #[test]
    fn signatures_of_the_two_kinds_are_not_exchanged() {
        let keys = Keys::default().sign_with(&"11".repeat(32)).expect("a key");
        let item = image(1, &keys);
        assert!(item.believed_image(&keys).is_ok());
        assert_eq!(item.unsealed(Domain::Action, &keys), Err(Dropped::Unsigned));
    }
}
