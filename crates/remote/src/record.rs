//! Records: the entries of a manifest as they lie on a remote, each by itself, and the list by which they are found.
//!
//! ```text
//! list   = u8 format version, digest weak fingerprint, number of items, item*, digest
//! item   = digest strong fingerprint, digest of the record, number of its bytes, u8 (0: it is a blob of that digest, 1: bytes)
//! record = bytes manifest of one entry, u8 (0: nobody signed, 1: 32 bytes public key, 64 bytes signature)
//! ```
//! The manifest has no field of the walk that made its fingerprint, and nothing of what binds its entry but what is
//! compared: both hold arguments and variables. An image's record is the same with the bytes of its ImageRecord, and the digest of its key for the strong
//! fingerprint; it is in the list of its key and in those of prefixes of it. A record never changes. The list grows:
//! the newest come first, the first of them stand in it, up to a limit.

use crate::sign::{Domain, Keys, SIGNATURE_BYTES};
use bytes::Bytes;
use larder_model::{
    Bound, DecodeError, Digest, Entry, IMAGE_VERSION, ImageRecord, MANIFEST_ENTRIES_MAX, Manifest, NotSingle, Origin,
    Reader, Single, Writer,
};

/// The version of these formats; that of the entries is in the names of objects.
pub(crate) const RECORD_FORMAT: u8 = 1;
/// Records that stand in their list, bytes of all together: one request less for most, and a list stays small.
const INLINE_BYTES_MAX: usize = 96 << 10;
/// A record, bytes: the entry's own limit and its fields.
pub(crate) const RECORD_BYTES_MAX: u64 = 96 << 20;

/// An item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) strong: Digest,
    /// Of the record's bytes; also its name where it is a blob.
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    /// Its bytes, where they are here.
    pub(crate) bytes: Option<Bytes>,
}

/// The records of one weak fingerprint, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) items: Vec<Item>,
}

/// Why a record is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// Its bytes are not those of its digest, or not in their form.
    Damaged,
    /// It is the record of another fingerprint, or of another set of observations than it says.
    Foreign,
    /// Nobody whom we believe signed it.
    Unsigned,
    /// It is of a run that failed, and nobody whom we believe signed it.
    Failed,
}

impl Item {
    /// The record of an entry; signed, where we sign, only if it was recorded with our store. `None` if nobody is to have
    /// it: a failed run that is not signed, since others would not believe it, and what was fetched, where signatures
    /// count, since whoever made it has signed it.
    pub(crate) fn of(weak: &Digest, entry: &Entry<'_>, exit_code: u8, keys: &Keys) -> Option<Item> {
        let is_own = entry.origin == Origin::Own;
        let is_signed = is_own && keys.can_sign();
        if (exit_code != 0 && !is_signed) || (matches!(entry.origin, Origin::Fetched(_)) && keys.are_required()) {
            return None;
        }
        let mut entry = entry.clone();
        entry.origin = Origin::Own;
        // Of other bounds it is said for people only: it may be an argument or a variable's value.
        if !matches!(entry.bound, Some(Bound::AsLong | Bound::Chance)) {
            entry.bound_by = &[];
        }
        let strong = entry.strong;
        let single = Manifest { weak: *weak, fields: Vec::new(), entries: vec![entry] };
        Some(Item::sealed(strong, &single.encode(), Domain::Action, is_own.then_some(keys)))
    }

    /// The record of an image.
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

    /// Its bytes without the signature, and who signed, if that is somebody who is believed.
    fn unsealed(&self, domain: Domain, keys: &Keys) -> Result<(Bytes, Option<Digest>), Dropped> {
        let bytes = self.bytes.as_ref().ok_or(Dropped::Damaged)?;
        if Digest::of(bytes) != self.digest {
            return Err(Dropped::Damaged);
        }
        unsealed(bytes, domain, keys)
    }

