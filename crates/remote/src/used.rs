//! The list of what builds of a commit used: weak fingerprints, and references to the bundles with
//! most of their records. The next build prefetches from it.
//!
//! ```text
//! used   = u8 format version, digest place, number of weak fingerprints, digest*,
//!          number of bundles, bundle*, digest
//! bundle = digest of it, number of its bytes, number of its records, held*
//! held   = number of the weak fingerprint in the list, first 8 bytes of the strong fingerprint
//! ```
//! Both parts are sorted newest first. When a build adds to a list, records that are in no bundle
//! yet go into new bundles. The list of the next commit refers to the bundles of the one before, so
//! that a record is uploaded once and not once for each commit.
//!
//! In this module a place is the digest that names a list. `larderd` makes it from a commit.
//!
//! Unaware of: commits, checkouts.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_model::{DecodeError, Digest, Reader, Single, Writer};

use crate::bundle::{PACKED_AT_ONCE_BYTES, Piece, RECORDS_MAX, Unpacked, Whole, limited, pack, unpack};
use crate::items::get_one;
use crate::remotes::One;
use crate::tally::Share;
use crate::{Key, Put, RemoteError, Remotes, SMALL_BYTES_MAX, whole};

/// The version of this format. Version 1 is not read any more.
pub(crate) const USED_FORMAT: u8 = 2;
/// The most weak fingerprints in a list.
pub const USED_MAX: usize = RECORDS_MAX;
/// The most bundles in a list.
const BUNDLES_MAX: usize = 1024;
/// If a list has more small bundles than this, their records are packed into larger ones, because
/// each bundle is a request. A bundle is small if it has less than a quarter of the largest size
/// and fewer than [`FEW_RECORDS`] records.
const SMALL_ONES_MAX: usize = 32;
const FEW_RECORDS: usize = 32;
/// A record with more bytes of blobs than this is in no bundle. Fetching it by itself is as fast.
const BUNDLED_BYTES_MAX: u64 = 512 << 10;

/// The list of what builds of a commit used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Weak fingerprints, newest first.
    pub weaks: Vec<Digest>,
    /// Bundles with the records of most of these fingerprints, newest first.
    pub bundles: Vec<Bundle>,
}

/// A reference to a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The digest of the bundle.
    pub digest: Digest,
    /// The bytes of the bundle.
    pub size_bytes: u64,
    /// Its records: the weak fingerprint and the beginning of the strong one.
    pub records: Vec<(Digest, Hint)>,
}

/// The beginning of a strong fingerprint. It is enough to tell whether a store has this record
/// already.
pub type Hint = [u8; HINT_BYTES];
const HINT_BYTES: usize = 8;

fn hint(strong: &Digest) -> Hint {
    std::array::from_fn(|at| strong.0[at])
}

/// Reads the newest record of a weak fingerprint from the local store, with its blobs. Returns
/// `None` if there is none or if it has more bytes than the second argument.
pub type Reading<'a> = dyn Fn(Digest, u64) -> BoxFuture<'a, Option<Whole>> + Send + Sync + 'a;

impl Used {
    /// Decodes a list. Returns an empty one if it is damaged, or of another place or version.
    pub(crate) fn decode(place: &Digest, bytes: &[u8]) -> Used {
        Used::read(place, bytes).unwrap_or_default()
    }

    fn read(place: &Digest, bytes: &[u8]) -> Result<Used, DecodeError> {
        let mut r = Reader::sealed(bytes)?;
        if r.u8()? != USED_FORMAT || r.digest()? != *place {
            return Err(DecodeError::Damaged);
        }
        let count = limited(r.count()?, USED_MAX)?;
        let weaks: Vec<Digest> = (0..count).map(|_| r.digest()).collect::<Result<_, _>>()?;
        let count = limited(r.count()?, BUNDLES_MAX)?;
        let bundles = (0..count).map(|_| Bundle::read(&mut r, &weaks)).collect::<Result<_, _>>()?;
        r.finish()?;
        Ok(Used { weaks, bundles })
    }

    pub(crate) fn encode(&self, place: &Digest) -> Bytes {
        let mut w = Writer::default();
        w.u8(USED_FORMAT);
        w.digest(place);
        w.number(self.weaks.len() as u64);
        self.weaks.iter().for_each(|weak| w.digest(weak));
        let numbers: HashMap<&Digest, u64> = self.weaks.iter().zip(0..).collect();
        w.number(self.bundles.len() as u64);
        self.bundles.iter().for_each(|bundle| bundle.write(&mut w, &numbers));
        w.seal().into()
    }

