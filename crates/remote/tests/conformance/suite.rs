//! The contract of a remote, which every service must fulfil: see `remote.rs`.

use crate::bodies::{broken, pieces, stuck};
use crate::sample::bytes;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::join_all;
use larder_model::Digest;
use larder_remote::{Key, ObjectKind, Put, Remote, RemoteError, Stored, Trouble, collect, whole};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Sizes around the limits of the leaves: a value of Redis, a batch of gRPC, a piece of S3.
const SIZES: &[usize] = &[0, 1, 4097, (128 << 10) - 1, 128 << 10, (1 << 20) + 7, (5 << 20) + 1, 11 << 20];

/// How many requests are dropped at once, and how often.
const DROPPED_AT_ONCE: usize = 20;
const DROPPED_ROUNDS: usize = 24;

/// Runs all tests. `seed` is part of all object names, so that one server can serve several runs.
pub(crate) async fn conforms(remote: Arc<dyn Remote>, seed: &str) {
    let suite = Suite { remote, seed: seed.to_owned() };
    suite.absent().await;
    suite.there_and_back().await;
    suite.replaced_or_not().await;
    suite.never_in_part().await;
    suite.dropped().await;
    suite.dropped_anywhere().await;
    suite.in_batches().await;
    suite.at_once().await;
    suite.swapped().await;
    suite.named_without_credentials();
}

struct Suite {
    remote: Arc<dyn Remote>,
    seed: String,
}

impl Suite {
    fn bytes(&self, name: &str, length: usize) -> Bytes {
        bytes(&format!("{}/{name}", self.seed), length)
    }

    fn key(&self, kind: ObjectKind, name: &str) -> Key {
        Key { kind, digest: Digest::of(format!("{}/{name}", self.seed).as_bytes()) }
    }

    async fn put(&self, key: Key, bytes: &Bytes, how: Put) -> Result<Stored, RemoteError> {
        self.remote.put(key, bytes.len() as u64, pieces(bytes, 100_000), how).await
    }

    async fn get(&self, key: Key) -> Option<Bytes> {
        let found = self.remote.get(key).await.unwrap_or_else(|error| panic!("get: {error}"));
        let (size, body) = found?;
        let bytes = collect(self.remote.name(), key, body, 64 << 20).await.unwrap_or_else(|error| panic!("{error}"));
        assert!(size.is_none_or(|size| size == bytes.len() as u64), "{key}: said {size:?}, had {}", bytes.len());
        Some(bytes)
    }

    async fn has(&self, key: Key) -> bool {
        self.remote.has(&[key]).await.unwrap_or_else(|error| panic!("has: {error}")) == [true]
    }

    async fn absent(&self) {
        for kind in [ObjectKind::Blob, ObjectKind::Manifest, ObjectKind::Used] {
            let key = self.key(kind, "absent");
            assert!(self.get(key).await.is_none(), "{key}");
            assert!(!self.has(key).await, "{key}");
        }
        assert_eq!(self.remote.has(&[]).await.expect("nothing is asked"), Vec::<bool>::new());
    }

    async fn there_and_back(&self) {
        for &size in SIZES {
            let bytes = self.bytes("blob", size);
            let key = Key::blob(Digest::of(&bytes));
            let stored = self.put(key, &bytes, Put::IfAbsent).await.unwrap_or_else(|error| panic!("{size}: {error}"));
            assert_eq!(stored, if size == 0 { stored } else { Stored::New }, "{size}");
            assert!(self.has(key).await, "{size}");
            assert!(self.get(key).await == Some(bytes), "{size} bytes came back changed");
        }
    }

    async fn replaced_or_not(&self) {
        let key = self.key(ObjectKind::Manifest, "replaced");
        let (first, second, third) = (self.bytes("1", 5000), self.bytes("2", 300_000), self.bytes("3", 10));
        assert_eq!(self.put(key, &first, Put::Replace).await.expect("put"), Stored::New);
        assert_eq!(self.put(key, &second, Put::IfAbsent).await.expect("put"), Stored::Existed);
        assert_eq!(self.get(key).await, Some(first.clone()));
        let replaced = self.remote.abilities().replace;
        for other in [&second, &third, &first] {
            let stored = self.put(key, other, Put::Replace).await.expect("put");
            assert_eq!(stored, if replaced { Stored::New } else { Stored::Existed });
            assert_eq!(self.get(key).await, Some(if replaced { other.clone() } else { first.clone() }));
        }
    }

