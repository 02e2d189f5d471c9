//! Accepts records and blobs from other processes or remotes, and verifies them.
//!
//! Unaware of: the connection that they come over.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::io::Read;

use larder_model::{
    ActionResult, Blob, Digest, DigestWriter, Manifest, NotSingle, Origin, OutputKind, PLACEHOLDER, Single,
};

use crate::layout::{Contents, Temporary};
use crate::materialise::RIGHTS;
use crate::{Store, StoreError};

/// Where a record comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// From a process that cannot write the store. It answers such processes only.
    HandedOver,
    /// From such a process, with the setting `handover` saying that it may answer every process.
    HandedOverTrusted,
    /// From a remote. Its entry names the key that signed it.
    Fetched,
}

/// Why a record is not accepted.
#[derive(Debug)]
pub enum NotTaken {
    /// It cannot be decoded, or does not have exactly one entry.
    Malformed(NotSingle),
    /// It needs a blob that did not come with it.
    BlobMissing,
    /// It has an output that no record may have.
    Output(&'static str),
    /// The store could not be written.
    Store(StoreError),
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotTaken::Malformed(error) => write!(f, "the record: {error}"),
            NotTaken::BlobMissing => f.write_str("the record needs a blob that did not come with it"),
            NotTaken::Output(what) => write!(f, "the record: an output {what}"),
            NotTaken::Store(error) => error.fmt(f),
        }
    }
}

impl Error for NotTaken {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            NotTaken::Malformed(error) => Some(error),
            _ => None,
        }
    }
}

impl From<NotSingle> for NotTaken {
    fn from(error: NotSingle) -> Self {
        NotTaken::Malformed(error)
    }
}

impl From<StoreError> for NotTaken {
    fn from(error: StoreError) -> Self {
        NotTaken::Store(error)
    }
}

impl Store {
    /// Stores what can be read from `source` if its digest and size are those of `blob`. Otherwise
    /// stores nothing.
    pub fn take_blob(&self, source: &mut impl Read, blob: &Blob) -> Result<(), StoreError> {
        // One more byte is read, which shows whether there are more than expected.
        let (temporary, found) = self.write_blob(&mut source.take(blob.size_bytes.saturating_add(1)))?;
        if found != *blob {
            return Err(StoreError::BlobDamaged(blob.digest));
        }
        temporary.place(&self.path_of(Contents::Blobs, &blob.digest))
    }

    /// Begins to store `blob`, which comes in pieces.
    pub fn receive_blob(&self, blob: &Blob) -> Result<Receiving<'_>, StoreError> {
        let temporary = self.temporary()?;
        Ok(Receiving { store: self, temporary, digest: DigestWriter::default(), left: blob.size_bytes, blob: *blob })
    }

    /// Adds a record to the store's manifest of the same fingerprint. `bytes` is a manifest with
    /// one entry. The entry gets the origin that `came` says, and never [`Origin::Own`]. The blobs
    /// that it needs must be in the store and in `blobs`, which lists those that were verified. If
    /// `subject` is known, `explain` finds the record by it. Returns by how many bytes the store
    /// grew.
    pub fn take_record(
        &self,
        bytes: &[u8],
        came: Came,
        blobs: &[Blob],
        subject: Option<&Digest>,
    ) -> Result<u64, NotTaken> {
        self.take_single(&Single::open(bytes)?, came, blobs, subject)
    }

    /// Adds a record that was decoded already, as [`Store::take_record`] does.
    pub fn take_single(
        &self,
        single: &Single<'_>,
        came: Came,
        blobs: &[Blob],
        subject: Option<&Digest>,
    ) -> Result<u64, NotTaken> {
        let sound: HashSet<&Blob> = blobs.iter().collect();
        if !single.result().blobs().all(|blob| sound.contains(&blob)) {
            return Err(NotTaken::BlobMissing);
        }
        well_formed(single.result()).map_err(NotTaken::Output)?;
        let (table, origin) = match (came, single.entry().origin) {
            (Came::HandedOver, _) => (Contents::HandedOver, Origin::HandedOver),
            (Came::HandedOverTrusted, _) => (Contents::Manifests, Origin::HandedOver),
            (Came::Fetched, origin @ Origin::Fetched(_)) => (Contents::Manifests, origin),
            (Came::Fetched, _) => (Contents::Manifests, Origin::Fetched(None)),
        };
        let mut entry = single.entry().clone();
        entry.origin = origin;
        let manifest = Manifest { entries: vec![entry], ..single.manifest().clone() };
        let grown = match self.begin_manifest(&manifest, table)? {
            Some(grown) => grown,
            None => self.add_to_manifest(&manifest, table)?,
        };
        // `explain` does not read records that were handed over.
        let subject = subject.filter(|_| table == Contents::Manifests);
        let _ = subject.map(|subject| self.note_neighbour(subject, &single.manifest().weak));
        Ok(grown)
    }
}

