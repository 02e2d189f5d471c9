//! Records: the entries of a manifest as they lie on a remote, each by itself, and the list by which they are found.
//!
//! ```text
//! list   = u8 format version, digest weak fingerprint, number of items, item*, digest
//! item   = digest strong fingerprint, digest of the record, number of its bytes, u8 (0: it is a blob of that digest, 1: bytes)
//! record = bytes manifest of one entry, u8 (0: nobody signed, 1: 32 bytes public key, 64 bytes signature)
//! ```
//! An image's record is the same with the bytes of its ImageRecord, and the digest of its key for the strong
//! fingerprint; it is in the list of its key and in those of prefixes of it. A record never changes. The list grows:
//! the newest come first, the first of them stand in it, up to a limit.

use crate::sign::{Keys, SIGNATURE_BYTES};
use bytes::Bytes;
use larder_model::{
    DecodeError, Digest, Entry, IMAGE_VERSION, ImageRecord, MANIFEST_ENTRIES_MAX, Manifest, NotSingle, Reader, Single,
    Writer,
};

/// The version of these formats; that of the entries is in the names of objects.
const RECORD_FORMAT: u8 = 1;
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
    /// The record of an entry.
    pub(crate) fn of(manifest: &Manifest<'_>, entry: &Entry<'_>, keys: &Keys) -> Item {
        let single = Manifest { weak: manifest.weak, fields: manifest.fields.clone(), entries: vec![entry.clone()] };
        Item::sealed(entry.strong, &single.encode(), keys)
    }

    /// The record of an image.
    pub(crate) fn of_image(record: &ImageRecord, keys: &Keys) -> Item {
        Item::sealed(record.key.digest(), &record.encode(), keys)
    }

    fn sealed(strong: Digest, encoded: &[u8], keys: &Keys) -> Item {
        let mut w = Writer::default();
        w.bytes(encoded);
        match keys.sign(encoded) {
            None => w.u8(0),
            Some(signature) => {
                w.u8(1);
                w.bytes.extend_from_slice(&signature);
            }
        }
        let digest = Digest::of(&w.bytes);
        Item { strong, digest, size: w.bytes.len() as u64, bytes: Some(w.bytes.into()) }
    }

    /// Its bytes without the signature, and whether that is of somebody who is believed.
    fn unsealed(&self, keys: &Keys) -> Result<(Bytes, bool), Dropped> {
        let bytes = self.bytes.as_ref().ok_or(Dropped::Damaged)?;
        if Digest::of(bytes) != self.digest {
            return Err(Dropped::Damaged);
        }
        unsealed(bytes, keys)
    }

    /// Whether somebody signed it, whoever that is; `None` where that cannot be told.
    fn is_signed(&self) -> Option<bool> {
        let mut r = Reader::new(self.bytes.as_ref()?);
        r.bytes(RECORD_BYTES_MAX).ok()?;
        Some(r.u8().ok()? != 0)
    }

    /// The image, where it is believed.
    pub(crate) fn believed_image(&self, keys: &Keys) -> Result<ImageRecord, Dropped> {
        let (encoded, _) = self.unsealed(keys)?;
        let record = ImageRecord::decode(&encoded).map_err(|_| Dropped::Damaged)?;
        if record.key.digest() == self.strong { Ok(record) } else { Err(Dropped::Foreign) }
    }

    /// When the image was saved; none where it is none, or not here.
    fn saved_ms(&self) -> Option<u64> {
        let encoded = Reader::new(self.bytes.as_ref()?).bytes(RECORD_BYTES_MAX).ok()?;
        encoded.starts_with(&[IMAGE_VERSION]).then_some(())?;
        let record = ImageRecord::decode(encoded).ok()?;
        (record.key.digest() == self.strong).then_some(record.created_ms)
    }

    /// The bytes of its manifest, where it is believed; see [`Dropped`].
    pub(crate) fn believed(&self, weak: &Digest, keys: &Keys) -> Result<Bytes, Dropped> {
        let (encoded, signed) = self.unsealed(keys)?;
        judged(&encoded, signed, weak, &self.strong)?;
        Ok(encoded)
    }
}

/// A record's bytes without the signature, and whether that is of somebody who is believed.
pub(crate) fn unsealed(record: &Bytes, keys: &Keys) -> Result<(Bytes, bool), Dropped> {
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
    let signed = signature.is_some_and(|signature| keys.is_believed(encoded, signature));
    if keys.are_required() && !signed {
        return Err(Dropped::Unsigned);
    }
    Ok((record.slice_ref(encoded), signed))
}

/// What a record says, where it is believed to be that of these fingerprints; see [`Dropped`].
pub(crate) fn judged<'a>(
    encoded: &'a [u8],
    signed: bool,
    weak: &Digest,
    strong: &Digest,
) -> Result<Single<'a>, Dropped> {
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

    /// Put `new` first and `other` last, each strong fingerprint once: `new` over what is here, and that over `other`;
    /// but of two images of a key the one that was saved last, and never what nobody signed over what somebody did. The
    /// oldest beyond the limit go.
    pub(crate) fn merge(&mut self, new: &[Item], other: &List) {
        let old = std::mem::take(&mut self.items);
        for item in new.iter().chain(&old).chain(&other.items) {
            match self.items.iter_mut().find(|known| known.strong == item.strong) {
                None => self.items.push(item.clone()),
                Some(known) if known.bytes.is_none() && known.digest == item.digest => known.bytes = item.bytes.clone(),
                // Whoever was held up, or says again what jobs touch, does not bring back an older image.
                Some(known) if known.saved_ms().zip(item.saved_ms()).is_some_and(|(known, other)| other > known) => {
                    *known = item.clone();
                }
                Some(known) if known.is_signed() == Some(false) && item.is_signed() == Some(true) => {
                    *known = item.clone();
                }
                Some(_) => {}
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