    /// After a failed upload the object is missing or unchanged.
    async fn never_in_part(&self) {
        let old = self.bytes("old", 2000);
        for (name, length) in [("small", 3000), ("large", 6 << 20)] {
            for there_before in [false, true] {
                let bytes = self.bytes(name, length);
                let key = self.key(ObjectKind::Manifest, &format!("part {name} {there_before}"));
                if there_before {
                    self.put(key, &old, Put::Replace).await.expect("put");
                }
                let expected = there_before.then_some(old.clone());
                let size = length as u64;
                let short = self.remote.put(key, size + 1, pieces(&bytes, 70_000), Put::Replace).await;
                self.is_cut(short, "short");
                assert_eq!(self.get(key).await, expected, "{name}, short");
                let long = self.remote.put(key, size - 1, pieces(&bytes, 70_000), Put::Replace).await;
                self.is_cut(long, "long");
                assert_eq!(self.get(key).await, expected, "{name}, long");
                let error = self.remote.put(key, size, broken(key, bytes.slice(..length / 2)), Put::Replace).await;
                assert!(error.is_err() || !self.remote.abilities().replace, "{name}, broken");
                assert_eq!(self.get(key).await, expected, "{name}, broken");
            }
        }
    }

    fn is_cut(&self, outcome: Result<Stored, RemoteError>, what: &str) {
        match outcome {
            Ok(Stored::Existed) if !self.remote.abilities().replace => {}
            Ok(stored) => panic!("{what}: {stored:?}"),
            Err(error) => assert_eq!(error.trouble(), Some(Trouble::Cut), "{what}: {error}"),
        }
    }

