//! How several writers add to one list without losing each other's records.
//!
//! | the service | how a record is added |
//! |---|---|
//! | has compare-and-swap | read, merge, replace; start again if it has changed meanwhile |
//! | lets the last writer win | leave a note, read, merge, write, wait, check, put back |
//! | never changes an object | write the next free generation, which holds all before it |
//!
//! **Services where the last writer wins.** A delayed write can remove records, and repairs that:
//!
//! 1. Writer A reads the list and is delayed.
//! 2. Writer B adds its records, checks that they stay, and leaves.
//! 3. Writer A writes what it has read, without the records of B.
//! 4. Writer A sees that it took long, or that others write as well. It reads the notes of all
//!    writers and puts the records of B back.
//!
//! A record is lost only if the note of B was overwritten as well. That takes another writer with
//! the same one of [`NOTES`] places. The action of a lost record is run and recorded again.
//!
//! Unaware of: what a record says, whether it is trusted.

use crate::items::{filled, get_one};
use crate::record::{Item, List};
use crate::wait::Wait;
use crate::{Key, Put, Remote, RemoteError, Stored, Trouble, whole};
use bytes::Bytes;
use larder_model::Digest;
use std::time::Duration;
use tokio::time::Instant;

/// How often adding to a list is tried, before it fails with an error.
const TRIES_MAX: u32 = 24;
/// A writer waits this many times as long as its read and write took, before it checks that its
/// records are still in the list. Only on services where the last writer wins.
const SETTLE_TIMES: u32 = 8;
/// How many checks must find our records if there is no sign of other writers. The second check
/// finds writers that were delayed between reading and writing.
const LOOKS: u32 = 2;
/// How many checks must find our records once there is a sign of another writer. Each check waits
/// twice as long as the one before.
const LOOKS_WHERE_CONTENDED: u32 = 4;
/// The number of places for notes about one list. The first byte of a writer's first strong
/// fingerprint selects its place.
const NOTES: u64 = 64;
/// The most generations of a list, on services that never change objects. With so many it is full.
pub(crate) const GENERATIONS_MAX: u64 = 4096;
/// How many generations before the newest are read as well, because the newest may be damaged or
/// may lack records that were added at the same time.
const GENERATIONS_BEFORE: u64 = 2;

/// The outcome of adding records to a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// How often another writer changed the list first, and everything was done again.
    pub(crate) contended: u64,
    /// How often records were overwritten by another writer, and put back.
    pub(crate) put_back: u64,
    /// All records were in the list already, and nothing was written.
    pub(crate) there: bool,
}

/// Reads a list. Also returns how many damaged objects were found; a damaged list counts as empty.
pub(crate) async fn read(remote: &dyn Remote, key: Key) -> Result<(List, u64), RemoteError> {
    if remote.abilities().replace {
        return Ok(opened(&key.digest, get_one(remote, key).await?));
    }
    let Some(newest) = newest(remote, key).await? else { return Ok((List::default(), 0)) };
    read_generations(remote, key, newest).await
}

