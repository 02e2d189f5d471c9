//! All remotes together: signatures, rejected records, near and far remotes, read-only remotes.

#[path = "conformance/sample.rs"]
mod sample;

use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use larder_model::{Blob, Digest, Manifest, Origin};
use larder_remote::{
    Abilities, Answer, Asked, Body, BreakerState, Bundle, Connected, Fetched, Key, Keys, Memory, Options, Put, Remote,
    RemoteError, Remotes, SMALL_BYTES_MAX, Share, Stored, Trouble, Used, Whole, stacked, whole,
};
use sample::{Run, bytes, manifest, names, options};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

struct Team {
    memory: Arc<Memory>,
    weak: Digest,
}

impl Team {
    fn new(name: &str) -> Self {
        Team { memory: Arc::new(Memory::new(name)), weak: Digest::of(b"weak") }
    }

    fn seen_by(&self, options: &Options) -> Remotes {
        Remotes::of(vec![(stacked(self.memory.clone(), options), false)], options)
    }

    async fn publish(&self, remotes: &Remotes, runs: &[Run<'_>]) -> larder_remote::Published {
        let encoded = manifest(&self.weak, runs);
        remotes.publish(&Manifest::decode(&encoded).expect("valid"), |_| None).await
    }

    async fn read(&self, remotes: &Remotes) -> Vec<String> {
        remotes.manifest(&self.weak).await.expect("read").map_or(Vec::new(), |(bytes, _)| names(&bytes))
    }
}

fn run(name: &str) -> Run<'_> {
    Run { name, exit_code: 0, output: None }
}

fn with(keys: Keys) -> Options {
    Options { keys, ..options(3, &[]) }
}

fn key(digit: &str) -> String {
    digit.repeat(64)
}

#[tokio::test]
async fn only_signed_records_where_the_team_signs() {
    let team = Team::new("memory://");
    let ci = Keys::default().sign_with(&key("1")).expect("a key");
    let reader = Keys::default().believe(&ci.public().expect("has a key")).expect("a key");
    let stranger = Keys::default().sign_with(&key("2")).expect("a key");
    for (keys, name) in [(ci, "ci"), (Keys::default(), "nobody"), (stranger, "stranger")] {
        let published = team.publish(&team.seen_by(&with(keys)), &[run(name)]).await;
        assert_eq!((published.entries, published.failed.len()), (1, 0));
    }
    let remotes = team.seen_by(&with(reader));
    assert_eq!(team.read(&remotes).await, ["ci"]);
    assert_eq!(remotes.tally().of(Share::Unsigned), 2);
    let anybody = team.seen_by(&options(3, &[]));
    assert_eq!(team.read(&anybody).await, ["ci", "nobody", "stranger"]);
}

/// A signature for one project is not valid in another project with the same key.
#[tokio::test]
async fn records_of_another_namespace_are_not_believed() {
    let team = Team::new("memory://");
    let ci = |namespace| Keys::default().sign_with(&key("1")).expect("a key").in_namespace(namespace);
    for namespace in ["a", "b", ""] {
        team.publish(&team.seen_by(&with(ci(namespace))), &[run(&format!("of {namespace}"))]).await;
    }
    for namespace in ["a", "b", ""] {
        let reader = Keys::default().believe(&ci("").public().expect("has a key")).expect("a key");
        let remotes = team.seen_by(&with(reader.in_namespace(namespace)));
        assert_eq!(team.read(&remotes).await, [format!("of {namespace}")]);
    }
}

