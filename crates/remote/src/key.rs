//! Keys: the names of objects on every remote.
//!
//! ```text
//! name = LAYOUT, "/", kind, "/", 2 hexadecimal digits, "/", 62 hexadecimal digits
//! kind = "b" blob | "m" manifest | "i" images | "u" used | "p" part | "x" index
//! ```
//! For example, `v1.11/b/ab/cd…` is the blob with the digest `abcd…`.
//!
//! Unaware of: services, the content of objects.

use larder_model::{Digest, FORMAT_VERSION};
use std::fmt;

/// The version of how objects are named and encoded on remotes.
///
/// Each name starts with this number and the version of the record format. If either of them
/// changes, a new client ignores all old objects.
pub const LAYOUT: u8 = 1;

/// The kind of an object. It is part of the object's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ObjectKind {
    /// A blob, named by its BLAKE3 digest. It never changes.
    Blob = b'b',
    /// A list of records, named by weak fingerprint. It grows.
    Manifest = b'm',
    /// A list of images, named by the digest of a key or of a prefix of keys. It grows.
    Images = b'i',
    /// A list of the weak fingerprints that builds used, named by a digest of the commit. It grows.
    Used = b'u',
    /// A part of an object that is too large for one value of the service, or an object that
    /// belongs to another one (see [`Key::part`]).
    Part = b'p',
    /// An index of packs, named by a digest of the day (`stack/pack_index.rs`). It grows.
    Index = b'x',
}

impl ObjectKind {
    const ALL: [ObjectKind; 6] = [
        ObjectKind::Blob,
        ObjectKind::Manifest,
        ObjectKind::Images,
        ObjectKind::Used,
        ObjectKind::Part,
        ObjectKind::Index,
    ];

    /// Returns the kind that a letter stands for.
    pub(crate) fn of_letter(letter: u8) -> Option<ObjectKind> {
        Self::ALL.into_iter().find(|kind| kind.letter() == char::from(letter))
    }

    /// Returns the letter that stands for it in names.
    pub fn letter(self) -> char {
        char::from(self as u8)
    }

    /// Returns true if all objects of this name have the same bytes, so that it does not matter
    /// which of several uploads is kept.
    pub fn is_immutable(self) -> bool {
        matches!(self, ObjectKind::Blob)
    }
}

/// The name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The digest that names it among objects of its kind.
    pub digest: Digest,
}

impl Key {
    /// Returns the key of a blob.
    pub fn blob(digest: Digest) -> Self {
        Key { kind: ObjectKind::Blob, digest }
    }

    /// Returns the key of the record list of a weak fingerprint.
    pub fn manifest(weak: Digest) -> Self {
        Key { kind: ObjectKind::Manifest, digest: weak }
    }

    /// Returns the key of the image list of a key or prefix.
    pub fn images(list: Digest) -> Self {
        Key { kind: ObjectKind::Images, digest: list }
    }

    /// Returns the key of the list of what builds of a commit used. `place` is the commit's digest.
    pub fn used(place: Digest) -> Self {
        Key { kind: ObjectKind::Used, digest: place }
    }

    /// Returns the key of the index of packs that were written on a day, counted from 1970.
    pub(crate) fn index(day: u64) -> Self {
        Key { kind: ObjectKind::Index, digest: Digest::of(&day.to_le_bytes()) }
    }

    /// Returns the object's path below the prefix of a remote, at most 75 bytes.
    pub fn path(&self) -> String {
        let hex = self.digest.hex();
        format!("v{LAYOUT}.{FORMAT_VERSION}/{}/{}/{}", self.kind.letter(), &hex[..2], &hex[2..])
    }

    /// Returns the key of part `number` of this object. Generations and notes of a list
    /// (`merge.rs`) are named like this, too.
    pub fn part(&self, number: u64) -> Key {
        let mut name = self.path().into_bytes();
        name.extend_from_slice(&number.to_le_bytes());
        Key { kind: ObjectKind::Part, digest: Digest::of(&name) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.digest.hex();
        write!(f, "{}/{}/{}", self.kind.letter(), &hex[..2], &hex[2..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_these() {
        let key = Key::blob(Digest([0xab; 32]));
        assert_eq!(key.to_string(), format!("b/ab/{}", "ab".repeat(31)));
        assert_eq!(key.path(), format!("v{LAYOUT}.{FORMAT_VERSION}/b/ab/{}", "ab".repeat(31)));
        assert_ne!(key.part(0), key.part(1));
        assert_ne!(key.part(0), Key::manifest(key.digest).part(0));
    }
}