/// Adds records to a list. Records that do not fit into the list are stored as blobs before it.
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
    // What other writers have noted, once there is a sign of them.
    let mut others = List::default();
    let own = leave_note(remote, key, new).await?;
    for _ in 0..TRIES_MAX {
        let start = Instant::now();
        let (mut list, _) = opened(&key.digest, get_one(remote, key).await?);
        if merged == Merged::default() && are_there(remote, &list, new).await? {
            // Another writer has added them and checks that they stay. Our note is there, too.
            return Ok(Merged { there: true, ..merged });
        }
        list.merge(&[], &others);
        let bytes = grown(remote, &key.digest, list, &own.items).await?;
        remote.put(key, bytes.len() as u64, whole(bytes.clone()), Put::Replace).await?;
        let took = start.elapsed();
        // A writer that has read the list before our write needs about this time to write it.
        let mut pause = settle.max(took * SETTLE_TIMES);
        // Others check for three times `settle` after they have written. If our read and write took
        // longer, one of them may have written and finished its checks in between.
        let mut crowded = took > settle * ((1 << LOOKS) - 1);
        let mut seen = 0;
        while seen < looks_needed {
            wait.about(pause).await;
            pause *= 2;
            let now = get_one(remote, key).await?;
            if now.as_ref() != Some(&bytes) {
                // There is another writer, and there may be a third: check more often.
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

/// Stores what we are adding in a place that few other writers use. Returns the note as a reader
/// would decode it: records that do not fit into it are stored as blobs now and need not be sent
/// again.
async fn leave_note(remote: &dyn Remote, key: Key, new: &[Item]) -> Result<List, RemoteError> {
    let Some(first) = new.first() else { return Ok(List::default()) };
    let place = u64::from(first.strong.0[0]) % NOTES;
    let bytes = grown(remote, &key.digest, List::default(), new).await?;
    remote.put(note(key, place), bytes.len() as u64, whole(bytes.clone()), Put::Replace).await?;
    Ok(opened(&key.digest, Some(bytes)).0)
}

/// Returns the records of all notes.
async fn read_notes(remote: &dyn Remote, key: Key) -> Result<List, RemoteError> {
    let places: Vec<Key> = (0..NOTES).map(|place| note(key, place)).collect();
    let mut all = List::default();
    for bytes in remote.get_small(&places).await? {
        all.merge(&[], &opened(&key.digest, bytes).0);
    }
    Ok(all)
}

/// Returns the key of a note. Its part numbers follow those of the generations.
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
                "the list is full: it has too many generations",
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

/// Returns true if all records can be fetched already with the same bytes: each is in the list, or
/// the list names it and its blob exists.
async fn are_there(remote: &dyn Remote, list: &List, new: &[Item]) -> Result<bool, RemoteError> {
    let known =
        |item: &Item| list.items.iter().find(|known| (known.strong, known.digest) == (item.strong, item.digest));
    let Some(known) = new.iter().map(known).collect::<Option<Vec<_>>>() else { return Ok(false) };
    let apart = known.into_iter().filter(|known| known.bytes.is_none());
    let apart: Vec<Key> = apart.map(|known| Key::blob(known.digest)).collect();
    Ok(apart.is_empty() || remote.has(&apart).await?.into_iter().all(|there| there))
}

/// Returns the bytes of a list with `new` in it. First stores the records that do not fit into it.
async fn grown(remote: &dyn Remote, weak: &Digest, mut list: List, new: &[Item]) -> Result<Bytes, RemoteError> {
    let mut new = new.to_vec();
    for item in &mut new {
        let is_other = |known: &&mut Item| known.strong == item.strong && known.digest != item.digest;
        // Two different records have one fingerprint. `List::merge` needs both as a whole to
        // choose: it compares signatures and, for images, when they were saved.
        if let Some(known) = list.items.iter_mut().find(is_other) {
            *known = filled(remote, known.clone()).await;
            *item = filled(remote, item.clone()).await;
        }
    }
    let mut grown = List::default();
    grown.merge(&new, &list);
    let (bytes, apart) = grown.encode(weak);
    for item in apart {
        let record = item.bytes.clone().expect("`encode` returns only items with bytes");
        remote.put(Key::blob(item.digest), item.size, whole(record), Put::IfAbsent).await?;
    }
    Ok(bytes)
}

/// Returns the key of a generation of a list.
pub(crate) fn generation(key: Key, number: u64) -> Key {
    if number == 0 { key } else { key.part(number) }
}

/// Returns the number of the newest generation. Writers take the numbers one after another, so it
/// searches by doubling and then by halving.
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

/// Merges the newest generation with the [`GENERATIONS_BEFORE`] before it. Also returns how many of
/// them were damaged.
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
    RemoteError::failed(&remote.name().into(), Some(key), Trouble::Busy, "other writers kept changing the list")
}
