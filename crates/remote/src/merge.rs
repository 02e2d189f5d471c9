//! How a list grows when several write it: none silently loses another's records.
//!
//! | the service | how |
//! |---|---|
//! | compares before it replaces | read, merge, replace what was read, again from the start where it was not that any more |
//! | the last writer wins | leave a note of what is added, read, merge, write, wait, look; where others are at it several times; what is lost is put back |
//! | an object never changes | generations, each under a name of its own: the next free one is taken and holds all before it |
//!
//! Where the last writer wins, a write that lands after everybody's last look takes with it what its writer had not
//! read. That writer knows that it was held up, or sees others at work: it reads the notes, and puts back what is in
//! them. A record is lost only where its note was overwritten as well, by one of as many that has the same place.
//! Whoever misses the record then makes it anew.
//!
//! Unaware of: what a record says, who is believed.

use crate::record::{Item, List};
use crate::remotes::{filled, get_one};
use crate::wait::Wait;
use crate::{Key, Put, Remote, RemoteError, Stored, Trouble, whole};
use bytes::Bytes;
use larder_model::Digest;
use std::time::Duration;
use tokio::time::Instant;

/// Tries to get records into a list before it is given up, with an error.
const TRIES_MAX: u32 = 24;
/// Where the last writer wins, it is waited for so many times what reading and writing took, before it is looked again.
const SETTLE_TIMES: u32 = 8;
/// How often own records must be seen, where nobody else was: the second look finds who was held up between reading and
/// writing.
const LOOKS: u32 = 2;
/// How often own records must be seen, after waits of which each is twice the one before, once somebody else was seen.
const LOOKS_WHERE_CONTENDED: u32 = 4;
/// Places for notes of what was added to a list; which one a writer takes is chance, by what it adds.
const NOTES: u64 = 64;
/// Generations of a list that never change; a list that has so many is full.
const GENERATIONS_MAX: u64 = 4096;
/// How many generations before the newest are read as well: one of them may be half-made, or lack what was lost.
const GENERATIONS_BEFORE: u64 = 2;

/// What merging came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// How often somebody else wrote between, and all was done again.
    pub(crate) contended: u64,
    /// How often our records were overwritten by another, and put back.
    pub(crate) put_back: u64,
    /// All of them were there as they are, and nothing was written.
    pub(crate) there: bool,
}

/// A list as it is now; what cannot be read counts as damaged, and as empty.
pub(crate) async fn read(remote: &dyn Remote, key: Key) -> Result<(List, u64), RemoteError> {
    if remote.abilities().replace {
        return Ok(opened(&key.digest, get_one(remote, key).await?));
    }
    let Some(newest) = newest(remote, key).await? else { return Ok((List::default(), 0)) };
    read_generations(remote, key, newest).await
}

/// Add records to a list, and store those of them that do not stand in it.
pub(crate) async fn add(
    remote: &dyn Remote,
    key: Key,
    new: &[Item],
    settle: Duration,
    wait: &Wait,
) -> Result<Merged, RemoteError> {
    match remote.abilities() {
        able if !able.replace => add_generation(remote, key, new, wait).await,
        able if able.swap => add_by_swap(remote, key, new, wait).await,
        _ => add_and_look(remote, key, new, settle, wait).await,
    }
}

async fn add_by_swap(remote: &dyn Remote, key: Key, new: &[Item], wait: &Wait) -> Result<Merged, RemoteError> {
    let mut merged = Merged::default();
    for attempt in 0..TRIES_MAX {
        let (bytes, mark) = remote.get_marked(key).await?.unzip();
        let (list, _) = opened(&key.digest, bytes);
        if are_there(remote, &list, new).await? {
            return Ok(Merged { there: true, ..merged });
        }
        let bytes = grown(remote, &key.digest, list, new).await?;
        if remote.swap(key, bytes, mark).await? {
            return Ok(merged);
        }
        merged.contended += 1;
        wait.backoff(attempt, Duration::from_millis(10), Duration::from_secs(1)).await;
    }
    Err(given_up(remote, key))
}

