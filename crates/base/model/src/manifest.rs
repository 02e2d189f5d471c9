//! Manifest: the record of one weak fingerprint. It is a list of at most 32 entries, newest first.
//! An entry has what one run relied on and its result, so the small parts of a result are in the
//! same file.
//!
//! ```text
//! manifest = u8 format version, digest weak fingerprint, number of fields, field*,
//!            number of entries, entry*, digest of all before, body*
//! field    = bytes name, bytes value               the walk that made the weak fingerprint
//! entry    = digest strong fingerprint, u8 observer, origin, number run time µs,
//!            digest of the roots of its place, u8 bound (0: reusable anywhere),
//!            bytes what binds it, number length of its body, digest of its body
//! origin   = u8 0 recorded with this store · 1 handed over · 2 fetched, unsigned ·
//!            3 fetched, digest: the signer's public key
//! body     = set, result
//! ```
//! The digest after the entries covers everything before it. So the start of a file can be read and
//! verified without the rest. A lookup mostly finds its answer in the newest entries, whose bodies
//! come first.
//!
//! Unaware of: where manifests are stored, whether an entry holds.

use crate::{
    ActionResult, Bound, DecodeError, Digest, DigestWriter, ExplainWalk, FORMAT_VERSION, Field, Fingerprint,
    ObservationSet, Observer, Origin, Reader, SetReader, Writer,
};

/// The maximum number of entries for one weak fingerprint. If there are more, the oldest is
/// dropped.
pub const MANIFEST_ENTRIES_MAX: usize = 32;
const ENTRY_BYTES_MAX: u64 = 64 << 20;
const FIELD_BYTES_MAX: u64 = 4 << 20;

/// Where a result was made, and whether it can only be reused there: see [`Entry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The digest of the roots of the place.
    pub made_in: Digest,
    /// Why it can only be reused in that place, and the argument, path or number that is the
    /// reason.
    pub bound: Option<(Bound, Vec<u8>)>,
}

/// One recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The digest of the weak fingerprint and the observations, and of `made_in` if the entry is
    /// bound to its place.
    pub strong: Fingerprint,
    /// Which observer watched the run.
    pub observer: Observer,
    /// How the entry came into this store.
    pub origin: Origin,
    /// How long the tool ran, in microseconds of wall-clock time.
    pub run_time_us: u64,
    /// The digest of the roots of the place where it was made.
    pub made_in: Digest,
    /// Why the result can only be reused in that place, or `None` if it can be reused in every
    /// place.
    pub bound: Option<Bound>,
    /// What binds it: an argument, a path or numbers.
    pub bound_by: &'a [u8],
    body: &'a [u8],
    /// The digest that the body must have, if that was not checked yet.
    unchecked: Option<Digest>,
}

/// The record of one weak fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest<'a> {
    /// The weak fingerprint. The file is named by it.
    pub weak: Fingerprint,
    /// The names and values of the walk that made it.
    pub fields: Vec<(&'a [u8], &'a [u8])>,
    /// The entries, newest first.
    pub entries: Vec<Entry<'a>>,
}

impl<'a> Entry<'a> {
    /// Makes an entry. `body` receives its encoded body and must outlive it.
    pub fn new(
        weak: &Fingerprint,
        observer: Observer,
        run_time_us: u64,
        made: &'a Made,
        set: &ObservationSet,
        result: &ActionResult,
        body: &'a mut Vec<u8>,
    ) -> Self {
        let mut w = Writer::default();
        set.encode(&mut w);
        let at_home = made.bound.as_ref().map(|_| &made.made_in);
        let strong = strong_fingerprint(weak, at_home, &w.bytes);
        result.encode(&mut w);
        *body = w.bytes;
        let (bound, bound_by) = made.bound.as_ref().map_or((None, &b""[..]), |(why, by)| (Some(*why), by));
        let (made_in, origin) = (made.made_in, Origin::Own);
        Entry { strong, observer, origin, run_time_us, made_in, bound, bound_by, body, unchecked: None }
    }

