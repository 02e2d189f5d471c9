//! The index of packs: which object is in which pack.
//!
//! ```text
//! index  = u8 format version, number of its base, number of packs, pack*, digest
//! pack   = u8 (0: a pack, 1: objects that are stored by themselves), digest of the pack if it is
//!          one, number of objects, object*
//! object = u8 letter of its kind, digest, number of its bytes
//! ```
//! The service never changes an object, so an index is a chain of generations, and a writer takes
//! the next free number. Each day has its own chain: the service forgets what was not read for a
//! week, so a single chain would lose its beginning. A base has all packs; the generations after it
//! have the packs since then. A number may be missing for ever, because the service reserves it for
//! an upload that then fails.
//!
//! For example, a reader that finds generation 37 as the newest one of today, with the base 32,
//! reads these two.
//!
//! Unaware of: what objects contain, when packs are written.

use crate::items::get_one;
use crate::merge::{GENERATIONS_MAX, generation};
use crate::{Key, ObjectKind, Remote, RemoteError};
use bytes::Bytes;
use larder_model::{DecodeError, Digest, Reader, Writer};
use std::collections::{HashMap, HashSet};

const INDEX_FORMAT: u8 = 1;
/// After so many generations a writer makes a new base.
const BASE_EACH: u64 = 16;
/// So many missing numbers in a row are not the end of a chain.
const HOLES_MAX: u64 = 2;
/// The most objects in an index, so that it has less than `SMALL_BYTES_MAX`. The oldest packs are
/// forgotten first.
const OBJECTS_MAX: usize = 24_000;
/// The most bytes of an object that an index may claim.
const SIZE_MAX: u64 = 1 << 40;
/// How many days before today are searched for an index.
const DAYS_BACK: u64 = 7;

/// Objects that were written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pack {
    /// The pack, or `None` if the objects are stored by themselves.
    pub(super) digest: Option<Digest>,
    /// The objects and their sizes in bytes, in the order in which they are in the pack.
    pub(super) objects: Vec<(Key, u64)>,
}

/// An object is uploaded by itself, or is a part of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// Stored by itself.
    Alone,
    /// A range of bytes of an unpacked pack.
    In { pack: Digest, offset: usize, size: usize },
}

/// The index as far as it is known here.
#[derive(Default)]
pub(super) struct Index {
    /// The day and number of the newest generation that was read or written.
    newest: Option<(u64, u64)>,
    /// The number of its base.
    base: u64,
    packs: Vec<Pack>,
    /// So many of `packs` are in the base.
    in_base: usize,
    /// Packs that the service does not have any more.
    gone: HashSet<Digest>,
    places: HashMap<Key, Location>,
}

/// The next generation, to be written if its number is still free.
pub(super) struct Next {
    /// The day and number.
    pub(super) at: (u64, u64),
    base: u64,
    /// The packs of earlier generations, if it is a base.
    kept: Option<Vec<Pack>>,
    pub(super) key: Key,
    pub(super) bytes: Bytes,
}

impl Index {
    pub(super) fn place(&self, key: &Key) -> Option<Location> {
        self.places.get(key).copied()
    }

    /// Notes that the service has forgotten a pack.
    pub(super) fn forget(&mut self, pack: Digest) {
        if self.gone.insert(pack) {
            self.find_places();
        }
    }

    /// Reads what other clients have added.
    pub(super) async fn refresh(&mut self, remote: &dyn Remote, today: u64) -> Result<(), RemoteError> {
        let Some((day, number)) = self.latest(remote, today).await? else { return Ok(()) };
        if self.newest == Some((day, number)) {
            return Ok(());
        }
        let (base, packs) = read(remote, day, number).await?.unwrap_or((number, Vec::new()));
        if base == number {
            (self.packs, self.in_base) = (Vec::new(), packs.len());
        } else if self.newest.is_some_and(|(known, _)| (known, self.base) == (day, base)) {
            self.packs.truncate(self.in_base);
        } else {
            self.packs = read(remote, day, base).await?.map(|(_, packs)| packs).unwrap_or_default();
            self.in_base = self.packs.len();
        }
        self.packs.extend(packs);
        (self.newest, self.base) = (Some((day, number)), base);
        self.find_places();
        Ok(())
    }

    /// Returns the day and number of the newest generation.
    async fn latest(&self, remote: &dyn Remote, today: u64) -> Result<Option<(u64, u64)>, RemoteError> {
        let (oldest, known) = match self.newest {
            Some((day, number)) => (day, Some((day, number))),
            None => (today.saturating_sub(DAYS_BACK), None),
        };
        // Today may be before the newest day, because the clocks of machines differ.
        let days: Vec<u64> = (oldest + u64::from(known.is_some())..=today).rev().collect();
        let keys: Vec<Key> = days.iter().map(|&day| Key::index(day)).collect();
        let there = if keys.is_empty() { Vec::new() } else { remote.has(&keys).await? };
        let newer = days.into_iter().zip(there).find(|(_, there)| *there).map(|(day, _)| (day, 0));
        let Some((day, known)) = newer.or(known) else { return Ok(None) };
        Ok(Some((day, newest(remote, Key::index(day), known).await?)))
    }