async fn add_and_look(
    remote: &dyn Remote,
    key: Key,
    new: &[Item],
    settle: Duration,
    wait: &Wait,
) -> Result<Merged, RemoteError> {
    let mut merged = Merged::default();
    let mut looks_needed = LOOKS;
    // What others have added of late, once there is a sign of them.
    let mut others = List::default();
    let own = leave_note(remote, key, new).await?;
    for _ in 0..TRIES_MAX {
        let start = Instant::now();
        let (mut list, _) = opened(&key.digest, get_one(remote, key).await?);
        if merged == Merged::default() && are_there(remote, &list, new).await? {
            // Whoever put them there looks after them, and our note stands as well.
            return Ok(Merged { there: true, ..merged });
        }
        list.merge(&[], &others);
        let bytes = grown(remote, &key.digest, list, &own.items).await?;
        remote.put(key, bytes.len() as u64, whole(bytes.clone()), Put::Replace).await?;
        let took = start.elapsed();
        // Who read before we wrote writes within about the time that reading and writing takes; then it shows.
        let mut pause = settle.max(took * SETTLE_TIMES);
        // As long as others look after they have written: some may have done both meanwhile.
        let mut crowded = took > settle * ((1 << LOOKS) - 1);
        let mut seen = 0;
        while seen < looks_needed {
            wait.about(pause).await;
            pause *= 2;
            let now = get_one(remote, key).await?;
            if now.as_ref() != Some(&bytes) {
                // Somebody else is at it, and a third may be: one look is not enough.
                looks_needed = LOOKS_WHERE_CONTENDED;
                crowded = true;
            }
            if crowded {
                others = read_notes(remote, key).await?;
            }
            let (now, _) = opened(&key.digest, now);
            if !now.has_all(new) || now.lacks(&others) {
                merged.put_back += 1;
                break;
            }
            seen += 1;
        }
        if seen == looks_needed {
            return Ok(merged);
        }
    }
    Err(given_up(remote, key))
}

/// Say what is being added where no other writer of this list writes, but for one in as many as there are places.
/// Returns the note as it is read: what does not stand in it is stored, and is not sent again with the list.
async fn leave_note(remote: &dyn Remote, key: Key, new: &[Item]) -> Result<List, RemoteError> {
    let Some(first) = new.first() else { return Ok(List::default()) };
    let place = u64::from(first.strong.0[0]) % NOTES;
    let bytes = grown(remote, &key.digest, List::default(), new).await?;
    remote.put(note(key, place), bytes.len() as u64, whole(bytes.clone()), Put::Replace).await?;
    Ok(opened(&key.digest, Some(bytes)).0)
}

/// What stands in all notes.
async fn read_notes(remote: &dyn Remote, key: Key) -> Result<List, RemoteError> {
    let places: Vec<Key> = (0..NOTES).map(|place| note(key, place)).collect();
    let mut all = List::default();
    for bytes in remote.get_small(&places).await? {
        all.merge(&[], &opened(&key.digest, bytes).0);
    }
    Ok(all)
}

/// Their numbers are none of a generation.
fn note(key: Key, place: u64) -> Key {
    key.part(GENERATIONS_MAX + place)
}

async fn add_generation(remote: &dyn Remote, key: Key, new: &[Item], wait: &Wait) -> Result<Merged, RemoteError> {
    let mut merged = Merged::default();
    let mut next = newest(remote, key).await?.map_or(0, |newest| newest + 1);
    for attempt in 0..TRIES_MAX {
        if next >= GENERATIONS_MAX {
            return Err(RemoteError::failed(
                &remote.name().into(),
                Some(key),
                Trouble::TooLarge,
                "too many generations",
            ));
        }
        let list = match next.checked_sub(1) {
            Some(newest) => read_generations(remote, key, newest).await?.0,
            None => List::default(),
        };
        if are_there(remote, &list, new).await? {
            return Ok(Merged { there: true, ..merged });
        }
        let bytes = grown(remote, &key.digest, list, new).await?;
        let size = bytes.len() as u64;
        if remote.put(generation(key, next), size, whole(bytes), Put::IfAbsent).await? == Stored::New {
            return Ok(merged);
        }
        merged.contended += 1;
        next += 1;
        wait.backoff(attempt, Duration::from_millis(10), Duration::from_secs(1)).await;
    }
    Err(given_up(remote, key))
}

