//! Accepts one handed-over record: verifies everything in it, then records it as a wrapper would
//! have.
//!
//! Bytes are hashed while they are written to the store, so it does not matter if another process
//! changed them before. A blob with another digest than announced is dropped, and so is the record
//! that needs it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail};
use larder_ipc::{Handed, Parcel};
use larder_model::{Fallback, Judgement, Outcome, Unrecorded};
use larder_store::{Came, Counters, NotTaken, Store, StoreError};
use larder_sys::FileType;

/// An accepted record.
pub(super) struct Taken {
    /// The number of bytes by which the store grew.
    pub(super) grown: u64,
    /// The encoded manifest of the record; empty if there was none.
    pub(super) manifest: Vec<u8>,
}

/// The error for a record whose blobs are larger than the limit of the store.
#[derive(Debug, thiserror::Error)]
#[error("{0} bytes are more than the store may have")]
struct TooLarge(u64);

/// Accepts a handed-over record into a store whose limit is `limit_bytes`; 0 means no limit.
pub(super) fn take(
    store: &Store,
    came: Came,
    limit_bytes: u64,
    parcel: OwnedFd,
    parcel_bytes: u64,
    blobs: Vec<OwnedFd>,
) -> Result<Taken> {
    let file = file_of(parcel, parcel_bytes).context("the parcel")?;
    let mut bytes = vec![0; usize::try_from(parcel_bytes)?];
    file.read_exact_at(&mut bytes, 0).context("the parcel")?;
    let parcel = Parcel::decode(&bytes).context("the parcel")?;
    let judgements: Vec<_> =
        parcel.judgements.iter().map(|(key, bytes)| Ok((key, Judgement::decode(bytes)?))).collect::<Result<_>>()?;
    for (key, judgement) in judgements {
        // Errors are ignored, because then the program is only judged again. A judgement decides
        // how a program is observed. So a judgement that is not trusted is stored apart, like the
        // records of the same client.
        let _ = match came {
            Came::HandedOverTrusted => store.keep_judgement(key, &judgement),
            _ => store.keep_judgement_handed_over(key, &judgement),
        };
    }
    let recorded = parcel.record.as_ref().map_or(Ok(0), |handed| record(store, came, limit_bytes, handed, blobs));
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

fn record(store: &Store, came: Came, limit_bytes: u64, handed: &Handed, files: Vec<OwnedFd>) -> Result<u64> {
    if files.len() != handed.blobs.len() {
        bail!("{} files came for {} blobs", files.len(), handed.blobs.len());
    }
    // Check this before writing: a sparse file can claim any size, and its bytes are written before
    // their digest is known.
    let all = handed.blobs.iter().fold(0u64, |sum, blob| sum.saturating_add(blob.size_bytes));
    if limit_bytes > 0 && all > limit_bytes {
        bail!(TooLarge(all));
    }
    let mut grown = 0;
    for (blob, file) in handed.blobs.iter().zip(files) {
        let file = file_of(file, blob.size_bytes).with_context(|| format!("blob {}", blob.digest))?;
        store.take_blob(&mut FromStart { file, at: 0 }, blob)?;
        grown += blob.size_bytes;
    }
    Ok(grown + store.take_record(handed.manifest, came, &handed.blobs, Some(&handed.subject))?)
}

/// Returns the outcome that is counted for a run that could not be recorded.
fn became_of(error: &anyhow::Error) -> Outcome {
    let store = error.downcast_ref::<StoreError>().or(match error.downcast_ref::<NotTaken>() {
        Some(NotTaken::Store(error)) => Some(error),
        _ => None,
    });
    match store.map(StoreError::fallback) {
        None if error.is::<TooLarge>() => Outcome::Miss(Some(Unrecorded::TooLarge)),
        Some(cause) if cause != Fallback::Damaged => Outcome::Fallback(cause),
        // The output changed after it was handed over.
        _ => Outcome::Miss(Some(Unrecorded::OutputLost)),
    }
}

/// Returns the passed descriptor as a file if it is a regular file of that size. Reading anything
/// else could block for ever, or never reach an end.
fn file_of(passed: OwnedFd, size_bytes: u64) -> Result<File> {
    let (file, stat) = larder_sys::passed_file(passed)?;
    if stat.kind != FileType::File {
        bail!("the passed descriptor is no regular file");
    }
    if stat.size_bytes != size_bytes {
        bail!("{} bytes were passed for {size_bytes}", stat.size_bytes);
    }
    Ok(file)
}

/// Reads a file from its start, at an offset of its own: processes that share the descriptor can
/// move its position.
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

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use larder_model::{
        ActionResult, Blob, Content, Digest, Entry, ExplainWalk, FORMAT_VERSION, FileMode, Made, Manifest, ModeRule,
        ObservationSet, Observer, Origin, Output, OutputKind, Placement, Rewrite, Streams,
    };
    use larder_store::StatCache;

    use super::*;

    /// Larger than the contents that are stored inside a record.
    const OBJECT: &[u8] = &[7; 9000];
    const LIMIT_BYTES: u64 = 1 << 20;

    struct Handing {
        store: Store,
        _dir: tempfile::TempDir,
        blob: Blob,
        path: Vec<u8>,
        bits: u32,
        manifest: Option<Vec<u8>>,
    }

    fn handing() -> Handing {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let blob = Blob { digest: Digest::of(OBJECT), size_bytes: OBJECT.len() as u64 };
        Handing { store, _dir: dir, blob, path: b"\0\x01/x.o".to_vec(), bits: 0o644, manifest: None }
    }

    fn memory(bytes: &[u8]) -> OwnedFd {
        let mut file = larder_sys::growing_memory_file("x").expect("makes");
        file.write_all(bytes).expect("writes");
        file.seek(io::SeekFrom::End(0)).expect("seeks");
        file.into()
    }

    impl Handing {
        /// Returns a manifest with one entry, which has one output.
        fn manifest(&self) -> Vec<u8> {
            let mode = FileMode { bits: self.bits, rule: ModeRule::Exact };
            let (placement, rewrite, content) = (Placement::Truncate, Rewrite::None, Content::Blob(self.blob));
            let kind = OutputKind::File { placement, mode, rewrite, content };
            let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
            let outputs = vec![Output::new(&self.path, kind)];
            let result = ActionResult { outputs, ..ActionResult::of(streams) };
            let (walk, weak, mut body) = (ExplainWalk::default(), Digest::of(b"weak"), Vec::new());
            let made = Made { made_in: Digest::of(b"place"), bound: None };
            let set = ObservationSet::default();
            let entry = Entry::new(&weak, Observer::Kernel, 1, &made, &set, &result, &mut body);
            let mut manifest = Manifest::new(weak, &walk);
            manifest.add(entry);
            manifest.encode()
        }

        fn hand(&self, blobs: &[Blob], files: Vec<OwnedFd>) -> Result<Taken> {
            let manifest = self.manifest.clone().unwrap_or_else(|| self.manifest());
            let record = Handed { manifest: &manifest, subject: Digest::of(b"subject"), blobs: blobs.to_vec() };
            let key = Digest::of(b"judged");
            let judgement = Judgement::Again.encode();
            let outcome = Outcome::Miss(None);
            let bytes = Parcel { outcome, judgements: vec![(key, &judgement)], record: Some(record) }.encode();
            take(&self.store, Came::HandedOver, LIMIT_BYTES, memory(&bytes), bytes.len() as u64, files)
        }

        /// Checks that nothing was recorded, for this reason, and that it was counted.
        #[track_caller]
        fn refused(&self, taken: Result<Taken>, why: &str) {
            let error = format!("{:#}", taken.err().expect("is refused"));
            assert!(error.contains(why), "{error}");
            assert!(self.store.read_handed_over(&Digest::of(b"weak"), false).expect("reads").is_none());
            let totals = Counters::read(&self.store);
            assert_eq!(totals.unrecorded_reasons, [(Unrecorded::OutputLost, 1)]);
        }
    }

    #[test]
    fn what_is_as_it_is_said_to_be_is_recorded() {
        let handing = handing();
        let taken = handing.hand(&[handing.blob], vec![memory(OBJECT)]).expect("is taken");
        assert!(taken.grown > OBJECT.len() as u64);
        let taken = Manifest::decode(&taken.manifest).expect("was read");
        assert_eq!(taken.entries[0].origin, Origin::Own, "the bytes are unchanged: the origin is kept by the store");
        let store = &handing.store;
        assert!(store.open_blob(&handing.blob, &StatCache::none()).is_ok());
        assert!(store.read_handed_over(&Digest::of(b"weak"), false).expect("reads").is_some());
        assert!(
            store.read_manifest(&Digest::of(b"weak"), false).expect("reads").is_none(),
            "it answers only clients that accept handed-over records"
        );
        assert_eq!(store.neighbour(&Digest::of(b"subject")), None);
        assert_eq!(store.judgement(&Digest::of(b"judged")), None, "its judgement is not used for other clients");
        let judged = std::fs::read_dir(store.directory().join(format!("v{FORMAT_VERSION}/judged-handed-over")));
        assert_eq!(judged.expect("is there").count(), 1);
        assert_eq!((Counters::read(store).miss, Counters::read(store).fallback), (1, 0));
        assert!(store.fsck(false, &mut |_, _| {}).expect("reads").problems.is_empty());
    }

    #[test]
    fn other_bytes_are_refused() {
        let other: Vec<u8> = OBJECT.iter().map(|byte| byte + 1).collect();
        let longer = [OBJECT, b"x"].concat();
        for (bytes, why) in [
            (other.as_slice(), "another digest"),
            (&OBJECT[1..], "8999 bytes were passed for 9000"),
            (&longer, "9001 bytes were passed for 9000"),
            (b"", "0 bytes"),
        ] {
            let handing = handing();
            handing.refused(handing.hand(&[handing.blob], vec![memory(bytes)]), why);
            assert!(!handing.store.has_blob(&handing.blob));
        }
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let (reader, _writer) = larder_sys::pipe().expect("makes");
        let directory = OwnedFd::from(File::open("/").expect("opens"));
        let device = OwnedFd::from(File::open("/dev/zero").expect("opens"));
        let write_only = File::options().write(true).open("/dev/null").expect("opens").into();
        for passed in [reader, directory, device, write_only] {
            let handing = handing();
            handing.refused(handing.hand(&[handing.blob], vec![passed]), "no regular file");
        }
        assert!(
            take(
                &handing().store,
                Came::HandedOver,
                LIMIT_BYTES,
                File::open("/dev/zero").expect("opens").into(),
                100,
                Vec::new()
            )
            .is_err()
        );
    }

    #[test]
    fn blobs_that_are_missing_or_too_many_are_refused() {
        let handing_ = handing();
        handing_.refused(handing_.hand(&[handing_.blob], Vec::new()), "0 files came for 1 blobs");
        let handing_ = handing();
        handing_.refused(handing_.hand(&[], Vec::new()), "did not come with it");
        let handing_ = handing();
        handing_.refused(handing_.hand(&[], vec![memory(OBJECT)]), "1 files came for 0 blobs");
        // A blob that is already in the store does not count, because it was not hashed now.
        let handing_ = handing();
        handing_.store.put_blob(&mut &OBJECT[..]).expect("writes");
        handing_.refused(handing_.hand(&[], Vec::new()), "did not come with it");
    }

    #[test]
    fn records_that_no_command_has_are_refused() {
        for (path, bits, why) in [
            (&b"../x"[..], 0o644, "no absolute path"),
            (b"\0\x01/\0", 0o644, "a NUL byte in its path"),
            (b"/usr/bin/sh", 0o4755, "set-user-id"),
        ] {
            let handing = Handing { path: path.to_vec(), bits, ..handing() };
            handing.refused(handing.hand(&[handing.blob], vec![memory(OBJECT)]), why);
        }
        for manifest in [b"".to_vec(), b"nonsense".to_vec(), vec![larder_model::FORMAT_VERSION; 100]] {
            let handing = Handing { manifest: Some(manifest), ..handing() };
            handing.refused(handing.hand(&[handing.blob], vec![memory(OBJECT)]), "the record");
        }
        let empty = Manifest::new(Digest::of(b"weak"), &ExplainWalk::default()).encode();
        let handing = Handing { manifest: Some(empty), ..handing() };
        handing.refused(handing.hand(&[handing.blob], vec![memory(OBJECT)]), "has 0 entries");
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        let sparse = larder_sys::growing_memory_file("x").expect("makes");
        sparse.set_len(1 << 40).expect("has no blocks");
        let blob = Blob { digest: Digest::of(OBJECT), size_bytes: 1 << 40 };
        let handing = Handing { blob, ..handing() };
        let error = handing.hand(&[blob], vec![sparse.into()]).err().expect("is refused");
        assert!(error.to_string().contains("more than the store may have"), "{error}");
        assert_eq!(Counters::read(&handing.store).unrecorded_reasons, [(Unrecorded::TooLarge, 1)]);
    }

    #[test]
    fn a_parcel_that_is_none_is_refused() {
        let handing = handing();
        for bytes in [&b""[..], b"parcel", &[0; 1000]] {
            assert!(
                take(&handing.store, Came::HandedOver, LIMIT_BYTES, memory(bytes), bytes.len() as u64, Vec::new())
                    .is_err()
            );
        }
        assert!(take(&handing.store, Came::HandedOver, LIMIT_BYTES, memory(b"parcel"), u64::MAX, Vec::new()).is_err());
        assert_eq!(Counters::read(&handing.store).miss, 0, "its outcome is unknown, so it is not counted");
    }
}