/// Only records made with our own store are signed. Fetched ones are not published again. A
/// published record does not say how its fingerprint was made.
#[tokio::test]
async fn what_others_made_is_not_signed() {
    let signer = Digest([7; 32]);
    for (origin, is_sent, is_believed) in [
        (Origin::Own, true, true),
        (Origin::HandedOver, true, false),
        (Origin::Fetched(None), false, false),
        (Origin::Fetched(Some(signer)), false, false),
    ] {
        let team = Team::new("memory://");
        let ci = Keys::default().sign_with(&key("1")).expect("a key");
        let encoded = manifest(&team.weak, &[run("a")]);
        let mut sent = Manifest::decode(&encoded).expect("valid");
        sent.entries[0].origin = origin;
        sent.fields = vec![(b"argument", b"secret")];
        let published = team.seen_by(&with(ci.clone())).publish(&sent, |_| None).await;
        assert_eq!(published.entries, u64::from(is_sent), "{origin:?}");
        let reader = Keys::default().believe(&ci.public().expect("has a key")).expect("a key");
        let believed = team.read(&team.seen_by(&with(reader))).await;
        assert_eq!(believed.len(), usize::from(is_believed), "{origin:?}");
        let Some((bytes, _)) = team.seen_by(&options(3, &[])).manifest(&team.weak).await.expect("reads") else {
            continue;
        };
        let read = Manifest::decode(&bytes).expect("valid");
        assert!(read.fields.is_empty());
        assert_eq!(read.entries[0].origin, Origin::Fetched(None), "the signer is unknown to a client without keys");
    }
}

/// A signed record stays, also after newer records have pushed it out of its list into a blob.
#[tokio::test]
async fn nobody_takes_the_place_of_who_signed() {
    let team = Team::new("memory://");
    let ci = Keys::default().sign_with(&key("1")).expect("a key");
    let reader = Keys::default().believe(&ci.public().expect("has a key")).expect("a key");
    let names: Vec<String> = (0..20).map(|number| format!("{number:02}{}", "x".repeat(3900))).collect();
    for name in &names {
        team.publish(&team.seen_by(&with(ci.clone())), &[run(name)]).await;
    }
    let published = team.publish(&team.seen_by(&with(Keys::default())), &[run(&names[0])]).await;
    assert_eq!((published.entries, published.failed.len()), (1, 0));
    let remotes = team.seen_by(&with(reader));
    assert_eq!(team.read(&remotes).await, names);
    assert_eq!(remotes.tally().of(Share::Unsigned), 0);
}

/// Publishing a record again writes nothing, and reports that it existed.
#[tokio::test]
async fn what_is_there_is_not_written_again() {
    let all = Memory::new("memory://").abilities();
    for abilities in
        [all, Abilities { swap: false, create_new: false, ..all }, Abilities { swap: false, replace: false, ..all }]
    {
        let team = Team { memory: Arc::new(Memory::with("memory://", abilities)), weak: Digest::of(b"weak") };
        for (runs, there) in [("ab", 0), ("ab", 2), ("b", 1), ("bc", 0)] {
            let names: Vec<String> = runs.chars().map(String::from).collect();
            let runs: Vec<Run<'_>> = names.iter().map(|name| run(name)).collect();
            let published = team.publish(&team.seen_by(&options(3, &[])), &runs).await;
            assert_eq!((published.entries, published.entries_there), (runs.len() as u64, there), "{abilities:?}");
        }
        // With a signature it is another record.
        let signed = with(Keys::default().sign_with(&key("1")).expect("a key"));
        let published = team.publish(&team.seen_by(&signed), &[run("a")]).await;
        assert_eq!((published.entries, published.entries_there), (1, 0));
    }
}

/// A record from the far remote is copied to the near one with its signature, unless that is
/// read-only.
#[tokio::test]
async fn nearer_remotes_are_filled() {
    let ci = Keys::default().sign_with(&key("1")).expect("a key");
    let public = ci.public().expect("has a key");
    let far = Team::new("memory://far");
    let content = bytes("content", 9000);
    let blob = Blob { digest: Digest::of(&content), size_bytes: content.len() as u64 };
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &content).expect("writes");
    let encoded = manifest(&far.weak, &[Run { name: "ci", exit_code: 0, output: Some(blob) }]);
    let path = |_: &Digest| Some(file.path().to_owned());
    far.seen_by(&with(ci)).publish(&Manifest::decode(&encoded).expect("valid"), path).await;
    for read_only in [true, false] {
        let near = Team::new("memory://near");
        // Records made here are signed with another key.
        let own = Keys::default().sign_with(&key("2")).expect("a key");
        let options = with(own.believe(&public).expect("a key"));
        let all = [(near.memory.clone(), read_only), (far.memory.clone(), false)];
        let both = all.map(|(memory, read_only)| (stacked(memory, &options), read_only));
        let both = Remotes::of(both.into(), &options);
        assert_eq!(far.read(&both).await, ["ci"]);
        let strong = Manifest::decode(&encoded).expect("valid").entries[0].strong;
        let filled = both.fill(&far.weak, &strong, &[blob], path).await;
        assert_eq!(filled, usize::from(!read_only));
        assert_eq!(both.fill(&far.weak, &strong, &[blob], path).await, 0, "the record was copied already");
        let reader = with(Keys::default().believe(&public).expect("a key"));
        let found = near.read(&near.seen_by(&reader)).await;
        assert_eq!(found, if read_only { vec![] } else { vec!["ci"] }, "the record keeps its signature");
        assert_eq!(near.memory.peek(Key::blob(blob.digest)), (!read_only).then(|| content.clone()));
        if !read_only {
            assert_eq!(far.read(&both).await, ["ci"]);
            assert_eq!(both.fill(&far.weak, &strong, &[blob], path).await, 0, "the near remote has the record");
        }
    }
}

