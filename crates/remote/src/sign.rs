//! Signatures of records with Ed25519: our own key, and the keys that we trust. A key is written as
//! 64 hexadecimal digits.
//!
//! Unaware of: what is in a record.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use larder_model::Digest;
use std::fmt;

/// The bytes of a public key and a signature.
pub(crate) const SIGNATURE_BYTES: usize = 32 + 64;
/// The kind of a signed record. The signed message begins with its name, so that a signature for
/// one kind is not valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// The record of an action.
    Action,
    /// The record of an image.
    Image,
}

impl Domain {
    fn name(self) -> &'static [u8] {
        match self {
            Domain::Action => b"larder action 1\0",
            Domain::Image => b"larder image 1\0",
        }
    }
}

/// Our own key and the keys that we trust.
#[derive(Clone, Default)]
pub struct Keys {
    /// See [`Keys::in_namespace`].
    namespace: String,
    own: Option<SigningKey>,
    believed: Vec<VerifyingKey>,
}

/// A text that is not a key. The error does not quote the text, because it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a key: 64 hexadecimal digits are expected")]
pub struct NotAKey;

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys(own: {}, believed: {})", self.own.is_some(), self.believed.len())
    }
}

impl Keys {
    /// Adds our own secret key. Published records are signed with it, and trusted when they come
    /// back.
    pub fn sign_with(mut self, secret: &str) -> Result<Self, NotAKey> {
        let key = SigningKey::from_bytes(&bytes(secret)?);
        self.believed.push(key.verifying_key());
        self.own = Some(key);
        Ok(self)
    }

    /// Adds a trusted public key. As soon as there is one, records of other keys are rejected.
    pub fn believe(mut self, public: &str) -> Result<Self, NotAKey> {
        self.believed.push(VerifyingKey::from_bytes(&bytes(public)?).map_err(|_| NotAKey)?);
        Ok(self)
    }

    /// Sets the namespace. Signatures for another namespace are not valid. For example, two
    /// projects share a key; a record of project A that is copied to the remote of project B is
    /// rejected there.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Returns the public half of our own key, as text.
    pub fn public(&self) -> Option<String> {
        self.own.as_ref().map(|key| Digest(key.verifying_key().to_bytes()).hex())
    }

    /// Returns true if we have a key to sign with.
    pub fn can_sign(&self) -> bool {
        self.own.is_some()
    }

    /// Returns true if only signed records are trusted.
    pub fn are_required(&self) -> bool {
        !self.believed.is_empty()
    }

    pub(crate) fn sign(&self, domain: Domain, record: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        let key = self.own.as_ref()?;
        let mut made = [0; SIGNATURE_BYTES];
        made[..32].copy_from_slice(&key.verifying_key().to_bytes());
        made[32..].copy_from_slice(&key.sign(&self.message(domain, record)).to_bytes());
        Some(made)
    }

    /// Returns the public key of a signature, if it is trusted and the signature is valid.
    pub(crate) fn signer(&self, domain: Domain, record: &[u8], signature: &[u8]) -> Option<Digest> {
        let (public, signature) = signature.split_first_chunk::<32>()?;
        let key = self.believed.iter().find(|key| key.as_bytes() == public)?;
        let signature = Signature::from_slice(signature).ok()?;
        let message = self.message(domain, record);
        key.verify_strict(&message, &signature).is_ok().then_some(Digest(*public))
    }

    fn message(&self, domain: Domain, record: &[u8]) -> Vec<u8> {
        [domain.name(), &Digest::of(self.namespace.as_bytes()).0, &Digest::of(record).0].concat()
    }
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
        let reader = Keys::default().believe(&ours.public().expect("has a key")).expect("a key");
        let signature = ours.sign(Domain::Action, b"record").expect("signs");
        let believes = |domain, record: &[u8], signature: &[u8]| reader.signer(domain, record, signature);
        let signer = believes(Domain::Action, b"record", &signature).expect("is believed");
        assert_eq!(Some(signer.hex()), ours.public());
        assert_eq!(believes(Domain::Action, b"Record", &signature), None);
        assert_eq!(believes(Domain::Image, b"record", &signature), None, "the signature is for an action");
        assert_eq!(reader.clone().in_namespace("b").signer(Domain::Action, b"record", &signature), None);
        assert_eq!(believes(Domain::Action, b"record", &theirs.sign(Domain::Action, b"record").expect("signs")), None);
        for at in 0..signature.len() {
            let mut damaged = signature;
            damaged[at] ^= 1;
            assert_eq!(believes(Domain::Action, b"record", &damaged), None, "byte {at}");
        }
        assert!(!format!("{ours:?}").contains("1111"));
        assert_eq!(Keys::default().sign_with("hush").expect_err("no key"), NotAKey);
    }
}
