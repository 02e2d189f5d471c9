//! Machines that share a remote with injected faults: errors, stalls, truncated objects, flipped
//! bits, swapped and stale objects, delays, and writes that succeed but report a failure. No
//! machine may get a wrong byte, and every action must end.
//!
//! A seed determines a whole run, on a simulated clock. `LARDER_FAULT_REQUESTS` is the number of
//! requests, by default 240,000:
//!
//! ```text
//! LARDER_FAULT_REQUESTS=10000000 cargo test --release -p larder-remote --test faults -- --nocapture
//! ```

mod injected;
#[path = "../conformance/sample.rs"]
mod sample;

use bytes::Bytes;
use futures::future::join_all;
use futures::stream::TryStreamExt;
use injected::{Fault, Faults};
use larder_model::{Blob, Content, Digest, Manifest, OutputKind};
use larder_remote::{
    Abilities, Answer, Asked, Body, BreakerPolicy, Fetched, Key, Memory, Options, Put, Remote, Remotes, Share, Stored,
    Trouble, stacked, whole,
};
use sample::{Run, bytes, manifest, names, options};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MACHINES: u64 = 8;
const ACTIONS: u64 = 400;
/// The sets of observations of each action, as if it read other files on some machines.
const VARIANTS: u64 = 3;
/// How many of 10,000 requests meet each kind of fault.
const OFTEN: u64 = 100;

/// The right outputs of all actions and variants.
struct Truth {
    place: tempfile::TempDir,
    outputs: HashMap<Digest, Bytes>,
}

#[derive(Default)]
struct Counted {
    actions: AtomicU64,
    hits: AtomicU64,
    runs: AtomicU64,
}

fn name(action: u64, variant: u64) -> String {
    format!("A{action}V{variant}")
}

fn output(action: u64, variant: u64) -> Bytes {
    let seed = name(action, variant);
    bytes(&seed, 5000 + (Digest::of(seed.as_bytes()).place_among(30_000) as usize))
}

impl Truth {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let mut outputs = HashMap::new();
        for (action, variant) in (0..ACTIONS).flat_map(|action| (0..VARIANTS).map(move |variant| (action, variant))) {
            let content = output(action, variant);
            let digest = Digest::of(&content);
            std::fs::write(place.path().join(digest.hex()), &content).expect("written");
            outputs.insert(digest, content);
        }
        Truth { place, outputs }
    }

    fn path(&self, digest: &Digest) -> Option<PathBuf> {
        Some(self.place.path().join(digest.hex()))
    }
}