    /// Returns this list, followed by what is only in `other`.
    fn with(mut self, other: Used) -> Used {
        let mut seen = HashSet::new();
        self.weaks.extend(other.weaks);
        self.weaks.retain(|weak| seen.insert(*weak));
        self.weaks.truncate(USED_MAX);
        let mut seen = HashSet::new();
        self.bundles.extend(other.bundles);
        self.bundles.retain(|bundle| seen.insert(bundle.digest));
        self
    }

    /// Returns the list without useless bundles: none of the records is in the list, or newer
    /// bundles have all of them.
    fn tidied(mut self) -> Used {
        let listed: HashSet<Digest> = self.weaks.iter().copied().collect();
        let mut newer = HashSet::new();
        self.bundles.retain_mut(|bundle| {
            bundle.records.retain(|(weak, _)| listed.contains(weak));
            // `count`, because `any` would stop before all records are noted.
            bundle.records.iter().filter(|(weak, _)| newer.insert(*weak)).count() > 0
        });
        self
    }
}

impl Bundle {
    fn read(r: &mut Reader<'_>, weaks: &[Digest]) -> Result<Bundle, DecodeError> {
        let (digest, size_bytes) = (r.digest()?, r.number()?);
        let count = limited(r.count()?, USED_MAX)?;
        let mut held = || {
            let weak = usize::try_from(r.number()?).ok().and_then(|number| weaks.get(number));
            let hint = r.take(HINT_BYTES)?.try_into().map_err(|_| DecodeError::Damaged)?;
            Ok((*weak.ok_or(DecodeError::Damaged)?, hint))
        };
        let records = (0..count).map(|_| held()).collect::<Result<_, DecodeError>>()?;
        Ok(Bundle { digest, size_bytes, records })
    }

    fn write(&self, w: &mut Writer, numbers: &HashMap<&Digest, u64>) {
        w.digest(&self.digest);
        w.number(self.size_bytes);
        let held: Vec<_> = self.records.iter().filter_map(|(weak, hint)| Some((numbers.get(weak)?, hint))).collect();
        w.number(held.len() as u64);
        for (number, hint) in held {
            w.number(*number);
            w.bytes.extend_from_slice(hint);
        }
    }
}

impl Remotes {
    /// Returns the list of the first of these places that has one, merged from all remotes.
    pub async fn used(&self, places: &[Digest]) -> Result<Used, RemoteError> {
        let keys: Vec<Key> = places.iter().copied().map(Key::used).collect();
        let asked = self.all.iter().map(|one| one.remote.get_small(&keys));
        let mut answers: Vec<Option<Vec<Used>>> = Vec::with_capacity(self.all.len());
        let mut trouble = None;
        for answer in futures::future::join_all(asked).await {
            let read = |(place, list): (&Digest, Option<Bytes>)| list.map(|list| Used::decode(place, &list));
            let lists =
                answer.map(|lists| places.iter().zip(lists).map(|each| read(each).unwrap_or_default()).collect());
            answers.push(lists.map_err(|error| trouble = Some(error)).ok());
        }
        for (at, place) in places.iter().enumerate() {
            let lists: Vec<Option<&Used>> =
                answers.iter().map(|lists| lists.as_ref().map(|lists| &lists[at])).collect();
            let used = lists.iter().flatten().fold(Used::default(), |used, list| used.with((*list).clone()));
            if !used.weaks.is_empty() {
                self.pass_list_on(place, &used, &lists);
                return Ok(used);
            }
        }
        trouble.map_or(Ok(Used::default()), Err)
    }

    /// Copies a merged list to the remotes that lack some of it and are nearer than the farthest
    /// one with a list.
    fn pass_list_on(&self, place: &Digest, used: &Used, lists: &[Option<&Used>]) {
        let farthest =
            lists.iter().rposition(|list| list.is_some_and(|list| !list.weaks.is_empty())).unwrap_or_default();
        for at in self.nearer(farthest) {
            let Some(own) = lists[at].filter(|_| self.all[at].remote.abilities().replace) else { continue };
            if (own.weaks.len(), own.bundles.len()) != (used.weaks.len(), used.bundles.len()) {
                let mut used = used.clone();
                used.bundles.truncate(BUNDLES_MAX);
                self.pass_on(at, Key::used(*place), used.encode(place), Put::Replace);
            }
        }
    }

