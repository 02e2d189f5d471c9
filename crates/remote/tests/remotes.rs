//! All remotes together: who is believed, what is dropped and counted, near and far, what is only read.

#[path = "conformance/sample.rs"]
mod sample;

use bytes::Bytes;
use larder_model::{Blob, Digest, Manifest};
use larder_remote::{
    Asked, Connected, Fault, Faults, Key, Keys, Memory, Options, Put, Remote, Remotes, Share, Trouble, stacked, whole,
};
use sample::{Run, bytes, manifest, names, options};
use std::path::PathBuf;
use std::sync::Arc;
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
        remotes.publish(&Manifest::decode(&encoded).expect("ours"), |_| None).await
    }

    async fn read(&self, remotes: &Remotes) -> Vec<String> {
        remotes.manifest(&self.weak).await.expect("read").map_or(Vec::new(), |bytes| names(&bytes))
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
    let reader = Keys::default().believe(&ci.public().expect("has one")).expect("a key");
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

#[tokio::test]
async fn failures_of_others_are_not_believed() {
    let team = Team::new("memory://");
    let failed = |name| Run { name, exit_code: 1, output: None };
    let unsigned = team.seen_by(&options(3, &[]));
    let published = team.publish(&unsigned, &[failed("failed"), run("fine")]).await;
    assert_eq!((published.entries, published.passed_over), (1, 1), "it is not even published");
    let ci = Keys::default().sign_with(&key("1")).expect("a key");
    let signed = team.seen_by(&with(ci));
    assert_eq!(team.publish(&signed, &[failed("signed failure")]).await.entries, 1);
    assert_eq!(team.read(&unsigned).await, ["fine"]);
    assert_eq!(unsigned.tally().of(Share::Failed), 1);
    assert_eq!(team.read(&signed).await, ["signed failure"]);
}

/// A record that lies at another's place, or whose set is not what its fingerprint says, is not believed.
#[tokio::test]
async fn swapped_and_damaged_lists_are_misses() {
    let team = Team::new("memory://");
    let other = Team { memory: team.memory.clone(), weak: Digest::of(b"other") };
    let remotes = team.seen_by(&options(3, &[]));
    team.publish(&remotes, &[run("one")]).await;
    other.publish(&remotes, &[run("two")]).await;
    let theirs = team.memory.peek(Key::manifest(other.weak)).expect("is there");
    let ours = team.memory.peek(Key::manifest(team.weak)).expect("is there");
    let put = async |bytes: Bytes| {
        let key = Key::manifest(team.weak);
        team.memory.put(key, bytes.len() as u64, whole(bytes), Put::Replace).await.expect("put");
    };
    put(theirs).await;
    assert!(team.read(&remotes).await.is_empty(), "another's list");
    for at in 0..ours.len() {
        let mut damaged = ours.to_vec();
        damaged[at] ^= 0x10;
        put(damaged.into()).await;
        assert!(team.read(&remotes).await.is_empty(), "byte {at}");
        put(ours.slice(..at)).await;
        assert!(team.read(&remotes).await.is_empty(), "cut at {at}");
    }
    assert_eq!(remotes.tally().of(Share::Damaged), 2 * ours.len() as u64 + 1);
    // What is damaged is replaced by whoever publishes next.
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
    let parsed = Manifest::decode(&encoded).expect("ours");
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
    let published = remotes.publish(&parsed, |_| panic!("it is there already")).await;
    assert_eq!((published.entries, published.blobs, published.blobs_there), (2, 0, 1));
    let mut file = tokio::fs::File::create(place.path().join("fetched")).await.expect("made");
    assert!(remotes.blob(&blob.digest, blob.size_bytes, &mut file).await.expect("fetched"));
    assert!(std::fs::read(place.path().join("fetched")).expect("read") == content);
    let wrong_size = remotes.blob(&blob.digest, blob.size_bytes - 1, &mut Vec::new()).await;
    assert_eq!(wrong_size.expect_err("another size").trouble(), Some(Trouble::Damaged));
    assert!(!remotes.blob(&Digest::of(b"absent"), 9, &mut Vec::new()).await.expect("asked"));
    let digests = [Digest::of(b"absent"), Digest::of(&[])];
    assert_eq!(remotes.small_blobs(&digests).await, [None, None]);
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

    // The same blob in both, wrong in the near one: the far one's is taken, from the start.
    let content = bytes("content", 200_000);
    let key = Key::blob(Digest::of(&content));
    far.put(key, 200_000, whole(content.clone()), Put::Replace).await.expect("put");
    let mut wrong = content.to_vec();
    wrong[150_000] ^= 1;
    near.put(key, 200_000, whole(wrong.into()), Put::Replace).await.expect("put");
    let mut fetched = Vec::new();
    assert!(both.blob(&key.digest, 200_000, &mut fetched).await.expect("fetched"));
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
    let list = team.memory.peek(Key::manifest(team.weak)).expect("is there");
    assert!(list.len() < 128 << 10, "{} bytes", list.len());
    let kept = team.read(&remotes).await;
    assert_eq!(
        kept,
        all[all.len() - larder_model::MANIFEST_ENTRIES_MAX..],
        "the newest, whether in the list or beside it"
    );
}

#[tokio::test]
async fn what_was_used_is_merged_newest_first() {
    let team = Team::new("memory://");
    let remotes = team.seen_by(&options(3, &[]));
    let (place, digest) = (Digest::of(b"place"), |number: u8| Digest([number; 32]));
    assert!(remotes.used(&place).await.expect("asked").is_empty());
    remotes.publish_used(&place, &[digest(1), digest(2)]).await.expect("published");
    remotes.publish_used(&place, &[digest(3), digest(1)]).await.expect("published");
    assert_eq!(remotes.used(&place).await.expect("asked"), [digest(3), digest(1), digest(2)]);
    assert!(remotes.used(&Digest::of(b"elsewhere")).await.expect("asked").is_empty());
}

/// A remote that stalls is given up, then left alone at no cost.
#[tokio::test(start_paused = true)]
async fn a_stalling_remote_is_left_alone() {
    let options = Options { stall: Duration::from_millis(500), ..options(3, &[]) };
    let stalling = Faults::new(Arc::new(Memory::new("memory://")), 10_000 / Fault::ALL.len() as u64, Duration::ZERO, 5);
    let stalling: Arc<dyn Remote> = Arc::new(stalling);
    let connected = stacked(stalling, &options);
    let counts = connected.counts.clone();
    let breaker = connected.breaker.clone();
    let remotes = Remotes::of(vec![(connected, false)], &options);
    let start = tokio::time::Instant::now();
    for _ in 0..200 {
        // Every answer is wrong in some way; none may take longer than the tries with their waits.
        let asked = tokio::time::Instant::now();
        let _ = remotes.manifest(&Digest::of(b"weak")).await;
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    }
    assert!(counts.sum(Asked::GetSmall).failed > 0);
    assert!(counts.troubles(Trouble::Open) > 0, "the breaker never opened: {:?}", breaker.state(Instant::now()));
    println!("200 requests at a remote that does everything wrong: {:?}", start.elapsed());
}
