//! Collects what a run left, for a process that cannot write the store, and hands it over to
//! `larderd` at the end. It sends everything at once and does not wait for an answer. Outputs are
//! copied into sealed memory files, because the caller may change them (for example, strip an
//! object) before `larderd` has read them.
//!
//! Unaware of: where the data goes in the store.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_ipc::{Caller, Handed, IpcError, PARCEL_BYTES_MAX, Parcel, hand_over, listens};
use larder_model::{Blob, Digest, DigestWriter, Entry, ExplainWalk, Fingerprint, Judgement, Manifest, Outcome};
use larder_store::{Store, StoreError};

/// The size of the read buffer, in bytes, for the same reason as in `larder_store`'s blobs.
const BUFFER_BYTES: usize = 64 << 10;
/// Up to this many bytes are copied into memory. Beyond that, the outputs' own files are passed. If
/// such a file is changed before `larderd` has read it, its digest is wrong and nothing is
/// recorded.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The data to hand over.
pub(crate) struct DaemonRecord<'a> {
    pub(crate) store: &'a Store,
    /// The class and the terms for which `larderd` records it.
    caller: Caller,
    blobs: RefCell<Vec<(Blob, File)>>,
    memory_bytes: Cell<u64>,
    judgements: RefCell<Vec<(Digest, Judgement)>>,
    /// The manifest's bytes, and the key for finding earlier records (`lookup::subject`).
    record: RefCell<Option<(Vec<u8>, Digest)>>,
}

