//! What builds of a commit used: the list of that, and the bundles in which most of it lies.
//!
//! ```text
//! used   = u8 format version, digest place, number of weak fingerprints, digest*, number of bundles, bundle*, digest
//! bundle = digest of it, number of its bytes, number of its records, held*
//! held   = number of the weak fingerprint in the list, first 8 bytes of the strong fingerprint
//! ```
//! Newest first, both. A list grows, and so do its bundles: what came since is put into a new one. The list of the next
//! commit names those of the one before it, so a record is bundled once, not once a commit.
//!
//! Unaware of: what a place is.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures::future::BoxFuture;
use larder_model::{DecodeError, Digest, Reader, Single, Writer};

use crate::bundle::{PACKED_AT_ONCE_BYTES, Piece, Unpacked, Whole, pack, unpack};
use crate::remotes::{One, get_one};
use crate::tally::Share;
use crate::{Key, Put, RemoteError, Remotes, SMALL_BYTES_MAX, whole};

/// The version of this format.
pub(crate) const USED_FORMAT: u8 = 2;
/// Weak fingerprints of one list.
pub const USED_MAX: usize = 16_384;
/// Bundles of one list.
const BUNDLES_MAX: usize = 1024;
/// With so many small ones, of less than a quarter of what one may be and of few records, their records are put into
/// larger ones: each is a request.
const SMALL_ONES_MAX: usize = 32;
const FEW_RECORDS: usize = 32;
/// Records of which the blobs are more, bytes, are in no bundle: by themselves they are fetched as fast.
const BUNDLED_BYTES_MAX: u64 = 512 << 10;

/// What builds of a commit used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Weak fingerprints, newest first.
    pub weaks: Vec<Digest>,
    /// In these lie the records of most of them.
    pub bundles: Vec<Bundle>,
}

/// A bundle, by its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Of its bytes.
    pub digest: Digest,
    /// How many those are.
    pub size_bytes: u64,
    /// Weak fingerprints of its records, and by which record of that.
    pub records: Vec<(Digest, Hint)>,
}

/// The beginning of a strong fingerprint: enough to see whether a record is the newest one.
pub type Hint = [u8; HINT_BYTES];
const HINT_BYTES: usize = 8;

fn hint(strong: &Digest) -> Hint {
    std::array::from_fn(|at| strong.0[at])
}

/// Reads the newest record of a weak fingerprint from the local store, with what it needs; `None` where it is not there,
/// or has more bytes than the number says.
pub type Reading<'a> = dyn Fn(Digest, u64) -> BoxFuture<'a, Option<Whole>> + Send + Sync + 'a;

impl Used {
    /// Nothing where it is damaged, of another place or of another version.
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

    /// This first, then what is in `other` only.
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

    /// Without bundles of which nothing is in the list, or all is in newer ones too.
    fn tidied(mut self) -> Used {
        let listed: HashSet<Digest> = self.weaks.iter().copied().collect();
        let mut newer = HashSet::new();
        self.bundles.retain_mut(|bundle| {
            bundle.records.retain(|(weak, _)| listed.contains(weak));
            // All of them are noted, so not `any`.
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

fn limited(count: usize, most: usize) -> Result<usize, DecodeError> {
    if count > most { Err(DecodeError::Damaged) } else { Ok(count) }
}

impl Remotes {
    /// What was used at the first of these places at which anything was: of all remotes together.
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

    /// Pass what was used at a place on to those remotes that lack some of it and are nearer than one that has it.
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

    /// What a bundle holds, from the nearest remote that has it; `None` where it cannot be had.
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
        // Only what is believed as a whole is passed on.
        if !lacking.is_empty() && unpacked.believed(self.keys(), |_| true, |_, _| {}).is_empty() {
            lacking.into_iter().for_each(|at| self.pass_on(at, key, bytes.clone(), Put::IfAbsent));
        }
        Some(unpacked)
    }

    /// Look into those records of a bundle that are wanted, by their weak fingerprints, and tell `take` of each that is
    /// believed, with the bytes of its manifest. The others are counted.
    pub fn believed(
        &self,
        unpacked: &Unpacked,
        is_wanted: impl Fn(&Digest) -> bool,
        take: impl FnMut(&Bytes, &Single<'_>),
    ) {
        let dropped = unpacked.believed(self.keys(), is_wanted, take);
        dropped.into_iter().for_each(|why| self.tally.add(why.into(), 1));
    }

    /// Add to what was used at a place, on every remote that may be written: `fresh`, newest first, and then what a
    /// build began with, `base`. What is in no bundle is put into new ones. Returns how many bytes of bundles were sent.
    ///
    /// Of several writers at once the last may win: what is lost costs a prefetch.
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
        // What stands at this place already was bundled after what the build began with.
        let began_with = Used { weaks: base.weaks.clone(), bundles: Vec::new() };
        let mut used = new.with(began_with).with(old).with(base.clone()).tidied();
        used.bundles = there(one, used.bundles).await?;
        let is_small = |bundle: &Bundle| bundle.size_bytes < limit / 4 && bundle.records.len() < FEW_RECORDS;
        if used.bundles.iter().filter(|bundle| is_small(bundle)).count() > SMALL_ONES_MAX {
            used.bundles.retain(|bundle| !is_small(bundle));
        }
        let known: HashMap<Digest, Hint> = used.bundles.iter().rev().flat_map(|one| one.records.clone()).collect();
        let fresh: HashSet<&Digest> = fresh.iter().collect();
        // In the order in which they were used: so they will be asked for.
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

/// Those of `bundles` that this remote has: it may have forgotten some, and others were found on another one.
async fn there(one: &One, bundles: Vec<Bundle>) -> Result<Vec<Bundle>, RemoteError> {
    if bundles.is_empty() {
        return Ok(bundles);
    }
    let keys: Vec<Key> = bundles.iter().map(|bundle| Key::blob(bundle.digest)).collect();
    let has = one.remote.has(&keys).await?;
    Ok(bundles.into_iter().zip(has).filter_map(|(bundle, there)| there.then_some(bundle)).collect())
}

/// Send what was gathered, as bundles of at most `limit` bytes, and put them first. What is too large even by itself
/// goes into none. Returns how many bytes were sent.
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
        assert_eq!(Used::decode(&digest(6), &bytes), Used::default(), "it is another place's");
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
