//! Where what a run left goes: into the store, or where that cannot be written, to `larderd`.
//!
//! Unaware of: what is recorded, and whether it will be.

use std::fs::File;
use std::io::Read;

use larder_ipc::{Caller, IpcError};
use larder_model::{Blob, Content, Digest, Entry, ExplainWalk, Fingerprint, Judgement, Outcome, Unrecorded};
use larder_store::{Counters, Stamps, Store, StoreError};

use crate::handover::Handover;

/// The one of them.
pub(crate) enum Sink<'a> {
    Store { store: &'a Store, counters: Counters },
    Handover(Handover<'a>),
}

/// Why nothing can be recorded.
pub(crate) enum Closed {
    Store(StoreError),
    /// The store cannot be written, and nobody takes what is handed over.
    NoDaemon(StoreError, IpcError),
}

impl Closed {
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Closed::Store(error) => Outcome::Fallback(error.fallback()),
            Closed::NoDaemon(..) => Outcome::Miss(Some(Unrecorded::NoDaemon)),
        }
    }

    pub(crate) fn detail(&self) -> String {
        match self {
            Closed::Store(error) => error.to_string(),
            Closed::NoDaemon(error, why) => format!("{error}; larderd: {why}"),
        }
    }
}

impl<'a> Sink<'a> {
    /// The store, or `larderd` where nothing may be written.
    pub(crate) fn open(store: &'a Store, caller: Caller) -> Result<Sink<'a>, Closed> {
        match store.may_be_written().and_then(|()| Counters::open(store)) {
            Ok(counters) => Ok(Sink::Store { store, counters }),
            Err(error) if error.refuses_writing() => match Handover::open(store, caller) {
                Ok(handover) => Ok(Sink::Handover(handover)),
                Err(why) => Err(Closed::NoDaemon(error, why)),
            },
            Err(error) => Err(Closed::Store(error)),
        }
    }

    /// What was recorded before this run.
    pub(crate) fn store(&self) -> &Store {
        match self {
            Sink::Store { store, .. } => store,
            Sink::Handover(handover) => handover.store,
        }
    }

    /// Keep what can be read from `source`: all of `file`, where it is one.
    pub(crate) fn put_blob(&self, source: &mut impl Read, file: Option<&File>) -> Result<Blob, StoreError> {
        match self {
            Sink::Store { store, .. } => store.put_blob(source),
            Sink::Handover(handover) => handover.put_blob(source, file),
        }
    }

    /// The bytes of a content, of this run or one before.
    pub(crate) fn content_bytes(&self, content: &Content, stamps: &Stamps) -> Result<Vec<u8>, StoreError> {
        let kept = match (self, content) {
            (Sink::Handover(handover), Content::Blob(blob)) => handover.blob_bytes(blob),
            _ => None,
        };
        kept.map_or_else(|| self.store().content_bytes(content, stamps), Ok)
    }

    /// Record an entry whose blobs were put. Returns by how much the store grew.
    pub(crate) fn record(
        &self,
        weak: &Fingerprint,
        walk: &ExplainWalk,
        entry: Entry,
        subject: &Digest,
    ) -> Result<u64, StoreError> {
        match self {
            Sink::Store { store, .. } => {
                let grown = store.record(weak, walk, entry)?;
                let _ = store.note_near(subject, weak);
                Ok(grown)
            }
            Sink::Handover(handover) => {
                handover.record(weak, walk, entry, subject);
                Ok(0)
            }
        }
    }

    /// The judgement kept under `key`.
    pub(crate) fn judgement(&self, key: &Digest) -> Option<Judgement> {
        let new = if let Sink::Handover(handover) = self { handover.judgement(key) } else { None };
        new.or_else(|| self.store().judgement(key))
    }

    /// Keep a judgement. Trouble with it only means that it is asked again.
    pub(crate) fn keep_judgement(&self, key: &Digest, judgement: &Judgement) {
        match self {
            Sink::Store { store, .. } => drop(store.keep_judgement(key, judgement)),
            Sink::Handover(handover) => handover.keep_judgement(key, judgement),
        }
    }

    /// Count the outcome; hand over what there is. Gives what became of the command then, and a word on it for people.
    pub(crate) fn finish(&self, outcome: Outcome) -> (Outcome, String) {
        match self {
            Sink::Store { counters, .. } => {
                counters.count(outcome);
                (outcome, String::new())
            }
            Sink::Handover(handover) => match (handover.send(outcome), outcome) {
                (Ok(()), _) => (outcome, "handed over to larderd".to_owned()),
                (Err(why @ IpcError::TooMany), Outcome::Miss(None)) => {
                    (Outcome::Miss(Some(Unrecorded::TooLarge)), why.to_string())
                }
                (Err(why), Outcome::Miss(None)) => {
                    (Outcome::Miss(Some(Unrecorded::NoDaemon)), format!("larderd: {why}"))
                }
                (Err(why), _) => (outcome, format!("larderd: {why}")),
            },
        }
    }
}