/// A list and its bundles from the far remote are copied to the near one, for the next client.
#[tokio::test]
async fn nearer_remotes_get_lists_and_bundles() {
    let (near, far) = (Team::new("memory://near"), Team::new("memory://far"));
    let options = options(3, &[]);
    let all: HashMap<Digest, Whole> = store(40, 20_000).into_iter().collect();
    let weaks: Vec<Digest> = all.keys().copied().collect();
    let reading = |weak: Digest, _: u64| -> BoxFuture<'_, Option<Whole>> {
        let whole = all.get(&weak).cloned();
        Box::pin(async move { whole })
    };
    let one = Digest::of(b"one");
    far.seen_by(&options).publish_used(&one, &weaks, &Used::default(), &reading).await.expect("published");
    let both = [&near, &far].map(|team| (stacked(team.memory.clone(), &options), false));
    let both = Remotes::of(both.into(), &options);
    let used = both.used(&[one]).await.expect("asked");
    for bundle in &used.bundles {
        both.bundle(bundle).await.expect("exists");
    }
    let alone = near.seen_by(&options);
    let began = Instant::now();
    // The copy is made in the background.
    while alone.used(&[one]).await.expect("asked") != used || near.memory.len() <= used.bundles.len() {
        assert!(began.elapsed() < Duration::from_secs(20), "{} objects", near.memory.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for bundle in &used.bundles {
        assert!(alone.bundle(bundle).await.is_some());
    }
}

#[tokio::test]
async fn failures_of_others_are_not_believed() {
    let team = Team::new("memory://");
    let failed = |name| Run { name, exit_code: 1, output: None };
    let unsigned = team.seen_by(&options(3, &[]));
    let published = team.publish(&unsigned, &[failed("failed"), run("fine")]).await;
    assert_eq!((published.entries, published.passed_over), (1, 1), "an unsigned failure is not published");
    let ci = Keys::default().sign_with(&key("1")).expect("a key");
    let signed = team.seen_by(&with(ci));
    assert_eq!(team.publish(&signed, &[failed("signed failure")]).await.entries, 1);
    assert_eq!(team.read(&unsigned).await, ["fine"]);
    assert_eq!(unsigned.tally().of(Share::Failed), 1);
    assert_eq!(team.read(&signed).await, ["signed failure"]);
}

/// Lists of another fingerprint and damaged lists are ignored.
#[tokio::test]
async fn swapped_and_damaged_lists_are_misses() {
    let team = Team::new("memory://");
    let other = Team { memory: team.memory.clone(), weak: Digest::of(b"other") };
    let remotes = team.seen_by(&options(3, &[]));
    team.publish(&remotes, &[run("one")]).await;
    other.publish(&remotes, &[run("two")]).await;
    let theirs = team.memory.peek(Key::manifest(other.weak)).expect("exists");
    let ours = team.memory.peek(Key::manifest(team.weak)).expect("exists");
    let put = async |bytes: Bytes| {
        let key = Key::manifest(team.weak);
        team.memory.put(key, bytes.len() as u64, whole(bytes), Put::Replace).await.expect("put");
    };
    put(theirs).await;
    assert!(team.read(&remotes).await.is_empty(), "the list of another fingerprint");
    for at in 0..ours.len() {
        let mut damaged = ours.to_vec();
        damaged[at] ^= 0x10;
        put(damaged.into()).await;
        assert!(team.read(&remotes).await.is_empty(), "byte {at}");
        put(ours.slice(..at)).await;
        assert!(team.read(&remotes).await.is_empty(), "cut at {at}");
    }
    assert_eq!(remotes.tally().of(Share::Damaged), 2 * ours.len() as u64 + 1);
    // Publishing replaces a damaged list.
    assert_eq!(team.publish(&remotes, &[run("three")]).await.entries, 1);
    assert_eq!(team.read(&remotes).await, ["three"]);
}

#[tokio::test]
async fn blobs_come_before_their_record_and_are_verified_both_ways() {
    let place = tempfile::tempdir().expect("a directory");
    let team = Team::new("memory://");
    let remotes = team.seen_by(&options(3, &[]));
    let content = bytes("content", 3_000_000);
    let blob = Blob { digest: Digest::of(&content), size_bytes: content.len() as u64 };
    let output = Some(blob);
    let encoded = manifest(&team.weak, &[Run { name: "with", exit_code: 0, output }, run("without")]);
    let parsed = Manifest::decode(&encoded).expect("valid");
    let path: PathBuf = place.path().join("blob");
    std::fs::write(&path, &content[1..]).expect("written");
    for from in [None, Some(path.clone())] {
        let published = remotes.publish(&parsed, |_| from.clone()).await;
        assert_eq!((published.entries, published.passed_over, published.blobs), (1, 1, 0), "{from:?}");
        assert_eq!(team.read(&remotes).await, ["without"], "{from:?}");
    }
    std::fs::write(&path, &content).expect("written");
    let published = remotes.publish(&parsed, |_| Some(path.clone())).await;
    assert_eq!((published.entries, published.blobs, published.bytes), (2, 1, 3_000_000));
    let published = remotes.publish(&parsed, |_| panic!("the blob exists already")).await;
    assert_eq!((published.entries, published.blobs, published.blobs_there), (2, 0, 1));
    let mut file = tokio::fs::File::create(place.path().join("fetched")).await.expect("made");
    assert!(remotes.blob(&blob.digest, blob.size_bytes, &mut file).await.expect("fetched").is_some());
    assert!(std::fs::read(place.path().join("fetched")).expect("read") == content);
    let wrong_size = remotes.blob(&blob.digest, blob.size_bytes - 1, &mut Vec::new()).await;
    assert_eq!(wrong_size.expect_err("another size").trouble(), Some(Trouble::Damaged));
    assert!(remotes.blob(&Digest::of(b"absent"), 9, &mut Vec::new()).await.expect("asked").is_none());
}

/// A wrong blob on a remote, for example after a power failure of its server, would otherwise be a
/// miss for all clients.
#[tokio::test]
async fn a_blob_that_is_wrong_there_is_sent_again() {
    let place = tempfile::tempdir().expect("a directory");
    let team = Team::new("memory://");
    let remotes = team.seen_by(&options(3, &[]));
    let content = bytes("content", 5000);
    let path: PathBuf = place.path().join("blob");
    std::fs::write(&path, &content).expect("written");
    let key = Key::blob(Digest::of(&content));
    let output = Some(Blob { digest: key.digest, size_bytes: 5000 });
    let encoded = manifest(&team.weak, &[Run { name: "run", exit_code: 0, output }]);
    let parsed = Manifest::decode(&encoded).expect("valid");
    for wrong in [Bytes::new(), content.slice(1..), bytes("other", 5000)] {
        let size = wrong.len() as u64;
        team.memory.put(key, size, whole(wrong), Put::Replace).await.expect("put");
        remotes.blob(&key.digest, 5000, &mut Vec::new()).await.expect_err("the blob is wrong");
        let published = remotes.publish(&parsed, |_| Some(path.clone())).await;
        assert_eq!((published.entries, published.blobs, published.failed.len()), (1, 1, 0));
        assert_eq!(team.memory.peek(key), Some(content.clone()));
        let published = remotes.publish(&parsed, |_| panic!("the blob exists already")).await;
        assert_eq!((published.entries, published.blobs_there), (1, 1));
    }
}

#[tokio::test]
async fn near_before_far_and_what_is_only_read_stays_as_it_is() {
    let (near, far) = (Arc::new(Memory::new("near")), Arc::new(Memory::new("far")));
    let options = options(3, &[]);
    let stack = |memory: &Arc<Memory>| -> Connected { stacked(memory.clone(), &options) };
    let team = Team { memory: far.clone(), weak: Digest::of(b"weak") };
    let writer = team.seen_by(&options);
    team.publish(&writer, &[run("far")]).await;
    let both = Remotes::of(vec![(stack(&near), false), (stack(&far), true)], &options);
    let before = far.len();
    team.publish(&both, &[run("near")]).await;
    assert_eq!((near.len(), far.len()), (1, before));
    assert_eq!(team.read(&both).await, ["far", "near"]);
    let reader = Options { read_only: true, ..options.clone() };
    let untrusted = Remotes::of(vec![(stack(&near), false), (stack(&far), false)], &reader);
    assert!(!untrusted.is_writable());
    assert_eq!(team.publish(&untrusted, &[run("untrusted")]).await.entries, 0);
    assert_eq!(team.read(&untrusted).await, ["far", "near"]);

    // Both remotes have the blob, the near one with a wrong byte. It is fetched again from the far
    // one.
    let content = bytes("content", 200_000);
    let key = Key::blob(Digest::of(&content));
    far.put(key, 200_000, whole(content.clone()), Put::Replace).await.expect("put");
    let mut wrong = content.to_vec();
    wrong[150_000] ^= 1;
    near.put(key, 200_000, whole(wrong.into()), Put::Replace).await.expect("put");
    let mut fetched = Vec::new();
    assert!(both.blob(&key.digest, 200_000, &mut fetched).await.expect("fetched").is_some());
    assert!(fetched == content);
    assert_eq!(both.tally().of(Share::WrongBlobs), 1);
}

#[tokio::test]
async fn a_large_history_stays_within_its_limits() {
    let team = Team::new("memory://");
    let remotes = team.seen_by(&options(3, &[]));
    let all: Vec<String> = (0..40).map(|number| format!("{number:02}{}", "x".repeat(3900))).collect();
    for name in &all {
        assert_eq!(team.publish(&remotes, &[run(name)]).await.entries, 1);
    }
    let list = team.memory.peek(Key::manifest(team.weak)).expect("exists");
    assert!(list.len() < 128 << 10, "{} bytes", list.len());
    let kept = team.read(&remotes).await;
    assert_eq!(
        kept,
        all[all.len() - larder_model::MANIFEST_ENTRIES_MAX..],
        "the newest records, in the list or as blobs"
    );
}

/// Reads no records, so that there are no bundles.
fn nothing(_: Digest, _: u64) -> BoxFuture<'static, Option<Whole>> {
    Box::pin(async { None })
}

