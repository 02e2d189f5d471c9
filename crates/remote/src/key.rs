//! Key: what an object is called on every remote.
//!
//! ```text
//! name = LAYOUT, "/", kind, "/", 2 hexadecimal digits, "/", 62 hexadecimal digits
//! kind = "b" blob | "m" manifest | "i" images | "u" used | "p" part
//! ```

use larder_model::{Digest, FORMAT_VERSION};
use std::fmt;

/// The version of how objects are named and formed on remotes. It is the first part of each name, followed by the
/// version of the records' own format, so that a change of either is a clean start.
pub const LAYOUT: u8 = 1;

/// What an object is: part of its name on a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Content, by its BLAKE3 digest. It never changes.
    Blob,
    /// A manifest, by weak fingerprint. It grows.
    Manifest,
    /// The list of images of a key, or of a prefix of keys. It grows.
    Images,
    /// The list of weak fingerprints that a build used, by digest of place and commit. It grows.
    Used,
    /// A piece of an object that a service cannot hold in one, by digest of that object's name and the piece's number.
    Part,
}

impl Kind {
    /// Its letter in names.
    pub fn letter(self) -> char {
        match self {
            Kind::Blob => 'b',
            Kind::Manifest => 'm',
            Kind::Images => 'i',
            Kind::Used => 'u',
            Kind::Part => 'p',
        }
    }

    /// Whether what has such a name is the same bytes for ever, so that one upload of it is as good as another.
    pub fn is_immutable(self) -> bool {
        matches!(self, Kind::Blob)
    }
}

/// The name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Which.
    pub digest: Digest,
}

impl Key {
    /// That of a blob.
    pub fn blob(digest: Digest) -> Self {
        Key { kind: Kind::Blob, digest }
    }

    /// That of the manifest of a weak fingerprint.
    pub fn manifest(weak: Digest) -> Self {
        Key { kind: Kind::Manifest, digest: weak }
    }

    /// That of the images of a key or prefix.
    pub fn images(list: Digest) -> Self {
        Key { kind: Kind::Images, digest: list }
    }

    /// That of what was used in a place at a commit.
    pub fn used(place: Digest) -> Self {
        Key { kind: Kind::Used, digest: place }
    }

    /// The path below a remote's prefix, at most 75 bytes of it.
    pub fn path(&self) -> String {
        let hex = self.digest.hex();
        format!("v{LAYOUT}.{FORMAT_VERSION}/{}/{}/{}", self.kind.letter(), &hex[..2], &hex[2..])
    }

    /// The key of the object's piece of this number, or of another object that belongs to it.
    pub fn part(&self, number: u64) -> Key {
        let mut name = self.path().into_bytes();
        name.extend_from_slice(&number.to_le_bytes());
        Key { kind: Kind::Part, digest: Digest::of(&name) }
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