    /// Fetches a bundle from the nearest remote that has it. Returns `None` if that fails.
    pub async fn bundle(&self, bundle: &Bundle) -> Option<Unpacked> {
        if bundle.size_bytes > SMALL_BYTES_MAX {
            return None;
        }
        let key = Key::blob(bundle.digest);
        let (mut lacking, mut found) = (Vec::new(), None);
        for (at, one) in self.all.iter().enumerate() {
            match get_one(&*one.remote, key).await {
                Ok(Some(bytes)) if Digest::of(&bytes) == bundle.digest => {
                    lacking.retain(|&nearer| self.nearer(at).any(|it| it == nearer));
                    found = Some(bytes);
                    break;
                }
                Ok(None) => lacking.push(at),
                Ok(Some(_)) | Err(_) => {}
            }
        }
        let bytes = found?;
        let Ok(unpacked) = unpack(&bytes) else {
            self.tally.add(Share::Damaged, 1);
            return None;
        };
        // A bundle is copied only if all its records are trusted.
        if !lacking.is_empty() && unpacked.believed(self.keys(), |_| true, |_, _| {}).is_empty() {
            lacking.into_iter().for_each(|at| self.pass_on(at, key, bytes.clone(), Put::IfAbsent));
        }
        Some(unpacked)
    }