#[tokio::test]
async fn what_was_used_is_merged_newest_first() {
    let team = Team::new("memory://");
    let remotes = team.seen_by(&options(3, &[]));
    let (place, digest) = (Digest::of(b"place"), |number: u8| Digest([number; 32]));
    let none = Used::default();
    let used = async |places: &[Digest]| remotes.used(places).await.expect("asked").weaks;
    assert!(used(&[place]).await.is_empty());
    remotes.publish_used(&place, &[digest(1), digest(2)], &none, &nothing).await.expect("published");
    let base = Used { weaks: vec![digest(4)], ..none };
    remotes.publish_used(&place, &[digest(3), digest(1)], &base, &nothing).await.expect("published");
    let all = [digest(3), digest(1), digest(4), digest(2)];
    assert_eq!(used(&[place]).await, all);
    let elsewhere = Digest::of(b"elsewhere");
    assert!(used(&[elsewhere]).await.is_empty());
    assert_eq!(used(&[elsewhere, place]).await, all, "the first place with a list");
}

/// Returns records as a store would read them. Each has its own weak fingerprint and its own
/// output.
fn store(count: usize, output: usize) -> Vec<(Digest, Whole)> {
    let one = |number: usize| {
        let weak = Digest::of(format!("weak {number}").as_bytes());
        let content = bytes(&format!("output {number}"), output);
        let blob = Blob { digest: Digest::of(&content), size_bytes: output as u64 };
        let manifest = manifest(&weak, &[Run { name: "run", exit_code: 0, output: Some(blob) }]);
        (weak, Whole { manifest, blobs: vec![content] })
    };
    (0..count).map(one).collect()
}

