//! ImageKey: the name that a user gives an image, and the prefixes of the name under which the
//! image is listed.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::Digest;

/// The maximum length of a key, in bytes. Other caches have the same limit.
pub const IMAGE_KEY_BYTES_MAX: usize = 512;
/// An image is listed under this many prefixes of its key at most, the shortest ones. Each list is
/// one more object on a remote.
const PREFIXES_MAX: usize = 8;
/// The characters that end a prefix under which images are listed.
const ENDS: &[char] = &['-', '_', '.', '/', ':', '@', '+', ' '];
const KEY_DOMAIN: &[u8] = b"larder image key 1\0";
const PREFIX_DOMAIN: &[u8] = b"larder image prefix 1\0";

/// The name of an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageKey(String);

/// Why a text cannot be a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAKey {
    /// The text is empty.
    Empty,
    /// The text has this many bytes, more than [`IMAGE_KEY_BYTES_MAX`].
    Long(usize),
    /// The text contains this control character.
    Control(char),
}

impl fmt::Display for NotAKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAKey::Empty => f.write_str("a key cannot be empty"),
            NotAKey::Long(bytes) => {
                write!(f, "the key has {bytes} bytes, more than {IMAGE_KEY_BYTES_MAX}: hash its long parts")
            }
            NotAKey::Control(found) => write!(f, "the key contains {found:?}: it must be text on one line"),
        }
    }
}

impl Error for NotAKey {}

impl FromStr for ImageKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        match text {
            "" => Err(NotAKey::Empty),
            long if long.len() > IMAGE_KEY_BYTES_MAX => Err(NotAKey::Long(long.len())),
            text => match text.chars().find(|c| c.is_control()) {
                Some(found) => Err(NotAKey::Control(found)),
                None => Ok(ImageKey(text.to_owned())),
            },
        }
    }
}

impl ImageKey {
    /// Returns the key as the user wrote it.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The digest under which the record of the image is stored.
    pub fn digest(&self) -> Digest {
        Digest::of(&[KEY_DOMAIN, self.0.as_bytes()].concat())
    }

    /// Returns the lists that contain the image: one for each prefix of the key that ends after one
    /// of `-_./:@+` or a space. Only the shortest eight prefixes have a list. For example,
    /// `deps-linux-1` is in the lists of `deps-` and `deps-linux-`.
    pub fn lists(&self) -> Vec<Digest> {
        self.0.match_indices(ENDS).take(PREFIXES_MAX).map(|(at, end)| list_of(&self.0[..at + end.len()])).collect()
    }
}

impl fmt::Display for ImageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the list that contains every image whose key begins with `fallback`, among others.
/// Returns `None` if `fallback` contains none of the characters that end a listed prefix.
pub fn listed_prefix(fallback: &str) -> Option<Digest> {
    let (at, end) = fallback.match_indices(ENDS).take(PREFIXES_MAX).last()?;
    Some(list_of(&fallback[..at + end.len()]))
}

fn list_of(prefix: &str) -> Digest {
    Digest::of(&[PREFIX_DOMAIN, prefix.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ImageKey {
        text.parse().expect("a key")
    }

    #[test]
    fn what_is_no_key_says_why() {
        assert_eq!("".parse::<ImageKey>(), Err(NotAKey::Empty));
        assert_eq!("a\nb".parse::<ImageKey>(), Err(NotAKey::Control('\n')));
        assert_eq!("x".repeat(513).parse::<ImageKey>(), Err(NotAKey::Long(513)));
        assert_eq!(key("deps ü-1").text(), "deps ü-1");
    }

    #[test]
    fn an_image_is_in_the_list_that_a_fallback_asks() {
        let image = key("deps-linux-x86_64-0123abcd");
        for fallback in ["deps-", "deps-li", "deps-linux-", "deps-linux-x86_64-01", "deps-linux-x86_64-0123abcd"] {
            assert!(image.lists().contains(&listed_prefix(fallback).expect("has one")), "{fallback}");
        }
        assert_eq!(listed_prefix("deps"), None);
        assert!(!image.lists().contains(&listed_prefix("other-").expect("has one")));
        let long = key("a-b-c-d-e-f-g-h-i-j-k-l");
        assert!(long.lists().contains(&listed_prefix("a-b-c-d-e-f-g-h-i-j-k-").expect("has one")));
        assert_ne!(key("a-").digest(), key("a-").lists()[0]);
    }
}