    /// Returns the set and the result.
    pub fn open(&self) -> Result<(ObservationSet<'a>, ActionResult<'a>), DecodeError> {
        let (set, result) = self.open_to_read()?;
        Ok((set.whole()?, result))
    }

    /// Returns the result if the strong fingerprint matches `weak`, the set, and the place if the
    /// entry is bound to one. Entries from other machines are only believed after this check.
    pub fn open_bound_to(&self, weak: &Fingerprint) -> Result<ActionResult<'a>, NotBound> {
        let (set, result) = self.open().map_err(|_| NotBound)?;
        let mut w = Writer { bytes: Vec::with_capacity(self.body.len()) };
        set.encode(&mut w);
        let at_home = self.bound.map(|_| &self.made_in);
        // The set must have the very bytes of its encoding. Otherwise two different bodies could
        // have one fingerprint.
        match self.body.starts_with(&w.bytes) && strong_fingerprint(weak, at_home, &w.bytes) == self.strong {
            true => Ok(result),
            false => Err(NotBound),
        }
    }

    /// Returns the set, to be read directory by directory, and the result.
    pub fn open_to_read(&self) -> Result<(SetReader<'a>, ActionResult<'a>), DecodeError> {
        if self.unchecked.is_some_and(|digest| digest != Digest::of(self.body)) {
            return Err(DecodeError::Damaged);
        }
        let mut r = Reader::new(self.body);
        let set = SetReader::open(&mut r)?;
        let result = ActionResult::decode(&mut r)?;
        r.finish()?;
        Ok((set, result))
    }
}

/// The error for an entry whose strong fingerprint does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotBound;

fn strong_fingerprint(weak: &Fingerprint, bound: Option<&Digest>, set: &[u8]) -> Fingerprint {
    let mut before = Writer::default();
    before.digest(weak);
    before.u8(bound.is_some().into());
    if let Some(roots) = bound {
        before.digest(roots);
    }
    before.number(set.len() as u64);
    let mut all = DigestWriter::default();
    all.update(&before.bytes);
    all.update(set);
    all.finish()
}

impl<'a> Manifest<'a> {
    /// Makes a manifest without entries for the walk that made `weak`.
    pub fn new(weak: Fingerprint, walk: &'a ExplainWalk) -> Self {
        let field = |field: &'a Field| (field.name.as_bytes(), field.value.as_slice());
        Manifest { weak, fields: walk.fields.iter().map(field).collect(), entries: Vec::new() }
    }

    /// Inserts `entry` as the newest one, in place of an entry with the same strong fingerprint. If
    /// there are more than [`MANIFEST_ENTRIES_MAX`], the oldest is dropped. Nothing is inserted if
    /// the present entry has a better origin. For example, a fetched record does not replace one
    /// that was recorded with this store.
    pub fn add(&mut self, entry: Entry<'a>) {
        if self.entries.iter().any(|old| old.strong == entry.strong && old.origin.outranks(&entry.origin)) {
            return;
        }
        self.entries.retain(|old| old.strong != entry.strong);
        self.entries.insert(0, entry);
        self.entries.truncate(MANIFEST_ENTRIES_MAX);
    }

    /// Drops the entries that are not believed under `trust`, the setting `remote_trust`.
    pub fn keep_believed(&mut self, trust: &[String]) {
        self.entries.retain(|entry| entry.origin.is_believed(trust));
    }