#[tokio::test]
async fn most_of_what_was_used_comes_in_bundles() {
    let team = Team::new("memory://");
    let remotes = team.seen_by(&options(3, &[]));
    let all: HashMap<Digest, Whole> = store(300, 20_000).into_iter().collect();
    let mut weaks: Vec<Digest> = all.keys().copied().collect();
    weaks.sort_by_key(|weak| weak.0);
    let reads = AtomicUsize::new(0);
    let reading = |weak: Digest, most: u64| -> BoxFuture<'_, Option<Whole>> {
        reads.fetch_add(1, Relaxed);
        let whole = all.get(&weak).filter(|whole| whole.blobs[0].len() as u64 <= most).cloned();
        Box::pin(async move { whole })
    };
    let (one, two) = (Digest::of(b"one"), Digest::of(b"two"));
    let none = Used::default();
    let sent = remotes.publish_used(&one, &weaks[..200], &none, &reading).await.expect("published");
    let used = remotes.used(&[one]).await.expect("asked");
    assert!(sent > 200 * 20_000, "the outputs cannot be compressed: {sent}");
    let held = |used: &Used| used.bundles.iter().map(|bundle| bundle.records.len()).sum::<usize>();
    assert_eq!((held(&used), used.bundles.len() < 10), (200, true), "{} bundles", used.bundles.len());
    assert!(used.bundles.iter().all(|bundle| bundle.size_bytes <= SMALL_BYTES_MAX));

    // The next commit adds 50 records: only those are read and bundled.
    reads.store(0, Relaxed);
    remotes.publish_used(&two, &weaks[200..250], &used, &reading).await.expect("published");
    assert_eq!(reads.load(Relaxed), 50);
    let next = remotes.used(&[two, one]).await.expect("asked");
    assert_eq!((next.weaks.len(), held(&next)), (250, 250));
    remotes.publish_used(&two, &weaks[200..250], &used, &reading).await.expect("published");
    assert!(remotes.used(&[two]).await.expect("asked") == next, "publishing the same again adds nothing");

    // All records come back and are verified.
    let mut came = HashMap::new();
    let mut blobs = HashMap::new();
    for bundle in &next.bundles {
        let unpacked = remotes.bundle(bundle).await.expect("exists");
        remotes.believed(&unpacked, |_| true, |bytes, single| drop(came.insert(single.manifest().weak, bytes.clone())));
        blobs.extend(unpacked.blobs);
    }
    assert_eq!(came.len(), 250);
    for (weak, manifest) in &came {
        let whole = &all[weak];
        let mut expect = Manifest::decode(&whole.manifest).expect("ours");
        // A remote gets no field of the fingerprint, because fields hold arguments and variables.
        expect.fields.clear();
        expect.entries.iter_mut().for_each(|entry| entry.origin = Origin::Fetched(None));
        assert!(expect.encode()[..] == manifest[..] && blobs[&Digest::of(&whole.blobs[0])] == whole.blobs[0]);
    }

    // Bundles that the service has dropped are uploaded again.
    let forgetful = Team::new("memory://");
    let elsewhere = forgetful.seen_by(&options(3, &[]));
    elsewhere.publish_used(&one, &weaks[..10], &next, &reading).await.expect("published");
    let found = elsewhere.used(&[one]).await.expect("asked");
    assert_eq!((found.weaks.len(), held(&found)), (250, 250));

    // A damaged or missing bundle is ignored.
    let key = Key::blob(next.bundles[0].digest);
    let mut wrong = team.memory.peek(key).expect("exists").to_vec();
    wrong[1000] ^= 1;
    team.memory.put(key, wrong.len() as u64, whole(wrong.into()), Put::Replace).await.expect("put");
    assert!(remotes.bundle(&next.bundles[0]).await.is_none());
    let forgotten = Bundle { digest: Digest::of(b"forgotten"), ..next.bundles[0].clone() };
    assert!(remotes.bundle(&forgotten).await.is_none());
}

