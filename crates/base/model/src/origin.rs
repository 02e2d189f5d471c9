//! How a record came into a store. This decides whether the record may answer and whether it may be
//! signed.
//!
//! Unaware of: keys and signatures, how settings are written.

use crate::{DecodeError, Digest, Reader, Writer};

/// How a record came into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A wrapper that can write the store recorded it. Only such a record is ever signed.
    Own,
    /// `larderd` accepted it from a process that cannot write the store itself.
    HandedOver,
    /// It was fetched from a remote. The digest is the public key that signed it, or `None` if it
    /// was not signed.
    Fetched(Option<Digest>),
}

impl Origin {
    /// Returns true if a record of this origin may answer, given the setting `remote_trust`. If a
    /// key is removed from the setting, records that it signed no longer answer, whenever they were
    /// fetched.
    pub fn is_believed(&self, trust: &[String]) -> bool {
        match self {
            Origin::Own | Origin::HandedOver => true,
            Origin::Fetched(_) if trust.is_empty() => true,
            Origin::Fetched(None) => false,
            Origin::Fetched(Some(signer)) => {
                let signer = signer.hex();
                trust.iter().any(|key| key.eq_ignore_ascii_case(&signer))
            }
        }
    }

    /// Returns true if a record of this origin is kept when a record of the other origin has the
    /// same observations.
    pub(crate) fn outranks(&self, other: &Origin) -> bool {
        let rank = |origin: &Origin| match origin {
            Origin::Own => 2,
            Origin::Fetched(_) => 1,
            Origin::HandedOver => 0,
        };
        rank(self) > rank(other)
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Origin::Own => w.u8(0),
            Origin::HandedOver => w.u8(1),
            Origin::Fetched(None) => w.u8(2),
            Origin::Fetched(Some(signer)) => {
                w.u8(3);
                w.digest(signer);
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader) -> Result<Origin, DecodeError> {
        Ok(match r.u8()? {
            0 => Origin::Own,
            1 => Origin::HandedOver,
            2 => Origin::Fetched(None),
            3 => Origin::Fetched(Some(r.digest()?)),
            code => return Err(r.unknown_tag(code)),
        })
    }
}