    /// Verifies the records of a bundle whose weak fingerprint `is_wanted`. Calls `take` for each
    /// trusted record, with the bytes of its manifest. Rejected records are counted.
    pub fn believed(
        &self,
        unpacked: &Unpacked,
        is_wanted: impl Fn(&Digest) -> bool,
        take: impl FnMut(&Bytes, &Single<'_>),
    ) {
        let dropped = unpacked.believed(self.keys(), is_wanted, take);
        dropped.into_iter().for_each(|why| self.tally.add(why.into(), 1));
    }

    /// Adds to the list of a place, on every writable remote: first `fresh`, newest first, then
    /// `base`, the list that the build began with. Records that are in no bundle yet are uploaded
    /// in new bundles. Returns how many bytes of bundles were uploaded.
    ///
    /// Of several concurrent writers the last one may win. A lost fingerprint only costs a
    /// prefetch.
    pub async fn publish_used(
        &self,
        place: &Digest,
        fresh: &[Digest],
        base: &Used,
        reading: &Reading<'_>,
    ) -> Result<u64, RemoteError> {
        let mut outcome = Ok(0);
        for one in self.all.iter().filter(|one| !one.read_only && one.remote.abilities().replace) {
            let added = self.publish_used_on(one, place, fresh, base, reading).await;
            outcome = outcome.and_then(|sent| Ok(sent + added?));
        }
        outcome
    }

    async fn publish_used_on(
        &self,
        one: &One,
        place: &Digest,
        fresh: &[Digest],
        base: &Used,
        reading: &Reading<'_>,
    ) -> Result<u64, RemoteError> {
        let key = Key::used(*place);
        let old = get_one(&*one.remote, key).await?.map(|bytes| Used::decode(place, &bytes)).unwrap_or_default();
        let new = Used { weaks: fresh.to_vec(), bundles: Vec::new() };
        let limit = one.remote.abilities().one_request_bytes;
        // Bundles in the place's own list are newer than those in `base`.
        let began_with = Used { weaks: base.weaks.clone(), bundles: Vec::new() };
        let mut used = new.with(began_with).with(old).with(base.clone()).tidied();
        used.bundles = there(one, used.bundles).await?;
        let is_small = |bundle: &Bundle| bundle.size_bytes < limit / 4 && bundle.records.len() < FEW_RECORDS;
        if used.bundles.iter().filter(|bundle| is_small(bundle)).count() > SMALL_ONES_MAX {
            used.bundles.retain(|bundle| !is_small(bundle));
        }
        let known: HashMap<Digest, Hint> = used.bundles.iter().rev().flat_map(|one| one.records.clone()).collect();
        let fresh: HashSet<&Digest> = fresh.iter().collect();
        // In the order in which the build used them, because the next build needs them in that
        // order.
        let due: Vec<Digest> =
            used.weaks.iter().rev().filter(|weak| fresh.contains(weak) || !known.contains_key(weak)).copied().collect();
        let mut sent = 0;
        let mut pieces: Vec<Piece> = Vec::new();
        for weak in due {
            let Some(whole) = reading(weak, BUNDLED_BYTES_MAX).await else { continue };
            let Some(piece) = Piece::of(whole, self.keys()) else { continue };
            if known.get(&weak) == Some(&hint(&piece.item.strong)) {
                continue;
            }
            if pieces.iter().chain([&piece]).map(Piece::size_bytes).sum::<u64>() > PACKED_AT_ONCE_BYTES {
                sent += send(one, &mut pieces, limit, &mut used.bundles).await?;
            }
            pieces.push(piece);
        }
        sent += send(one, &mut pieces, limit, &mut used.bundles).await?;
        used.bundles.truncate(BUNDLES_MAX);
        let bytes = used.encode(place);
        one.remote.put(key, bytes.len() as u64, whole(bytes), Put::Replace).await?;
        Ok(sent)
    }
}

/// Returns the bundles that this remote has. It may have evicted some, and others may come from
/// another remote.
async fn there(one: &One, bundles: Vec<Bundle>) -> Result<Vec<Bundle>, RemoteError> {
    if bundles.is_empty() {
        return Ok(bundles);
    }
    let keys: Vec<Key> = bundles.iter().map(|bundle| Key::blob(bundle.digest)).collect();
    let has = one.remote.has(&keys).await?;
    Ok(bundles.into_iter().zip(has).filter_map(|(bundle, there)| there.then_some(bundle)).collect())
}

/// Uploads the gathered records as bundles of at most `limit` bytes, and puts those at the front of
/// `bundles`. A single record that is larger is left out. Returns how many bytes were uploaded.
async fn send(one: &One, pieces: &mut Vec<Piece>, limit: u64, bundles: &mut Vec<Bundle>) -> Result<u64, RemoteError> {
    let mut sent = 0;
    let mut rest = vec![std::mem::take(pieces)];
    while let Some(mut pieces) = rest.pop() {
        if pieces.is_empty() {
            continue;
        }
        let packed = pack(&pieces);
        if packed.len() as u64 > limit {
            let second = pieces.split_off(pieces.len() / 2);
            if !pieces.is_empty() {
                rest.extend([second, pieces]);
            }
            continue;
        }
        let (digest, size_bytes) = (Digest::of(&packed), packed.len() as u64);
        one.remote.put(Key::blob(digest), size_bytes, whole(packed), Put::IfAbsent).await?;
        let records = pieces.iter().map(|piece| (piece.weak, hint(&piece.item.strong))).collect();
        bundles.insert(0, Bundle { digest, size_bytes, records });
        sent += size_bytes;
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> Digest {
        Digest([number; 32])
    }

    fn bundle(number: u8, held: &[(u8, u8)]) -> Bundle {
        let records = held.iter().map(|(weak, strong)| (digest(*weak), [*strong; HINT_BYTES])).collect();
        Bundle { digest: digest(number), size_bytes: 300, records }
    }

    #[test]
    fn bytes_are_these() {
        let used = Used { weaks: vec![digest(1), digest(2)], bundles: vec![bundle(9, &[(2, 7)])] };
        let bytes = used.encode(&digest(5));
        let expected = [&[2][..], &[5; 32], &[2], &[1; 32], &[2; 32], &[1], &[9; 32], b"\xac\x02", &[1, 1], &[7; 8]];
        assert_eq!(bytes[..bytes.len() - 32], expected.concat());
        assert_eq!(Used::decode(&digest(5), &bytes), used);
        assert_eq!(Used::decode(&digest(6), &bytes), Used::default(), "the list is of another place");
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert_eq!(Used::decode(&digest(5), &damaged), Used::default(), "{at}");
        }
    }

    #[test]
    fn bundles_that_nobody_needs_go() {
        let weaks = vec![digest(1), digest(2)];
        let bundles =
            vec![bundle(10, &[(1, 2)]), bundle(11, &[(1, 1), (2, 1)]), bundle(12, &[(2, 0)]), bundle(13, &[(3, 1)])];
        let tidied = Used { weaks, bundles }.tidied();
        let left: Vec<Digest> = tidied.bundles.iter().map(|bundle| bundle.digest).collect();
        assert_eq!(left, [digest(10), digest(11)]);
    }
}
