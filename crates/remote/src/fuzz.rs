//! The decoders of this crate, for the fuzz targets only. Each gets what follows the version and the seal that it needs.

use bytes::Bytes;
use larder_model::{Digest, Writer};

use crate::record::{List, RECORD_FORMAT};
use crate::stack::pack_index;
use crate::used::{USED_FORMAT, Used};
use crate::{Keys, bundle};

/// Decodes a list of records, and each record that it holds.
pub fn list(data: &[u8]) {
    let (weak, bytes) = sealed(RECORD_FORMAT, data);
    let Ok(list) = List::decode(&weak, &bytes) else { return };
    let (again, _) = list.encode(&weak);
    assert!(List::decode(&weak, &again).is_ok(), "it cannot be read again");
    for item in &list.items {
        let _ = item.believed(&weak, &Keys::default());
        let _ = item.believed_image(&Keys::default());
    }
}

/// Decodes what a build used.
pub fn used(data: &[u8]) {
    let (place, bytes) = sealed(USED_FORMAT, data);
    let used = Used::decode(&place, &bytes);
    assert!(Used::decode(&place, &used.encode(&place)) == used, "it is another when it is read again");
}

/// Decodes an index of packs.
pub fn index(data: &[u8]) {
    pack_index::fuzz(data);
}

/// Decodes a bundle that is not compressed, and one that is.
pub fn bundle(data: &[u8]) {
    for how in [0, 1] {
        let packed = [&[bundle::compression::BUNDLE_FORMAT, how], data].concat();
        let Ok(unpacked) = bundle::unpack(&packed) else { continue };
        unpacked.believed(&Keys::default(), |_| true, |_, _| {});
    }
}

/// A digest that stands for what the bytes are about, and the bytes with their version, that digest and a seal.
fn sealed(version: u8, data: &[u8]) -> (Digest, Bytes) {
    let about = Digest([7; 32]);
    let mut w = Writer::default();
    w.u8(version);
    w.digest(&about);
    w.bytes.extend_from_slice(data);
    (about, w.seal().into())
}