    async fn dropped(&self) {
        for (name, sent, size) in [("small", 1000, 2000), ("large", 5_500_000, 11_000_000)] {
            let bytes = self.bytes(name, sent);
            let key = self.key(ObjectKind::Manifest, &format!("dropped {name}"));
            let put = self.remote.put(key, size, stuck(bytes), Put::Replace);
            assert!(
                tokio::time::timeout(Duration::from_millis(150), put).await.is_err(),
                "{name}: an upload without an end must not succeed"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(self.get(key).await, None, "{name}");
            let whole = self.bytes(name, size as usize);
            self.put(key, &whole, Put::Replace).await.expect("put");
            assert!(self.get(key).await == Some(whole.clone()), "{name}");
            for _ in 0..4 {
                // A body that is dropped half-way, and one that is never read.
                let (_, mut body) = self.remote.get(key).await.expect("get").expect("exists");
                body.try_next().await.expect("a piece");
                drop(body);
                drop(self.remote.get(key).await.expect("get"));
            }
            assert!(self.get(key).await == Some(whole), "{name}, after bodies were dropped");
        }
    }

    /// A request that is dropped at any moment does not disturb later ones: none gets the answer of
    /// another.
    async fn dropped_anywhere(&self) {
        let object = |number: usize| {
            let bytes = self.bytes(&format!("dropped anywhere {number}"), 10 + number * number * 997);
            (Key::blob(Digest::of(&bytes)), bytes)
        };
        let objects: Vec<(Key, Bytes)> = (0..DROPPED_AT_ONCE).map(object).collect();
        let keys: Vec<Key> = objects.iter().map(|(key, _)| *key).collect();
        self.remote.put_small(&objects, Put::IfAbsent).await.expect("put");
        for moment in 0..DROPPED_ROUNDS {
            let doomed = objects.iter().enumerate().map(|(number, (key, bytes))| {
                // Different requests in each round, dropped at different moments.
                let (what, times) = (number + moment, (moment * 7 + number) % 19);
                polled(times, self.any_request(what, *key, bytes, &keys))
            });
            join_all(doomed).await;
            // An object that was being replaced may be missing now.
            let found = join_all(keys.iter().map(|key| self.get(*key))).await;
            let gone = found.iter().filter(|found| found.is_none()).count();
            assert!(gone == 0 || self.remote.abilities().replace, "round {moment}: {gone} are gone");
            found.iter().zip(&objects).for_each(|(found, (key, bytes))| is_it(*key, found, bytes, false));
            self.remote.put_small(&objects, Put::IfAbsent).await.expect("put");
            let found = join_all(keys.iter().map(|key| self.get(*key))).await;
            found.iter().zip(&objects).for_each(|(found, (key, bytes))| is_it(*key, found, bytes, true));
        }
    }

    /// Sends one of several kinds of requests. None of them changes the content of an object.
    async fn any_request(&self, what: usize, key: Key, bytes: &Bytes, keys: &[Key]) {
        match what % 5 {
            0 => drop(self.get(key).await),
            1 => drop(self.put(key, bytes, Put::Replace).await.expect("put")),
            2 => drop(self.put(key, bytes, Put::IfAbsent).await.expect("put")),
            3 => drop(self.has(key).await),
            _ => drop(self.remote.get_small(&keys[..4]).await.expect("get")),
        }
    }

    async fn in_batches(&self) {
        let objects: Vec<(Key, Bytes)> = (0..40)
            .map(|number| {
                let bytes = self.bytes(&format!("batch {number}"), number * 7000);
                (Key::blob(Digest::of(&bytes)), bytes)
            })
            .collect();
        let stored = self.remote.put_small(&objects, Put::IfAbsent).await.expect("put");
        assert_eq!(stored.len(), objects.len());
        let mut keys: Vec<Key> = objects.iter().map(|(key, _)| *key).collect();
        keys.insert(3, self.key(ObjectKind::Blob, "absent from a batch"));
        let found = self.remote.get_small(&keys).await.expect("get");
        let mut expected: Vec<Option<Bytes>> = objects.into_iter().map(|(_, bytes)| Some(bytes)).collect();
        expected.insert(3, None);
        assert!(found == expected, "a batch came back changed");
        let there = self.remote.has(&keys).await.expect("has");
        assert_eq!(there, expected.iter().map(Option::is_some).collect::<Vec<_>>());
        assert_eq!(self.remote.get_small(&[]).await.expect("nothing is asked").len(), 0);
    }

    async fn at_once(&self) {
        let same = self.key(ObjectKind::Manifest, "first wins");
        let writers = (0..16).map(|number| async move {
            let bytes = self.bytes(&format!("at once {number}"), 20_000);
            let key = Key::blob(Digest::of(&bytes));
            self.put(key, &bytes, Put::IfAbsent).await.expect("put");
            assert!(self.get(key).await == Some(bytes.clone()), "{number}");
            (self.put(same, &bytes, Put::IfAbsent).await.expect("put"), bytes)
        });
        let outcomes = join_all(writers).await;
        let won: Vec<&Bytes> =
            outcomes.iter().filter(|(stored, _)| *stored == Stored::New).map(|(_, bytes)| bytes).collect();
        assert!(!won.is_empty());
        let found = self.get(same).await.expect("exists");
        assert!(won.contains(&&found), "the object is not from a writer whose upload succeeded");
        if self.remote.abilities().create_new {
            assert_eq!(won.len(), 1, "exactly one writer creates the object");
        }
    }

    async fn swapped(&self) {
        let key = self.key(ObjectKind::Manifest, "swapped");
        let (a, b) = (self.bytes("a", 900), self.bytes("b", 900));
        if !self.remote.abilities().swap {
            assert!(self.remote.swap(key, a, None).await.is_err());
            return;
        }
        assert!(self.remote.get_marked(key).await.expect("get").is_none());
        assert!(self.remote.swap(key, a.clone(), None).await.expect("swap"));
        assert!(!self.remote.swap(key, b.clone(), None).await.expect("swap"), "the object exists");
        let (found, mark) = self.remote.get_marked(key).await.expect("get").expect("exists");
        assert_eq!(found, a);
        assert!(self.remote.swap(key, b.clone(), Some(mark.clone())).await.expect("swap"));
        assert!(!self.remote.swap(key, a, Some(mark)).await.expect("swap"), "the object has changed");
        assert_eq!(self.get(key).await, Some(b));
        self.counted_up().await;
    }

    /// Eight tasks each add one five times, by compare-and-swap: no addition is lost.
    async fn counted_up(&self) {
        let key = self.key(ObjectKind::Manifest, "counter");
        let adder = |_| async move {
            for _ in 0..5 {
                loop {
                    let (bytes, mark) = self.remote.get_marked(key).await.expect("get").unzip();
                    let more = Bytes::from(vec![1; bytes.map_or(0, |bytes: Bytes| bytes.len()) + 1]);
                    if self.remote.swap(key, more, mark).await.expect("swap") {
                        break;
                    }
                }
            }
        };
        join_all((0..8).map(adder)).await;
        assert_eq!(self.get(key).await.map(|bytes| bytes.len()), Some(40));
    }

    fn named_without_credentials(&self) {
        assert!(!self.remote.name().contains("hush"), "{}", self.remote.name());
    }
}

/// Stores an object and fetches it, to check that a server works.
pub(crate) async fn answers(remote: &dyn Remote) -> Result<(), RemoteError> {
    let bytes = Bytes::from_static(b"is anybody there");
    let key = Key::blob(Digest::of(&bytes));
    remote.put(key, bytes.len() as u64, whole(bytes), Put::Replace).await?;
    remote.get(key).await.map(drop)
}

fn is_it(key: Key, found: &Option<Bytes>, bytes: &Bytes, is_there: bool) {
    let length = found.as_ref().map(Bytes::len);
    let right = found.as_ref().map_or(!is_there, |found| found == bytes);
    assert!(right, "{key}: {length:?} bytes came back in place of its {}", bytes.len());
}

/// Polls a future up to `times` times and then drops it.
async fn polled(times: usize, future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        let ended = future.as_mut().poll(context).is_ready() || left == 0;
        left = left.saturating_sub(1);
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
