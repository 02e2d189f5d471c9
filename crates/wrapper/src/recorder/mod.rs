//! Puts the record of a run into the store, or gives it to `larderd` if this process cannot write
//! the store.
//!
//! Unaware of: what is recorded, whether it will be.

pub(crate) mod daemon_record;

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;

use larder_ipc::{Caller, IpcError};
use larder_model::{Blob, Content, Digest, Entry, ExplainWalk, Fingerprint, Judgement, Outcome, Unrecorded};
use larder_store::{Counters, StatCache, Store, StoreError};

use self::daemon_record::DaemonRecord;

/// The target.
pub(crate) enum Recorder<'a> {
    Store {
        store: &'a Store,
        counters: Counters,
        /// Why a judgement could not be stored.
        unkept: RefCell<Option<StoreError>>,
    },
    Daemon(DaemonRecord<'a>),
}

/// Why nothing can be recorded.
pub(crate) enum Closed {
    Store(StoreError),
    /// This process cannot write the store, and `larderd` does not accept records.
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

impl<'a> Recorder<'a> {
    /// Returns the store as the target, or `larderd` if this process may not write the store.
    pub(crate) fn open(store: &'a Store, caller: Caller) -> Result<Recorder<'a>, Closed> {
        match store.may_be_written().and_then(|()| Counters::open(store)) {
            Ok(counters) => Ok(Recorder::Store { store, counters, unkept: RefCell::default() }),
            Err(error) if error.refuses_writing() => match DaemonRecord::open(store, caller) {
                Ok(daemon_record) => Ok(Recorder::Daemon(daemon_record)),
                Err(why) => Err(Closed::NoDaemon(error, why)),
            },
            Err(error) => Err(Closed::Store(error)),
        }
    }

    /// Returns the store, for reading earlier records.
    pub(crate) fn store(&self) -> &Store {
        match self {
            Recorder::Store { store, .. } => store,
            Recorder::Daemon(daemon_record) => daemon_record.store,
        }
    }

    /// Stores all bytes of `source` as a blob. If `source` reads a whole file, `file` is that file.
    pub(crate) fn put_blob(&self, source: &mut impl Read, file: Option<&File>) -> Result<Blob, StoreError> {
        match self {
            Recorder::Store { store, .. } => store.put_blob(source),
            Recorder::Daemon(daemon_record) => daemon_record.put_blob(source, file),
        }
    }

    /// Returns the bytes of a content of this run or of an earlier one.
    pub(crate) fn content_bytes(&self, content: &Content, stat_cache: &StatCache) -> Result<Vec<u8>, StoreError> {
        let kept = match (self, content) {
            (Recorder::Daemon(daemon_record), Content::Blob(blob)) => daemon_record.blob_bytes(blob),
            _ => None,
        };
        kept.map_or_else(|| self.store().content_bytes(content, stat_cache), Ok)
    }

    /// Adds an entry to its manifest. Its blobs must have been put before. Returns by how many
    /// bytes the store grew.
    pub(crate) fn record(
        &self,
        weak: &Fingerprint,
        walk: &ExplainWalk,
        entry: Entry,
        subject: &Digest,
    ) -> Result<u64, StoreError> {
        match self {
            Recorder::Store { store, .. } => {
                let grown = store.record(weak, walk, entry)?;
                let _ = store.note_neighbour(subject, weak);
                Ok(grown)
            }
            Recorder::Daemon(daemon_record) => {
                daemon_record.record(weak, walk, entry, subject);
                Ok(0)
            }
        }
    }

    /// Returns the verdict stored under `key`.
    pub(crate) fn judgement(&self, key: &Digest) -> Option<Judgement> {
        let new = if let Recorder::Daemon(daemon_record) = self { daemon_record.judgement(key) } else { None };
        new.or_else(|| self.store().judgement(key))
    }

    /// Stores a verdict. If that fails, the program is simply judged again.
    pub(crate) fn keep_judgement(&self, key: &Digest, judgement: &Judgement) {
        match self {
            Recorder::Store { store, unkept, .. } => {
                if let Err(error) = store.keep_judgement(key, judgement) {
                    unkept.replace(Some(error));
                }
            }
            Recorder::Daemon(daemon_record) => daemon_record.keep_judgement(key, judgement),
        }
    }

    /// Counts the outcome, and hands over to `larderd` what was collected. Returns the final
    /// outcome and a text for the log.
    pub(crate) fn finish(&self, outcome: Outcome) -> (Outcome, String) {
        match self {
            Recorder::Store { counters, unkept, .. } => {
                let (outcome, said) = match (outcome, unkept.take()) {
                    // The next run could learn as little, so it is the store that a person must mend.
                    (Outcome::Miss(Some(Unrecorded::Unjudged)), Some(error)) => {
                        (Outcome::Fallback(error.fallback()), error.to_string())
                    }
                    _ => (outcome, String::new()),
                };
                counters.count(outcome);
                (outcome, said)
            }
            Recorder::Daemon(daemon_record) => match (daemon_record.send(outcome), outcome) {
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