/// Whether all of these can be had already, to the byte: they stand in the list, or it names them and they are stored.
async fn are_there(remote: &dyn Remote, list: &List, new: &[Item]) -> Result<bool, RemoteError> {
    let known =
        |item: &Item| list.items.iter().find(|known| (known.strong, known.digest) == (item.strong, item.digest));
    let Some(known) = new.iter().map(known).collect::<Option<Vec<_>>>() else { return Ok(false) };
    let apart = known.into_iter().filter(|known| known.bytes.is_none());
    let apart: Vec<Key> = apart.map(|known| Key::blob(known.digest)).collect();
    Ok(apart.is_empty() || remote.has(&apart).await?.into_iter().all(|there| there))
}

/// The bytes of a list with more records, after those that do not stand in it were stored.
async fn grown(remote: &dyn Remote, weak: &Digest, mut list: List, new: &[Item]) -> Result<Bytes, RemoteError> {
    let mut new = new.to_vec();
    for item in &mut new {
        let is_other = |known: &&mut Item| known.strong == item.strong && known.digest != item.digest;
        // Which of the two stays is decided by who signed them, and of images by when they were saved.
        if let Some(known) = list.items.iter_mut().find(is_other) {
            *known = filled(remote, known.clone()).await;
            *item = filled(remote, item.clone()).await;
        }
    }
    let mut grown = List::default();
    grown.merge(&new, &list);
    let (bytes, apart) = grown.encode(weak);
    for item in apart {
        let record = item.bytes.clone().expect("`encode` gives those that are here");
        remote.put(Key::blob(item.digest), item.size, whole(record), Put::IfAbsent).await?;
    }
    Ok(bytes)
}

fn generation(key: Key, number: u64) -> Key {
    if number == 0 { key } else { key.part(number) }
}

/// The number of the newest generation. Numbers are taken one after another, so it is searched for by doubling, then
/// halving.
async fn newest(remote: &dyn Remote, key: Key) -> Result<Option<u64>, RemoteError> {
    let is_there = async |number: u64| Ok::<_, RemoteError>(remote.has(&[generation(key, number)]).await? == [true]);
    if !is_there(0).await? {
        return Ok(None);
    }
    let (mut there, mut gone) = (0, 1);
    while gone < GENERATIONS_MAX && is_there(gone).await? {
        (there, gone) = (gone, gone * 2 + 1);
    }
    while gone - there > 1 {
        let middle = there + (gone - there) / 2;
        if is_there(middle).await? {
            there = middle;
        } else {
            gone = middle;
        }
    }
    Ok(Some(there))
}

/// The newest generation and a few before it, merged, and how many of them were damaged.
async fn read_generations(remote: &dyn Remote, key: Key, newest: u64) -> Result<(List, u64), RemoteError> {
    let mut all = (List::default(), 0);
    for number in (newest.saturating_sub(GENERATIONS_BEFORE)..=newest).rev() {
        let (list, damaged) = opened(&key.digest, get_one(remote, generation(key, number)).await?);
        all.0.merge(&[], &list);
        all.1 += damaged;
    }
    Ok(all)
}

fn opened(weak: &Digest, bytes: Option<Bytes>) -> (List, u64) {
    match bytes.map(|bytes| List::decode(weak, &bytes)) {
        None => (List::default(), 0),
        Some(Ok(list)) => (list, 0),
        Some(Err(_)) => (List::default(), 1),
    }
}

fn given_up(remote: &dyn Remote, key: Key) -> RemoteError {
    RemoteError::failed(&remote.name().into(), Some(key), Trouble::Busy, "others keep writing it")
}
