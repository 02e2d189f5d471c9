//! Signatures of records: who is believed, and who we are. Ed25519; a key is 64 hexadecimal digits.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use larder_model::Digest;
use std::fmt;

/// A public key and a signature, bytes.
pub(crate) const SIGNATURE_BYTES: usize = 32 + 64;
/// What a signature is for. What is signed begins with its name, so that a signature of one kind means nothing for
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// The record of a command.
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

/// Whom we believe, and who we are.
#[derive(Clone, Default)]
pub struct Keys {
    /// See [`Keys::in_namespace`].
    namespace: String,
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

    /// For one namespace: what was signed for another is not believed. For example, a record of project A that somebody
    /// copies to the remote of project B, which has the same key, is no record of B.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
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

    pub(crate) fn sign(&self, domain: Domain, record: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        let key = self.own.as_ref()?;
        let mut made = [0; SIGNATURE_BYTES];
        made[..32].copy_from_slice(&key.verifying_key().to_bytes());
        made[32..].copy_from_slice(&key.sign(&self.message(domain, record)).to_bytes());
        Some(made)
    }

    /// The public key of who signed, if it is believed.
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
        let reader = Keys::default().believe(&ours.public().expect("has one")).expect("a key");
        let signature = ours.sign(Domain::Action, b"record").expect("signs");
        let believes = |domain, record: &[u8], signature: &[u8]| reader.signer(domain, record, signature);
        let signer = believes(Domain::Action, b"record", &signature).expect("is believed");
        assert_eq!(Some(signer.hex()), ours.public());
        assert_eq!(believes(Domain::Action, b"Record", &signature), None);
        assert_eq!(believes(Domain::Image, b"record", &signature), None, "it is for commands");
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