    /// Returns the next generation, with these packs added; `None` if today's chain is full. Passes
    /// over numbers that are taken by an upload that never ends, but not over so many that they
    /// would look like the end of the chain.
    pub(super) fn next(&self, today: u64, is_taken: impl Fn(&(u64, u64)) -> bool, new: &[Pack]) -> Option<Next> {
        let newest = self.newest.filter(|(day, _)| *day >= today);
        let (day, mut number) = newest.map_or((today, 0), |(day, number)| (day, number + 1));
        let last = if newest.is_some() { number + HOLES_MAX } else { number };
        while number < last && is_taken(&(day, number)) {
            number += 1;
        }
        if number >= GENERATIONS_MAX {
            return None;
        }
        let objects = |packs: &[Pack]| packs.iter().map(|pack| pack.objects.len()).sum::<usize>();
        let since_base = objects(&self.packs[self.in_base..]) + objects(new);
        let is_base = newest.is_none() || number - self.base >= BASE_EACH || since_base > OBJECTS_MAX / 2;
        let kept = is_base.then(|| self.newest_packs(OBJECTS_MAX.saturating_sub(objects(new))));
        let base = if is_base { number } else { self.base };
        let before = kept.as_deref().unwrap_or(&self.packs[self.in_base..]);
        let bytes = encode(base, before.iter().chain(new));
        Some(Next { at: (day, number), base, kept, key: generation(Key::index(day), number), bytes })
    }

    /// Returns the newest packs with at most so many objects, without packs that are gone.
    fn newest_packs(&self, mut most: usize) -> Vec<Pack> {
        let fits = |pack: &&Pack| {
            let fits = pack.objects.len() <= most;
            most = most.saturating_sub(pack.objects.len());
            fits && pack.digest.is_none_or(|digest| !self.gone.contains(&digest))
        };
        let mut kept: Vec<Pack> = self.packs.iter().rev().filter(fits).cloned().collect();
        kept.reverse();
        kept
    }

    /// Notes that a generation was written with these packs added.
    pub(super) fn written(&mut self, next: Next, new: Vec<Pack>) {
        (self.newest, self.base) = (Some(next.at), next.base);
        let is_base = next.kept.is_some();
        if let Some(kept) = next.kept {
            self.packs = kept;
        }
        self.packs.extend(new);
        if is_base {
            self.in_base = self.packs.len();
        }
        self.find_places();
    }

    /// Finds the place of each object. Of two objects with one key the first one counts, because an
    /// object never changes.
    fn find_places(&mut self) {
        self.places.clear();
        for pack in &self.packs {
            let mut offset = 0;
            for &(key, size) in &pack.objects {
                let size = size as usize;
                let place = match pack.digest {
                    None => Location::Alone,
                    Some(digest) if self.gone.contains(&digest) => continue,
                    Some(pack) => Location::In { pack, offset, size },
                };
                self.places.entry(key).or_insert(place);
                offset = offset.saturating_add(size);
            }
        }
    }
}

/// Returns the number of the newest generation, given one that exists. Writers take the numbers one
/// after another, so it searches by doubling and then by halving.
async fn newest(remote: &dyn Remote, key: Key, known: u64) -> Result<u64, RemoteError> {
    // The last generation of these, which stand for one because some of them may be missing.
    let last_of = async |number: u64| {
        let numbers = number..=number + HOLES_MAX;
        let keys: Vec<Key> = numbers.clone().map(|number| generation(key, number)).collect();
        let there = remote.has(&keys).await?;
        Ok::<_, RemoteError>(numbers.zip(there).filter(|(_, there)| *there).map(|(number, _)| number).last())
    };
    let (mut last, mut gone) = (known, known + 1);
    while gone < GENERATIONS_MAX
        && let Some(there) = last_of(gone).await?
    {
        (last, gone) = (there, known + 2 * (gone - known) + 1);
        gone = gone.max(last + 1);
    }
    while gone - last > 1 {
        let middle = last + (gone - last) / 2;
        match last_of(middle).await? {
            Some(there) => last = there,
            None => gone = middle,
        }
        gone = gone.max(last + 1);
    }
    Ok(last)
}

/// Reads one generation: the number of its base, and its packs. Returns `None` if it is damaged or
/// forgotten.
async fn read(remote: &dyn Remote, day: u64, number: u64) -> Result<Option<(u64, Vec<Pack>)>, RemoteError> {
    let bytes = get_one(remote, generation(Key::index(day), number)).await?;
    Ok(bytes.and_then(|bytes| decode(&bytes).ok()))
}

