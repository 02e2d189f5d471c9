//! Signatures of records: who is believed, and who we are. Ed25519; a key is 64 hexadecimal digits.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use larder_model::Digest;
use std::fmt;

/// A public key and a signature, bytes.
pub(crate) const SIGNATURE_BYTES: usize = 32 + 64;
/// What is signed begins with this, so that a signature of ours means nothing elsewhere.
const DOMAIN: &[u8] = b"larder record 1\0";

/// Whom we believe, and who we are.
#[derive(Clone, Default)]
pub struct Keys {
    own: Option<SigningKey>,
    believed: Vec<VerifyingKey>,
}

/// A text that is no key. It does not quote the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAKey;

impl fmt::Display for NotAKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a key: 64 hexadecimal digits are expected")
    }
}

impl std::error::Error for NotAKey {}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(own: {}, believed: {})", self.own.is_some(), self.believed.len())
    }
}

impl Keys {
    /// With a key of our own, the secret half: records that we publish are signed with it, and believed when they come
    /// back.
    pub fn sign_with(mut self, secret: &str) -> Result<Self, NotAKey> {
        let key = SigningKey::from_bytes(&bytes(secret)?);
        self.believed.push(key.verifying_key());
        self.own = Some(key);
        Ok(self)
    }

    /// With a public key whose records are believed. Once there is one, no other record is.
    pub fn believe(mut self, public: &str) -> Result<Self, NotAKey> {
        self.believed.push(VerifyingKey::from_bytes(&bytes(public)?).map_err(|_| NotAKey)?);
        Ok(self)
    }

    /// The public half of our own key, as text.
    pub fn public(&self) -> Option<String> {
        self.own.as_ref().map(|key| Digest(key.verifying_key().to_bytes()).hex())
    }

    /// Whether we sign.
    pub fn can_sign(&self) -> bool {
        self.own.is_some()
    }

    /// Whether only signed records are believed.
    pub fn are_required(&self) -> bool {
        !self.believed.is_empty()
    }

    pub(crate) fn sign(&self, record: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        let key = self.own.as_ref()?;
        let mut made = [0; SIGNATURE_BYTES];
        made[..32].copy_from_slice(&key.verifying_key().to_bytes());
        made[32..].copy_from_slice(&key.sign(&message(record)).to_bytes());
        Some(made)
    }

    pub(crate) fn is_believed(&self, record: &[u8], signature: &[u8]) -> bool {
        let Some((public, signature)) = signature.split_first_chunk::<32>() else { return false };
        let (Some(key), Ok(signature)) =
            (self.believed.iter().find(|key| key.as_bytes() == public), Signature::from_slice(signature))
        else {
            return false;
        };
        key.verify_strict(&message(record), &signature).is_ok()
    }
}

fn message(record: &[u8]) -> Vec<u8> {
    [DOMAIN, &Digest::of(record).0].concat()
}

fn bytes(text: &str) -> Result<[u8; 32], NotAKey> {
    text.trim().parse::<Digest>().map(|digest| digest.0).map_err(|_| NotAKey)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_believed_are_believed() {
        let ours = Keys::default().sign_with(&"11".repeat(32)).expect("a key");
        let theirs = Keys::default().sign_with(&"22".repeat(32)).expect("a key");
        let reader = Keys::default().believe(&ours.public().expect("has one")).expect("a key");
        let signature = ours.sign(b"record").expect("signs");
        assert!(reader.is_believed(b"record", &signature));
        assert!(!reader.is_believed(b"Record", &signature));
        assert!(!reader.is_believed(b"record", &theirs.sign(b"record").expect("signs")));
        for at in 0..signature.len() {
            let mut damaged = signature;
            damaged[at] ^= 1;
            assert!(!reader.is_believed(b"record", &damaged), "byte {at}");
        }
        assert!(!format!("{ours:?}").contains("1111"));
        assert_eq!(Keys::default().sign_with("hush").expect_err("no key"), NotAKey);
    }
}