/// Returns how many records of a bundle are trusted.
async fn believed(reader: &Remotes, bundle: &Bundle) -> usize {
    let unpacked = reader.bundle(bundle).await.expect("exists");
    let mut count = 0;
    reader.believed(&unpacked, |_| true, |_, _| count += 1);
    count
}

/// Each record of a bundle is signed by itself. Many small bundles are merged into larger ones.
#[tokio::test]
async fn bundles_are_believed_as_records_are() {
    let team = Team::new("memory://");
    let ci = Keys::default().sign_with(&key("1")).expect("a key");
    let reader = team.seen_by(&with(Keys::default().believe(&ci.public().expect("has a key")).expect("a key")));
    let all: Vec<(Digest, Whole)> = store(40, 500);
    let reading = |weak: Digest, _: u64| -> BoxFuture<'_, Option<Whole>> {
        let whole = all.iter().find(|one| one.0 == weak).map(|one| one.1.clone());
        Box::pin(async move { whole })
    };
    let place = Digest::of(b"place");
    let signing = team.seen_by(&with(ci));
    for (weak, _) in &all[..36] {
        signing.publish_used(&place, &[*weak], &Used::default(), &reading).await.expect("published");
    }
    let used = reader.used(&[place]).await.expect("asked");
    assert_eq!(used.weaks.len(), 36);
    assert!(used.bundles.len() < 10, "{} bundles", used.bundles.len());
    let mut records = 0;
    for bundle in &used.bundles {
        records += believed(&reader, bundle).await;
    }
    assert_eq!(records, 36);
    let nobody = team.seen_by(&options(3, &[]));
    nobody.publish_used(&place, &[all[39].0], &Used::default(), &reading).await.expect("published");
    let used = reader.used(&[place]).await.expect("asked");
    assert_eq!(believed(&reader, &used.bundles[0]).await, 0);
    assert_eq!(reader.tally().of(Share::Unsigned), 1);
}