impl<'a> DaemonRecord<'a> {
    /// Starts collecting, if `larderd` listens and accepts records. No connection is kept, because
    /// a tool can run for hours.
    pub(crate) fn open(store: &'a Store, caller: Caller) -> Result<DaemonRecord<'a>, IpcError> {
        listens(&store.daemon_socket())?;
        if !store.daemon_takes() {
            return Err(IpcError::TakesNothing);
        }
        Ok(DaemonRecord {
            store,
            caller,
            blobs: RefCell::default(),
            memory_bytes: Cell::new(0),
            judgements: RefCell::default(),
            record: RefCell::default(),
        })
    }

    pub(crate) fn put_blob(&self, source: &mut impl Read, file: Option<&File>) -> Result<Blob, StoreError> {
        let failed = |error| StoreError::writing_to(Path::new("(memory)"), error);
        let size_bytes = file.and_then(|file| file.metadata().ok()).map_or(0, |about| about.len());
        let fits = self.memory_bytes.get().saturating_add(size_bytes) <= MEMORY_BYTES_MAX;
        let (blob, kept) = match file {
            Some(file) if !fits => {
                let blob = pass(source, &mut io::sink()).map_err(failed)?;
                (blob, file.try_clone().map_err(failed)?)
            }
            _ => {
                let mut memory = larder_sys::growing_memory_file("larder-blob").map_err(failed)?;
                let blob = pass(source, &mut memory).map_err(failed)?;
                // If sealing fails, `larderd` verifies the digest all the same.
                let _ = larder_sys::seal(&memory);
                self.memory_bytes.set(self.memory_bytes.get() + blob.size_bytes);
                (blob, memory)
            }
        };
        let mut blobs = self.blobs.borrow_mut();
        if !blobs.iter().any(|(known, _)| *known == blob) {
            blobs.push((blob, kept));
        }
        Ok(blob)
    }

    /// Returns the bytes of a blob of this run.
    pub(crate) fn blob_bytes(&self, blob: &Blob) -> Option<Vec<u8>> {
        let blobs = self.blobs.borrow();
        let (_, file) = blobs.iter().find(|(known, _)| known == blob)?;
        let mut bytes = vec![0; usize::try_from(blob.size_bytes).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    pub(crate) fn record(&self, weak: &Fingerprint, walk: &ExplainWalk, entry: Entry, subject: &Digest) {
        let mut manifest = Manifest::new(*weak, walk);
        manifest.add(entry);
        *self.record.borrow_mut() = Some((manifest.encode(), *subject));
    }

    pub(crate) fn judgement(&self, key: &Digest) -> Option<Judgement> {
        let judgements = self.judgements.borrow();
        judgements.iter().rfind(|(known, _)| known == key).map(|(_, judgement)| judgement.clone())
    }

    pub(crate) fn keep_judgement(&self, key: &Digest, judgement: &Judgement) {
        self.judgements.borrow_mut().push((*key, judgement.clone()));
    }

    /// Sends everything to `larderd`.
    pub(crate) fn send(&self, outcome: Outcome) -> Result<(), IpcError> {
        let encoded: Vec<_> =
            self.judgements.borrow().iter().map(|(key, judgement)| (*key, judgement.encode())).collect();
        let record = self.record.borrow();
        let blobs = self.blobs.borrow();
        // Blobs are of no use without a record.
        let blobs: &[(Blob, File)] = if record.is_some() { &blobs } else { &[] };
        let parcel = Parcel {
            outcome,
            judgements: encoded.iter().map(|(key, bytes)| (*key, bytes.as_slice())).collect(),
            record: record.as_ref().map(|(manifest, subject)| Handed {
                manifest,
                subject: *subject,
                blobs: blobs.iter().map(|(blob, _)| *blob).collect(),
            }),
        };
        let bytes = parcel.encode();
        if bytes.len() as u64 > PARCEL_BYTES_MAX {
            return Err(IpcError::TooMany);
        }
        let file = larder_sys::sealed_memory_file("larder-parcel", &bytes)?;
        let files = blobs.iter().map(|(_, file)| file.try_clone()).collect::<io::Result<Vec<_>>>()?;
        hand_over(&self.store.daemon_socket(), self.caller, &file, bytes.len() as u64, &files)
    }
}

/// Tells `larderd` that a record was used, so that it is not evicted as unused. Called at most once
/// an hour for each record, and only if this process cannot note it in the store.
pub(crate) fn note_use(store: &Store, caller: Caller, weak: &Fingerprint) {
    let _ = larder_ipc::note_use(&store.daemon_socket(), caller, weak);
}

/// Copies `source` to `to`. Returns the digest and size.
fn pass(source: &mut impl Read, to: &mut impl Write) -> io::Result<Blob> {
    let mut digest = DigestWriter::default();
    let mut size_bytes = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return Ok(Blob { digest: digest.finish(), size_bytes }),
            Ok(count) => {
                digest.update(&buffer[..count]);
                to.write_all(&buffer[..count])?;
                size_bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_there_and_stays_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert!(DaemonRecord::open(&store, Caller::UNSTATED).is_err(), "no daemon listens");
        let _door = store.open_daemon_door().expect("listens");
        let daemon_record =
            DaemonRecord::open(&store, Caller::UNSTATED).expect("the daemon's socket accepts connections");
        let path = dir.path().join("x.o");
        std::fs::write(&path, b"object").expect("writes");
        let mut file = File::open(&path).expect("opens");
        let own = file.try_clone().expect("clones");
        let blob = daemon_record.put_blob(&mut file, Some(&own)).expect("is kept");
        assert_eq!(blob, Blob { digest: Digest::of(b"object"), size_bytes: 6 });
        std::fs::write(&path, b"strip!").expect("writes");
        assert_eq!(daemon_record.blob_bytes(&blob).as_deref(), Some(&b"object"[..]));

        // A file that is too large for memory is passed as it is.
        daemon_record.memory_bytes.set(MEMORY_BYTES_MAX);
        let mut file = File::open(&path).expect("opens");
        let own = file.try_clone().expect("clones");
        let blob = daemon_record.put_blob(&mut file, Some(&own)).expect("is kept");
        assert_eq!(daemon_record.blob_bytes(&blob).as_deref(), Some(&b"strip!"[..]));
        daemon_record.keep_judgement(&blob.digest, &Judgement::Again);
        daemon_record.keep_judgement(&blob.digest, &Judgement::Disbelieved);
        assert_eq!(daemon_record.judgement(&blob.digest), Some(Judgement::Disbelieved), "the last");
        assert!(daemon_record.send(Outcome::Miss(None)).is_ok());
    }
}