    /// Whether somebody signed it, whoever that is; `None` where that cannot be told.
    fn is_signed(&self) -> Option<bool> {
        let mut r = Reader::new(self.bytes.as_ref()?);
        r.bytes(RECORD_BYTES_MAX).ok()?;
        Some(r.u8().ok()? != 0)
    }

    /// The image and who signed it, where it is believed.
    pub(crate) fn believed_image(&self, keys: &Keys) -> Result<(ImageRecord, Option<Digest>), Dropped> {
        let (encoded, signer) = self.unsealed(Domain::Image, keys)?;
        let record = ImageRecord::decode(&encoded).map_err(|_| Dropped::Damaged)?;
        if record.key.digest() == self.strong { Ok((record, signer)) } else { Err(Dropped::Foreign) }
    }

    /// When the image was saved; none where it is none, or not here.
    fn saved_ms(&self) -> Option<u64> {
        let encoded = Reader::new(self.bytes.as_ref()?).bytes(RECORD_BYTES_MAX).ok()?;
        encoded.starts_with(&[IMAGE_VERSION]).then_some(())?;
        let record = ImageRecord::decode(encoded).ok()?;
        (record.key.digest() == self.strong).then_some(record.created_ms)
    }

    /// The bytes of its manifest, where it is believed; see [`Dropped`]. Its entry says who signed it.
    pub(crate) fn believed(&self, weak: &Digest, keys: &Keys) -> Result<Bytes, Dropped> {
        let (encoded, signer) = self.unsealed(Domain::Action, keys)?;
        fetched(&encoded, signer, weak, &self.strong)
    }
}

/// A record's bytes without the signature, and who signed, if that is somebody who is believed.
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

/// The bytes of a record's manifest as they are in a store, where it is believed to be that of these fingerprints: the
/// entry says that it was fetched, and who signed it, whatever it said itself.
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

/// What a record says, where it is believed to be that of these fingerprints; see [`Dropped`].
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
    /// Read a list; one that is damaged or of another fingerprint holds nothing to be believed.
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

    /// Its bytes, and the records that do not stand in it and are here: they must be stored before it.
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
                    // Older ones do not stand in it either: what is read first is what is newest.
                    room = 0;
                    w.u8(0);
                    apart.extend(here.is_some().then_some(item));
                }
            }
        }
        (w.seal().into(), apart)
    }

    /// Put `new` first and `other` last, each strong fingerprint once: `new` over what is here, and that over `other`.
    /// What is signed takes the place of what is not, and never the reverse, also of an older image. Of two images of a
    /// key that are both signed, or both not, the one that was saved last stays. The oldest beyond the limit go.
    pub(crate) fn merge(&mut self, new: &[Item], other: &List) {
        let old = std::mem::take(&mut self.items);
        for item in new.iter().chain(&old).chain(&other.items) {
            match self.items.iter_mut().find(|known| known.strong == item.strong) {
                None => self.items.push(item.clone()),
                Some(known) if known.bytes.is_none() && known.digest == item.digest => known.bytes = item.bytes.clone(),
                Some(known) => {
                    // Whoever was held up, or says again what jobs touch, does not bring back an older image.
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

    /// Whether some of another list are not in it, though there is room for them.
    pub(crate) fn lacks(&self, other: &List) -> bool {
        self.items.len() < MANIFEST_ENTRIES_MAX && !self.has_all(&other.items)
    }

    /// Whether all these are in it.
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

    /// Whichever comes first, and whichever was there: a signed image stays over a later one that nobody signed.
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

    /// The signature of an image's record is none for a command's, and the reverse.
    #[test]
    fn signatures_of_the_two_kinds_are_not_exchanged() {
        let keys = Keys::default().sign_with(&"11".repeat(32)).expect("a key");
        let item = image(1, &keys);
        assert!(item.believed_image(&keys).is_ok());
        assert_eq!(item.unsealed(Domain::Action, &keys), Err(Dropped::Unsigned));
    }
}