    /// Returns the encoded manifest.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(FORMAT_VERSION);
        w.digest(&self.weak);
        w.number(self.fields.len() as u64);
        for (name, value) in &self.fields {
            w.bytes(name);
            w.bytes(value);
        }
        w.number(self.entries.len() as u64);
        for entry in &self.entries {
            w.digest(&entry.strong);
            w.u8(entry.observer as u8);
            entry.origin.encode(&mut w);
            w.number(entry.run_time_us);
            w.digest(&entry.made_in);
            w.u8(entry.bound.map_or(0, Bound::code));
            w.bytes(entry.bound_by);
            w.number(entry.body.len() as u64);
            w.digest(&Digest::of(entry.body));
        }
        let mut bytes = w.seal();
        self.entries.iter().for_each(|entry| bytes.extend_from_slice(entry.body));
        bytes
    }

    /// Decodes a manifest. Bodies are decoded when entries are opened.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (mut manifest, r) = Manifest::read(bytes)?;
        r.ok_or(DecodeError::Truncated(bytes.len()))?.finish()?;
        for entry in &mut manifest.entries {
            if entry.unchecked.take().is_some_and(|digest| digest != Digest::of(entry.body)) {
                return Err(DecodeError::Damaged);
            }
        }
        Ok(manifest)
    }

    /// Decodes the start of a manifest: the entries whose bodies are complete, which are the newest
    /// ones. The digest of a body is checked when the entry is opened.
    pub fn decode_start(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Manifest::read(bytes).map(|(manifest, _)| manifest)
    }

    /// Decodes the complete entries. Returns the reader after the last body if no body is missing.
    fn read(bytes: &'a [u8]) -> Result<(Self, Option<Reader<'a>>), DecodeError> {
        let mut r = Reader::versioned(bytes, FORMAT_VERSION)?;
        let weak = r.digest()?;
        let mut fields = Vec::new();
        for _ in 0..r.count()? {
            fields.push((r.bytes(FIELD_BYTES_MAX)?, r.bytes(FIELD_BYTES_MAX)?));
        }
        let count = r.count_up_to(MANIFEST_ENTRIES_MAX as u64)?;
        let (mut entries, mut bodies) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for _ in 0..count {
            let strong = r.digest()?;
            let observer = r.one_of(Observer::ALL)?;
            let origin = Origin::decode(&mut r)?;
            let run_time_us = r.number()?;
            let made_in = r.digest()?;
            let bound = match r.u8()? {
                0 => None,
                code => Some(Bound::from_code(code).ok_or(r.unknown_tag(code))?),
            };
            let bound_by = r.bytes(FIELD_BYTES_MAX)?;
            bodies.push((r.number_up_to(ENTRY_BYTES_MAX)? as usize, r.digest()?));
            let (body, unchecked) = (&[][..], None);
            entries.push(Entry { strong, observer, origin, run_time_us, made_in, bound, bound_by, body, unchecked });
        }
        let head = &bytes[..r.position()];
        if Digest::of(head) != r.digest()? {
            return Err(DecodeError::Damaged);
        }
        for at in 0..count {
            let (length, digest) = bodies[at];
            let Ok(body) = r.take(length) else {
                entries.truncate(at);
                return Ok((Manifest { weak, fields, entries }, None));
            };
            (entries[at].body, entries[at].unchecked) = (body, Some(digest));
        }
        Ok((Manifest { weak, fields, entries }, Some(r)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, Streams, Walk};

    fn sample(body: &mut Vec<u8>, exit_code: u8) -> Entry<'_> {
        let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
        let result = ActionResult { exit_code, repeatable: true, ..ActionResult::of(streams) };
        static MADE: Made = Made { made_in: Digest([3; 32]), bound: None };
        Entry::new(&Digest::of(b"w"), Observer::Preload, 9, &MADE, &ObservationSet::default(), &result, body)
    }

    #[test]
    fn there_and_back_and_never_damaged() {
        let mut walk = ExplainWalk::default();
        walk.field("argument", b"-c");
        let mut body = Vec::new();
        let mut manifest = Manifest::new(Digest::of(b"w"), &walk);
        manifest.add(sample(&mut body, 7));
        let bytes = manifest.encode();
        let back = Manifest::decode(&bytes).expect("own bytes");
        assert_eq!(back, manifest);
        assert_eq!(back.entries[0].open().expect("own bytes").1.exit_code, 7);
        assert_eq!(back.entries[0].open_bound_to(&back.weak).expect("own bytes").exit_code, 7);
        assert!(back.entries[0].open_bound_to(&Digest::of(b"other")).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            assert!(Manifest::decode(&damaged).is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_start_of_it_has_the_newest_entries() {
        let walk = ExplainWalk::default();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let mut manifest = Manifest::new(Digest::of(b"w"), &walk);
        manifest.add(sample(&mut a, 1));
        let other = Entry { strong: Digest([9; 32]), ..sample(&mut b, 2) };
        manifest.add(other.clone());
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode_start(&bytes).expect("is whole").encode(), bytes);
        let cut = &bytes[..bytes.len() - 1];
        let start = Manifest::decode_start(cut).expect("its first entry is whole");
        assert_eq!((start.entries.len(), start.entries[0].open()), (1, other.open()));
        assert_eq!(Manifest::decode(cut).err(), Some(DecodeError::Truncated(cut.len())));
        let head = bytes.len() - manifest.entries.iter().map(|entry| entry.body.len()).sum::<usize>();
        assert_eq!(Manifest::decode_start(&bytes[..head]).expect("none is whole").entries, []);
        for at in 0..cut.len() {
            let mut damaged = cut.to_vec();
            damaged[at] ^= 0x41;
            match Manifest::decode_start(&damaged) {
                Err(_) => assert!(at < head, "byte {at}"),
                Ok(start) => {
                    // An incomplete body is not read.
                    let is_read = (head..head + start.entries[0].body.len()).contains(&at);
                    assert_eq!((at < head, start.entries[0].open().is_err()), (false, is_read), "byte {at}");
                }
            }
        }
    }

    /// A record of this machine is not replaced by one that was fetched or handed over for the same
    /// observations, but replaces such a record.
    #[test]
    fn a_worse_origin_replaces_nothing() {
        let walk = ExplainWalk::default();
        let fetched = Origin::Fetched(Some(Digest([7; 32])));
        for (first, second, stays) in [
            (Origin::Own, fetched, true),
            (Origin::Own, Origin::HandedOver, true),
            (fetched, Origin::HandedOver, true),
            (Origin::HandedOver, fetched, false),
            (fetched, Origin::Own, false),
            (fetched, Origin::Fetched(None), false),
        ] {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let mut manifest = Manifest::new(Digest::of(b"w"), &walk);
            manifest.add(Entry { origin: first, ..sample(&mut a, 1) });
            manifest.add(Entry { origin: second, ..sample(&mut b, 2) });
            let bytes = manifest.encode();
            let back = Manifest::decode(&bytes).expect("own bytes");
            let exit_code = back.entries[0].open().expect("own bytes").1.exit_code;
            assert_eq!((back.entries.len(), exit_code == 1), (1, stays), "{first:?} then {second:?}");
            assert_eq!(back.entries[0].origin, if stays { first } else { second });
        }
    }

    #[test]
    fn a_signer_that_is_not_trusted_any_more_answers_nothing() {
        let walk = ExplainWalk::default();
        let signer = Digest([0xab; 32]);
        let bodies: &mut [Vec<u8>; 4] = &mut Default::default();
        let origins = [Origin::Own, Origin::HandedOver, Origin::Fetched(None), Origin::Fetched(Some(signer))];
        let mut manifest = Manifest::new(Digest::of(b"w"), &walk);
        for ((body, origin), number) in bodies.iter_mut().zip(origins).zip(1..) {
            manifest.entries.push(Entry { origin, strong: Digest([number; 32]), ..sample(body, 0) });
        }
        let left = |trust: &[String]| {
            let mut manifest = manifest.clone();
            manifest.keep_believed(trust);
            manifest.entries.iter().map(|entry| entry.strong.0[0]).collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), [1, 2, 3, 4]);
        assert_eq!(left(&["AB".repeat(32)]), [1, 2, 4]);
        assert_eq!(left(&["cd".repeat(32)]), [1, 2]);
    }

    #[test]
    fn one_entry_a_strong_fingerprint() {
        let walk = ExplainWalk::default();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let mut manifest = Manifest::new(Digest::of(b"w"), &walk);
        manifest.add(sample(&mut a, 1));
        manifest.add(sample(&mut b, 2));
        assert_eq!(manifest.entries.len(), 1);
        assert_eq!(manifest.entries[0].open().expect("own bytes").1.exit_code, 2);
    }
}