/// A remote that stores objects, but never answers any other request.
struct Silent(Memory);

impl Remote for Silent {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }

    fn get(&self, _: Key) -> Answer<'_, Fetched> {
        Box::pin(pending())
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        self.0.put(key, size, body, how)
    }

    fn has<'a>(&'a self, _: &'a [Key]) -> Answer<'a, Vec<bool>> {
        Box::pin(pending())
    }
}

/// A remote that returns its objects, but fails every upload.
struct Giving(Arc<Memory>, Trouble);

impl Giving {
    fn refused(&self, key: Key) -> RemoteError {
        RemoteError::failed(&self.0.name().into(), Some(key), self.1, "every upload fails")
    }
}

impl Remote for Giving {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn abilities(&self) -> Abilities {
        self.0.abilities()
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        self.0.get(key)
    }

    fn put(&self, key: Key, _: u64, _: Body, _: Put) -> Answer<'_, Stored> {
        Box::pin(async move { Err(self.refused(key)) })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        self.0.has(keys)
    }
}

/// A client with read access only, whose uploads all fail, can still read.
#[tokio::test(start_paused = true)]
async fn one_that_takes_nothing_still_gives() {
    let options = options(3, &[]);
    for trouble in [Trouble::Denied, Trouble::Full, Trouble::Other] {
        let team = Team::new("memory://");
        team.publish(&team.seen_by(&options), &[run("theirs")]).await;
        let giving: Arc<dyn Remote> = Arc::new(Giving(team.memory.clone(), trouble));
        let remotes = Remotes::of(vec![(stacked(giving, &options), false)], &options);
        let ours = bytes("ours", 5);
        for _ in 0..5 {
            let put = remotes.each()[0].remote.put(Key::blob(Digest::of(&ours)), 5, whole(ours.clone()), Put::Replace);
            assert_eq!(put.await.expect_err("every upload fails").trouble(), Some(trouble));
        }
        assert_eq!(team.read(&remotes).await, ["theirs"], "{trouble:?}");
    }
}

