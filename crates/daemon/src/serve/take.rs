//! One hand-over: everything in it is verified, then it is recorded as a wrapper would have.
//!
//! Bytes are hashed as they are written to the store, so that it does not matter who could change them before. What is
//! not what it is said to be is dropped, and so is the record that needs it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use larder_ipc::{Handed, Parcel};
use larder_model::{Fallback, Judgement, Outcome, Unrecorded};
use larder_store::{Counters, NotTaken, Store, StoreError};
use larder_sys::Kind;

/// What was taken.
pub(super) struct Taken {
    /// By how many bytes the store grew.
    pub(super) grown: u64,
    /// The manifest that came; empty where none did.
    pub(super) manifest: Vec<u8>,
}

/// Take what was handed over.
pub(super) fn take(store: &Store, parcel: OwnedFd, parcel_bytes: u64, blobs: Vec<OwnedFd>) -> Result<Taken> {
    let file = file_of(parcel, parcel_bytes).context("the parcel")?;
    let mut bytes = vec![0; usize::try_from(parcel_bytes)?];
    file.read_exact_at(&mut bytes, 0).context("the parcel")?;
    let parcel = Parcel::decode(&bytes).context("the parcel")?;
    let judgements: Vec<_> =
        parcel.judgements.iter().map(|(key, bytes)| Ok((key, Judgement::decode(bytes)?))).collect::<Result<_>>()?;
    for (key, judgement) in judgements {
        // Trouble with it only means that it is asked again.
        let _ = store.keep_judgement(key, &judgement);
    }
    let recorded = parcel.record.as_ref().map_or(Ok(0), |handed| record(store, handed, blobs));
    let outcome = match &recorded {
        Ok(_) => parcel.outcome,
        Err(error) => became_of(error),
    };
    if let Ok(counters) = Counters::open(store) {
        counters.count(outcome);
    }
    let manifest = parcel.record.map(|handed| handed.manifest.to_vec()).unwrap_or_default();
    recorded.map(|grown| Taken { grown, manifest })
}

fn record(store: &Store, handed: &Handed, files: Vec<OwnedFd>) -> Result<u64> {
    if files.len() != handed.blobs.len() {
        bail!("{} files came for {} blobs", files.len(), handed.blobs.len());
    }
    let mut grown = 0;
    for (blob, file) in handed.blobs.iter().zip(files) {
        let file = file_of(file, blob.size_bytes).with_context(|| format!("blob {}", blob.digest))?;
        store.take_blob(&mut FromStart { file, at: 0 }, blob)?;
        grown += blob.size_bytes;
    }
    Ok(grown + store.take_record(handed.manifest, &handed.blobs, &handed.subject)?)
}

/// How a run is counted that was not recorded.
fn became_of(error: &anyhow::Error) -> Outcome {
    let store = error.downcast_ref::<StoreError>().or(match error.downcast_ref::<NotTaken>() {
        Some(NotTaken::Store(error)) => Some(error),
        _ => None,
    });
    match store.map(StoreError::fallback) {
        Some(cause) if cause != Fallback::Damaged => Outcome::Fallback(cause),
        // It changed after it was handed over.
        _ => Outcome::Miss(Some(Unrecorded::OutputLost)),
    }
}

/// A file that was passed, if it is one and has that size: reading anything else could wait for ever, or have no end.
fn file_of(passed: OwnedFd, size_bytes: u64) -> Result<File> {
    let (file, look) = larder_sys::passed_file(passed)?;
    if look.kind != Kind::File {
        bail!("what was passed is no file");
    }
    if look.size_bytes != size_bytes {
        bail!("{} bytes were passed for {size_bytes}", look.size_bytes);
    }
    Ok(file)
}

/// A file from its start, wherever those who share it have read to.
struct FromStart {
    file: File,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