fn encode<'p>(base: u64, packs: impl Iterator<Item = &'p Pack>) -> Bytes {
    let packs: Vec<&Pack> = packs.collect();
    let mut w = Writer::default();
    w.u8(INDEX_FORMAT);
    w.number(base);
    w.number(packs.len() as u64);
    for pack in packs {
        w.u8(pack.digest.is_none().into());
        if let Some(digest) = &pack.digest {
            w.digest(digest);
        }
        w.number(pack.objects.len() as u64);
        for (key, size) in &pack.objects {
            w.u8(key.kind.letter() as u8);
            w.digest(&key.digest);
            w.number(*size);
        }
    }
    w.seal().into()
}

fn decode(bytes: &[u8]) -> Result<(u64, Vec<Pack>), DecodeError> {
    let mut r = Reader::sealed(bytes)?;
    if r.u8()? != INDEX_FORMAT {
        return Err(DecodeError::Damaged);
    }
    let base = r.number()?;
    let mut packs = Vec::new();
    for _ in 0..r.count()? {
        let digest = match r.u8()? {
            0 => Some(r.digest()?),
            1 => None,
            _ => return Err(DecodeError::Damaged),
        };
        let mut objects = Vec::new();
        for _ in 0..r.count()? {
            let kind = ObjectKind::of_letter(r.u8()?).ok_or(DecodeError::Damaged)?;
            objects.push((Key { kind, digest: r.digest()? }, r.number_up_to(SIZE_MAX)?));
        }
        packs.push(Pack { digest, objects });
    }
    r.finish()?;
    Ok((base, packs))
}

/// Decodes bytes with the version and the seal that they need, for the fuzz target.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(data: &[u8]) {
    let mut w = Writer::default();
    w.u8(INDEX_FORMAT);
    w.bytes.extend_from_slice(data);
    let Ok((base, packs)) = decode(&w.seal()) else { return };
    let again = decode(&encode(base, packs.iter()));
    assert!(again.is_ok_and(|again| again == (base, packs)), "it is another when it is read again");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Abilities, Memory, Put, whole};

    fn pack(number: u8) -> Pack {
        let objects = vec![(Key::blob(Digest([number; 32])), 3), (Key::manifest(Digest([number; 32])), 300)];
        Pack { digest: (number != 9).then_some(Digest([0xee; 32])), objects }
    }

    #[test]
    fn bytes_are_these() {
        let bytes = encode(7, [pack(1), pack(9)].iter());
        let object = |letter: &[u8], number: u8, size: &[u8]| [letter, &[number; 32], size].concat();
        let pack_1 = [&[0][..], &[0xee; 32], &[2], &object(b"b", 1, &[3]), &object(b"m", 1, b"\xac\x02")].concat();
        let pack_9 = [&[1][..], &[2], &object(b"b", 9, &[3]), &object(b"m", 9, b"\xac\x02")].concat();
        assert_eq!(bytes[..bytes.len() - 32], [&[1, 7, 2][..], &pack_1, &pack_9].concat());
        assert_eq!(decode(&bytes).expect("it was encoded here"), (7, vec![pack(1), pack(9)]));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "{at}");
        }
    }

    #[test]
    fn another_client_reads_every_generation_of_several_days() {
        let abilities = Abilities { replace: false, swap: false, ..Memory::new("memory://").abilities() };
        let memory = Memory::with("memory://", abilities);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        let mut writer = Index::default();
        let mut reader = Index::default();
        runtime.block_on(async {
            for number in 0..3 * BASE_EACH as u8 {
                let today = 20_000 + u64::from(number) / 20;
                let new = Pack { digest: Some(Digest([number; 32])), ..pack(number) };
                // Some numbers are never used, as after an upload that failed.
                let is_taken = |_: &(u64, u64)| number % 7 == 3;
                let next = writer.next(today, is_taken, std::slice::from_ref(&new)).expect("the chain is short");
                let size = next.bytes.len() as u64;
                memory.put(next.key, size, whole(next.bytes.clone()), Put::IfAbsent).await.expect("stored");
                writer.written(next, vec![new]);
                reader.refresh(&memory, today).await.expect("read");
                let mut fresh = Index::default();
                fresh.refresh(&memory, today).await.expect("read");
                for index in [&writer, &reader, &fresh] {
                    assert_eq!(index.places, writer.places, "{number}");
                    assert_eq!(index.places.len(), 2 * (usize::from(number) + 1));
                }
            }
        });
        let lost = Digest([5; 32]);
        writer.forget(lost);
        assert_eq!(writer.place(&Key::blob(lost)), None);
    }
}