/// Shows that a silent remote delays the first lookups a little. After a few failures it is not
/// asked any more.
#[tokio::test(start_paused = true)]
async fn one_that_is_silent_is_left_alone_by_itself() {
    let options = options(3, &[]);
    let silent: Arc<dyn Remote> = Arc::new(Silent(Memory::new("memory://silent")));
    let team = Team::new("memory://far");
    team.publish(&team.seen_by(&options), &[run("far")]).await;
    let stack = |leaf: Arc<dyn Remote>| (stacked(leaf, &options), false);
    let both = Remotes::of(vec![stack(silent), stack(team.memory.clone())], &options);
    let mut waited = Vec::new();
    for number in 0..6 {
        let start = tokio::time::Instant::now();
        // A hit and a miss of the other remote in turn: neither is a failure.
        let weak = if number % 2 == 0 { Digest::of(b"nowhere") } else { team.weak };
        let found = both.manifest(&weak).await.expect("one remote answers");
        assert_eq!(found.is_some(), number % 2 == 1);
        waited.push(start.elapsed());
    }
    assert!(waited[0] < Duration::from_secs(1), "{waited:?}");
    assert_eq!(waited[5], Duration::ZERO, "the silent remote is not asked any more: {waited:?}");
    let state = |at: usize| both.each()[at].breaker.state(tokio::time::Instant::now().into_std());
    assert!(matches!(state(0), BreakerState::Open(_)) && state(1) == BreakerState::Closed);
}

/// A blob is fetched from another remote if the first one is silent.
#[tokio::test(start_paused = true)]
async fn a_blob_comes_from_one_that_speaks() {
    let options = options(3, &[]);
    let (silent, far): (Arc<dyn Remote>, _) = (Arc::new(Silent(Memory::new("memory://silent"))), Memory::new("far"));
    let content = bytes("content", 200_000);
    let key = Key::blob(Digest::of(&content));
    far.put(key, 200_000, whole(content.clone()), Put::Replace).await.expect("put");
    let stack = |leaf: Arc<dyn Remote>| (stacked(leaf, &options), false);
    let both = Remotes::of(vec![stack(silent), stack(Arc::new(far))], &options);
    for number in 0..6 {
        let (start, mut fetched) = (tokio::time::Instant::now(), Vec::new());
        assert!(both.blob(&key.digest, 200_000, &mut fetched).await.expect("fetched").is_some());
        assert!(fetched == content);
        let most = if number < 3 { Duration::from_secs(1) } else { Duration::ZERO };
        assert!(start.elapsed() <= most, "{number}: {:?}", start.elapsed());
    }
}

/// Checks how long records wait together on a service where the last writer wins. The clock is
/// stopped, so only these waits count.
#[tokio::test(start_paused = true)]
async fn twenty_records_need_few_requests_and_wait_less_than_half_a_second() {
    let last_wins = Abilities { swap: false, create_new: false, ..Memory::new("memory://").abilities() };
    let options = options(3, &[]);
    let connected = stacked(Arc::new(Memory::with("memory://", last_wins)), &options);
    let counts = connected.counts.clone();
    let remotes = Remotes::of(vec![(connected, false)], &options);
    let began = tokio::time::Instant::now();
    let all: Vec<Vec<u8>> = (0..20u8).map(|number| manifest(&Digest::of(&[number]), &[run("a")])).collect();
    let publish =
        async |encoded: &Vec<u8>| remotes.publish(&Manifest::decode(encoded).expect("valid"), |_: &Digest| None).await;
    let published = futures::future::join_all(all.iter().map(publish)).await;
    assert!(published.iter().all(|one| one.entries == 1 && one.failed.is_empty()));
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    let requests = |asked| counts.sum(asked).answered;
    // For each record: a note and the list are written, and the list is read three times.
    assert_eq!(requests(Asked::Put), 40);
    assert_eq!(requests(Asked::GetSmall), 60);
}