/// A blob that comes in pieces. It is put in place only when it is complete and verified.
pub struct Receiving<'a> {
    store: &'a Store,
    temporary: Temporary,
    digest: DigestWriter,
    left: u64,
    blob: Blob,
}

impl Receiving<'_> {
    /// Writes the next piece.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let damaged = StoreError::BlobDamaged(self.blob.digest);
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(damaged)?;
        self.digest.update(bytes);
        self.temporary.write_all(bytes)
    }

    /// Ends the blob. If its digest and size are right, it is put in place.
    pub fn finish(self) -> Result<(), StoreError> {
        if self.left > 0 || self.digest.finish() != self.blob.digest {
            return Err(StoreError::BlobDamaged(self.blob.digest));
        }
        self.temporary.place(&self.store.path_of(Contents::Blobs, &self.blob.digest))
    }
}

/// Returns an error for an output that no command may have. Whether an output is within the bounds
/// of a command is checked when the record is used, because that depends on the command.
fn well_formed(result: &ActionResult) -> Result<(), &'static str> {
    for output in &result.outputs {
        let (rooted, below) = match output.path {
            [PLACEHOLDER, root, below @ ..] if (1..128).contains(root) => (true, below),
            path => (false, path),
        };
        match below {
            b"" if rooted => {}
            [b'/', ..] => {}
            _ => return Err("has no absolute path"),
        }
        // The placeholder of a name by chance (number 128 or more) is allowed after the first
        // slash.
        let is_zero = |at: usize| below[at] == 0 && below.get(at + 1).is_none_or(|number| *number < 128);
        if (0..below.len()).any(is_zero) {
            return Err("has a NUL byte in its path");
        }
        if matches!(output.kind, OutputKind::File { mode, .. } if mode.bits & RIGHTS != 0) {
            return Err("would be set-user-id or set-group-id");
        }
    }
    let links = result.outputs.iter().filter(|output| matches!(output.kind, OutputKind::Link(_)));
    for link in links {
        let through = |path: &[u8]| path.strip_prefix(link.path).is_some_and(|rest| rest.first() == Some(&b'/'));
        if result.outputs.iter().any(|output| through(output.path)) {
            return Err("leads through a link of the same run");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use larder_model::{
        Bound, Content, Entry, ExplainWalk, FileMode, Made, ModeRule, ObservationSet, Observer, Output, Placement,
        Rewrite, Streams,
    };

    use super::*;
    use crate::StatCache;

    #[test]
    fn a_blob_is_what_it_is_said_to_be_or_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let blob = |bytes: &[u8], size_bytes| Blob { digest: Digest::of(bytes), size_bytes };
        for (bytes, said) in [
            (&b"object"[..], blob(b"abject", 6)),
            (b"object", blob(b"object", 5)),
            (b"object", blob(b"object", 7)),
            (b"objects", blob(b"object", 6)),
            (b"", blob(b"object", 6)),
            (b"object", blob(b"object", u64::MAX)),
        ] {
            assert!(matches!(store.take_blob(&mut &bytes[..], &said), Err(StoreError::BlobDamaged(_))));
            assert!(!store.has_blob(&said));
        }
        for pieces in [&[&b"obj"[..], b"ec"][..], &[b"obj", b"ects"], &[b"obj", b"eck"], &[]] {
            let mut receiving = store.receive_blob(&blob(b"object", 6)).expect("begins");
            let written = pieces.iter().try_for_each(|piece| receiving.write(piece));
            assert!(written.and_then(|()| receiving.finish()).is_err(), "{pieces:?}");
            assert!(!store.has_blob(&blob(b"object", 6)));
        }
        let mut receiving = store.receive_blob(&blob(b"object", 6)).expect("begins");
        [&b"obj"[..], b"", b"ect"].iter().for_each(|piece| receiving.write(piece).expect("writes"));
        receiving.finish().expect("is what it should be");
        store.take_blob(&mut &b"object"[..], &blob(b"object", 6)).expect("is kept");
        assert!(store.open_blob(&blob(b"object", 6), &StatCache::none()).is_ok());
        assert_eq!(std::fs::read_dir(store.file("tmp")).expect("lists").count(), 0, "nothing is left");
    }

    /// The first record of a fingerprint becomes the manifest, and later ones are added to it.
    #[test]
    fn a_record_begins_a_manifest_or_joins_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (weak, walk) = (Digest::of(b"weak"), ExplainWalk::default());
        let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
        let result = ActionResult::of(streams);
        let record = |place| {
            let made = Made { made_in: Digest([place; 32]), bound: Some((Bound::Output, Vec::new())) };
            let (set, mut body) = (ObservationSet::default(), Vec::new());
            let entry = Entry::new(&weak, Observer::Preload, 9, &made, &set, &result, &mut body);
            Manifest { entries: vec![entry], ..Manifest::new(weak, &walk) }.encode()
        };
        let there = || store.read_manifest(&weak, false).expect("reads").expect("is there").bytes;
        let first = record(1);
        let take = |bytes: &[u8]| store.take_record(bytes, Came::Fetched, &[], None).expect("is taken");
        assert_eq!(take(&first), first.len() as u64);
        let origin = Manifest::decode(&there()).expect("own bytes").entries[0].origin;
        assert_eq!(origin, Origin::Fetched(None), "its own claim does not count");
        assert!(!store.base().join("locks").exists(), "nothing was replaced");
        for bytes in [record(2), first.clone()] {
            take(&bytes);
            assert_eq!(Manifest::decode(&there()).expect("own bytes").entries.len(), 2);
        }
    }

    /// A record that was handed over is stored apart, unless the setting says that it may answer
    /// every process. Its origin is never `Own`.
    #[test]
    fn what_is_handed_over_lies_apart() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (weak, walk) = (Digest::of(b"weak"), ExplainWalk::default());
        let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
        let made = Made { made_in: Digest([1; 32]), bound: None };
        let (set, mut body) = (ObservationSet::default(), Vec::new());
        let entry = Entry::new(&weak, Observer::Preload, 9, &made, &set, &ActionResult::of(streams), &mut body);
        let bytes = Manifest { entries: vec![entry.clone()], ..Manifest::new(weak, &walk) }.encode();
        store.take_record(&bytes, Came::HandedOver, &[], None).expect("is taken");
        assert!(store.read_manifest(&weak, false).expect("reads").is_none());
        let apart = store.read_handed_over(&weak, false).expect("reads").expect("is there").bytes;
        assert_eq!(Manifest::decode(&apart).expect("own bytes").entries[0].origin, Origin::HandedOver);
        store.take_record(&bytes, Came::HandedOverTrusted, &[], None).expect("is taken");
        let origin = || {
            let bytes = store.read_manifest(&weak, false).expect("reads").expect("is there").bytes;
            Manifest::decode(&bytes).expect("own bytes").entries[0].origin
        };
        assert_eq!(origin(), Origin::HandedOver);
        store.record(&weak, &walk, entry).expect("records");
        store.take_record(&bytes, Came::HandedOverTrusted, &[], None).expect("is taken");
        assert_eq!(origin(), Origin::Own, "our own record stays");
    }

    fn check(outputs: &[Output], expect: Result<(), &str>) {
        let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
        let result = ActionResult { outputs: outputs.to_vec(), ..ActionResult::of(streams) };
        assert_eq!(well_formed(&result), expect, "{outputs:?}");
    }

    #[test]
    fn outputs() {
        let file = |path, bits| {
            let mode = FileMode { bits, rule: ModeRule::Exact };
            let (placement, rewrite, content) = (Placement::Truncate, Rewrite::None, Content::EMPTY);
            Output::new(path, OutputKind::File { placement, mode, rewrite, content })
        };
        let link = |path| Output::new(path, OutputKind::Link(b"to"));
        for path in [&b"/w/x.o"[..], b"\0\x01/x.o", b"\0\x7f/x.o", b"\0\x01", b"/w/\0\x80.o"] {
            check(&[file(path, 0o644)], Ok(()));
        }
        for path in [&b"x.o"[..], b"", b"\0\x80/x", b"\0\0/x", b"\0", b"\0\x01x.o", b"../x"] {
            check(&[file(path, 0o644)], Err("has no absolute path"));
        }
        check(&[file(b"/x\0y", 0o644)], Err("has a NUL byte in its path"));
        check(&[file(b"\0\x01/x\0\x01", 0o644)], Err("has a NUL byte in its path"));
        check(&[file(b"/x", 0o4755)], Err("would be set-user-id or set-group-id"));
        check(&[link(b"/w/a"), file(b"/w/ab", 0o644)], Ok(()));
        check(&[file(b"/w/a/b", 0o644), link(b"/w/a")], Err("leads through a link of the same run"));
    }
}