/// Runs one action on one machine: a hit from the remotes, or else a run that is published. Panics
/// on wrong bytes.
async fn act(remotes: &Remotes, truth: &Truth, action: u64, variant: u64, counted: &Counted) {
    counted.actions.fetch_add(1, Ordering::Relaxed);
    let weak = Digest::of(&action.to_le_bytes());
    if let Ok(Some((found, _))) = remotes.manifest(&weak).await {
        let parsed = Manifest::decode(&found).expect("a returned manifest is valid");
        for said in names(&found) {
            assert!(said.starts_with(&format!("A{action}V")), "{said} was returned for action {action}");
        }
        for entry in &parsed.entries {
            let (set, result) = entry.open().expect("a returned entry is valid");
            if set.environment[0].name != name(action, variant).as_bytes() {
                continue;
            }
            let OutputKind::File { content: Content::Blob(blob), .. } = result.outputs[0].kind else {
                panic!("the output is not a blob")
            };
            let right = output(action, variant);
            assert_eq!(blob.digest, Digest::of(&right), "the record belongs to another run");
            let mut fetched = Vec::new();
            if let Ok(Some(_)) = remotes.blob(&blob.digest, blob.size_bytes, &mut fetched).await {
                assert!(fetched == right, "WRONG BYTES for action {action}");
                counted.hits.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
    counted.runs.fetch_add(1, Ordering::Relaxed);
    let content = output(action, variant);
    let blob = Blob { digest: Digest::of(&content), size_bytes: content.len() as u64 };
    let encoded = manifest(&weak, &[Run { name: &name(action, variant), exit_code: 0, output: Some(blob) }]);
    let parsed = Manifest::decode(&encoded).expect("valid");
    remotes.publish(&parsed, |digest| truth.outputs.get(digest).and_then(|_| truth.path(digest))).await;
}

/// Runs until the remote has got this many requests, and prints and checks the counts.
async fn simulate(requests: u64, abilities: Abilities, seed: u64) {
    let memory: Arc<dyn Remote> = Arc::new(Memory::with("memory://", abilities));
    let truth = Truth::new();
    let counted = Counted::default();
    let mut machines = Vec::new();
    let mut faults = Vec::new();
    for machine in 0..MACHINES {
        let mut options: Options = options(seed * 100 + machine, &[]);
        options.stall = Duration::from_millis(300);
        options.settle = Duration::from_millis(20);
        // The breaker has its own tests. Here it would hide most faults.
        options.breaker = BreakerPolicy { failures: u32::MAX, ..options.breaker };
        let faulty = Arc::new(Faults::new(memory.clone(), OFTEN, Duration::from_millis(200), options.seed));
        machines.push(Remotes::of(vec![(stacked(faulty.clone(), &options), false)], &options));
        faults.push(faulty);
    }
    let asked = || faults.iter().map(|faults| faults.asked()).sum::<u64>();
    let mut round = 0;
    while asked() < requests {
        round += 1;
        // Six actions at once on each machine. Each two machines build the same.
        let all = machines.iter().enumerate().flat_map(|(machine, remotes)| {
            let (truth, counted) = (&truth, &counted);
            (0..6).map(move |lane| {
                let choice = Digest::of(format!("{seed} {round} {} {lane}", machine / 2).as_bytes());
                let (action, variant) = (choice.place_among(ACTIONS), u64::from(choice.0[31]) % VARIANTS);
                act(remotes, truth, action, variant, counted)
            })
        });
        join_all(all).await;
    }
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let done = |fault| faults.iter().map(|faults| faults.done(fault)).sum::<u64>();
    let dropped = |share| machines.iter().map(|remotes| remotes.tally().of(share)).sum::<u64>();
    println!(
        "{abilities:?}, seed {seed}: {} requests, {} actions, {} hits, {} runs, 0 wrong",
        asked(),
        read(&counted.actions),
        read(&counted.hits),
        read(&counted.runs)
    );
    println!("  faults: {}", Fault::ALL.map(|fault| format!("{fault:?} {}", done(fault))).join(", "));
    println!("  rejected: {}", Share::ALL.map(|share| format!("{share:?} {}", dropped(share))).join(", "));
    assert_eq!(read(&counted.actions), read(&counted.hits) + read(&counted.runs), "an action is missing");
    assert!(Fault::ALL.into_iter().all(|fault| done(fault) * 200 > asked()), "a kind of fault was never injected");
    assert!(read(&counted.hits) > read(&counted.actions) / 2, "fewer than half of the actions were hits");
    assert!(dropped(Share::WrongBlobs) > 0 && dropped(Share::Damaged) > 0, "no damage was detected");
}

fn requests() -> u64 {
    std::env::var("LARDER_FAULT_REQUESTS").ok().and_then(|text| text.parse().ok()).unwrap_or(240_000)
}

fn run_on_a_clock_of_its_own(abilities: impl FnOnce(Abilities) -> Abilities, seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let abilities = abilities(Memory::new("memory://").abilities());
    runtime.expect("a runtime").block_on(simulate(requests() / 3, abilities, seed));
}

#[test]
fn no_wrong_byte_from_a_store_that_compares() {
    run_on_a_clock_of_its_own(|all| all, 1);
}

#[test]
fn no_wrong_byte_where_the_last_writer_wins() {
    run_on_a_clock_of_its_own(|all| Abilities { swap: false, create_new: false, ..all }, 2);
}

#[test]
fn no_wrong_byte_where_nothing_changes() {
    run_on_a_clock_of_its_own(|all| Abilities { swap: false, replace: false, ..all }, 3);
}

/// Shows that a stalling remote costs a limited time. Then the breaker opens.
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
        // Every answer is wrong in some way. None may take longer than all tries and their waits.
        let asked = tokio::time::Instant::now();
        let _ = remotes.manifest(&Digest::of(b"weak")).await;
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    }
    assert!(counts.sum(Asked::GetSmall).failed > 0);
    assert!(counts.troubles(Trouble::Open) > 0, "the breaker never opened: {:?}", breaker.state(Instant::now()));
    println!("200 requests to a remote with a fault in every answer: {:?}", start.elapsed());
}

/// A service behind a slow uplink that all uploads share.
struct SlowUplink {
    memory: Memory,
    wire: tokio::sync::Mutex<()>,
}

impl SlowUplink {
    const BYTES_PER_S: u64 = 500_000;
}

impl Remote for SlowUplink {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn abilities(&self) -> Abilities {
        Abilities { held_bytes: 10 << 20, ..self.memory.abilities() }
    }

    fn get(&self, key: Key) -> Answer<'_, Fetched> {
        self.memory.get(key)
    }

    fn put(&self, key: Key, size: u64, body: Body, how: Put) -> Answer<'_, Stored> {
        Box::pin(async move {
            let all: Vec<Bytes> = body.try_collect().await?;
            for _ in (0..size).step_by(64 << 10) {
                let _wire = self.wire.lock().await;
                tokio::time::sleep(Duration::from_millis((64_000 << 10) / Self::BYTES_PER_S)).await;
            }
            self.memory.put(key, size, whole(all.concat().into()), how).await
        })
    }

    fn has<'a>(&'a self, keys: &'a [Key]) -> Answer<'a, Vec<bool>> {
        self.memory.has(keys)
    }
}

/// Shows that uploads on a slow connection, which take much longer than `Options::stall`, do not
/// count as stalled, and that lookups do not wait for them.
#[tokio::test(start_paused = true)]
async fn slow_uploads_are_not_stalled() {
    let memory = Memory::new("memory://");
    let connected = stacked(Arc::new(SlowUplink { memory, wire: tokio::sync::Mutex::new(()) }), &Options::default());
    let remote = &connected.remote;
    let upload = async |number: u8| {
        let content = Bytes::from(vec![number; 5 << 20]);
        let key = Key::blob(Digest::of(&content));
        remote.put(key, content.len() as u64, whole(content), Put::Replace).await
    };
    let lookup = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let start = tokio::time::Instant::now();
        remote.has(&[Key::blob(Digest::of(b"absent"))]).await.expect("answered");
        start.elapsed()
    };
    let start = tokio::time::Instant::now();
    let (uploaded, waited) = tokio::join!(join_all((0..100).map(upload)), lookup);
    for outcome in uploaded {
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(start.elapsed() > 100 * Duration::from_secs(10), "the uplink is slow: {:?}", start.elapsed());
    assert!(waited < Duration::from_millis(1), "a lookup waited {waited:?}");
}
