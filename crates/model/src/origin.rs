//! How a record came into a store, which decides what it answers and whether it may be signed.
//!
//! Unaware of: keys and signatures; the settings' texts.

use crate::{DecodeError, Digest, Reader, Writer};

/// How a record came into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A wrapper that can write the store recorded it. Only such a record is ever signed.
    Own,
    /// `larderd` took it from a process that cannot write the store itself.
    HandedOver,
    /// It came from a remote, signed with this public key, if with any.
    Fetched(Option<Digest>),
}

impl Origin {
    /// Returns whether a record of this origin may answer if `trust` is the setting `remote_trust`. A key that is taken
    /// out of the setting answers nothing any more, whenever its records were fetched.
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

    /// Returns whether a record of this origin is kept if one of the other origin says the same.
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
