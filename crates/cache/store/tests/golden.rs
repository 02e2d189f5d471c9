//! The exact bytes and names of the files in a store, except for records, which belong to
//! `larder-model`. `crates/testkit/src/golden.rs` says how to renew them. If a format changes,
//! raise `VERSION` in `stat_cache/table.rs` or `counters.rs`. If a name changes, raise
//! `FORMAT_VERSION` of `larder-model`.
#![cfg(all(target_os = "linux", target_endian = "little"))]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use larder_model::{
    ActionResult, Bypass, Content, Digest, Entry, ExplainWalk, FORMAT_VERSION, Fallback, FileMode, Made, ModeRule,
    ObservationSet, Observer, Outcome, Output, OutputKind, Placement, Rewrite, Streams, Unrecorded,
};
use larder_store::{Counters, StatCache, Store};
use larder_sys::{FileType, Stat, Trust, boot_id};
use larder_testkit::{golden, golden_bytes};
use tempfile::TempDir;

/// The size of the counters in their file. The recent commands come after them.
const COUNTERS_BYTES: usize = 4096;

fn file(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(&dir.path().join("store")).expect("opens");
    (dir, store)
}

fn in_store(dir: &TempDir, name: impl AsRef<Path>) -> PathBuf {
    dir.path().join(format!("store/v{FORMAT_VERSION}")).join(name)
}

fn count_some(store: &Store) {
    let counters = Counters::open(store).expect("opens");
    let reasons = [
        Outcome::Hit,
        Outcome::Miss(None),
        Outcome::Miss(Some(Unrecorded::ComparesTimes)),
        Outcome::Bypass(Bypass::Limited),
        Outcome::Fallback(Fallback::ObserverFailed),
    ];
    reasons.into_iter().for_each(|outcome| counters.count(outcome));
    counters.grew(70_000);
}

#[test]
fn golden_counters() {
    let (dir, store) = store();
    count_some(&store);
    let bytes = fs::read(in_store(&dir, "counters")).expect("reads");
    let (counters, recent) = bytes.split_at(COUNTERS_BYTES);
    golden(&file("counters.hex"), "counters, one of each kind", counters);
    assert!(recent.iter().all(|&byte| byte == 0), "no command was noted");
}

#[test]
fn golden_counters_are_read() {
    let (dir, store) = store();
    count_some(&store);
    let counted = Counters::read(&store);
    let path = in_store(&dir, "counters");
    let mut bytes = golden_bytes(&file("counters.hex"));
    bytes.resize(fs::metadata(&path).expect("is there").len() as usize, 0);
    fs::write(&path, bytes).expect("writes");
    assert_eq!(Counters::read(&store), counted);
    assert_eq!((counted.hit, counted.miss, counted.bypass, counted.fallback), (1, 2, 1, 1));
}

#[test]
fn counters_of_another_version_are_made_anew() {
    let (dir, store) = store();
    count_some(&store);
    let path = in_store(&dir, "counters");
    let bytes = fs::read(&path).expect("reads");
    for byte in 0..8 {
        let mut other = bytes.clone();
        other[byte] ^= 3;
        fs::write(&path, other).expect("writes");
        assert_eq!(Counters::read(&store), Default::default(), "byte {byte}");
        Counters::open(&store).expect("opens").count(Outcome::Hit);
        let totals = Counters::read(&store);
        assert_eq!((totals.hit, totals.miss, totals.store_bytes), (1, 0, 0), "byte {byte}");
    }
}

fn directory() -> Stat {
    Stat {
        kind: FileType::Directory,
        mode: 0o755,
        volume: 0x0801 << 32 | 2,
        device: 0x0801 << 32 | 2,
        inode: 1234,
        size_bytes: 4096,
        modified_ns: 1_700_000_000_123_456_789,
        changed_ns: 1_700_000_001_000_000_000,
        links: 2,
        owner: 0,
        group: 0,
    }
}

const TRUST: Trust = Trust { files: true, directories: true };

/// The size of a header, 4,096 slots, and 48 extra slots.
const TABLE_BYTES: usize = 80 + (4096 + 48) * 80;

/// Makes a table with one stamp. Returns it and its path.
fn stat_cache(store: &Store) -> (StatCache, PathBuf) {
    let stat_cache = StatCache::open(store, true);
    stat_cache.keep_absent(&directory(), 1 << 62, &Digest([9; 32]), || TRUST);
    let id = boot_id().expect("is known here");
    (stat_cache, store.directory().join(format!("v{FORMAT_VERSION}/stamps")).join(id))
}

#[test]
fn golden_stamps() {
    let (_dir, store) = store();
    let (_stamps, path) = stat_cache(&store);
    let bytes = fs::read(path).expect("reads");
    assert_eq!(bytes.len(), TABLE_BYTES);
    let (header, slots) = bytes.split_at(80);
    let used: Vec<(usize, &[u8])> =
        slots.chunks(80).enumerate().filter(|(_, slot)| slot.iter().any(|&byte| byte != 0)).collect();
    let [(number, slot)] = used[..] else { panic!("{} slots are used", used.len()) };
    let all = [header, &(number as u64).to_le_bytes(), slot].concat();
    golden(&file("stamps.hex"), "header of the stamps, number of the one slot in use, that slot", &all);
}

#[test]
fn golden_stamps_are_read() {
    let (_dir, store) = store();
    let (_, path) = stat_cache(&store);
    let golden = golden_bytes(&file("stamps.hex"));
    let (header, rest) = golden.split_at(80);
    let number = u64::from_le_bytes(rest[..8].try_into().expect("has them")) as usize;
    let mut bytes = vec![0; TABLE_BYTES];
    bytes[..80].copy_from_slice(header);
    bytes[80 + number * 80..][..80].copy_from_slice(&rest[8..]);
    fs::write(path, bytes).expect("writes");
    assert!(StatCache::open(&store, false).names_absent(&directory(), &Digest([9; 32])));
}

#[test]
fn stamps_of_another_version_are_made_anew() {
    let (_dir, store) = store();
    let path = stat_cache(&store).1;
    let bytes = fs::read(&path).expect("reads");
    // Each byte of the version and of the number of slots.
    for byte in 0..16 {
        let mut other = bytes.clone();
        other[byte] ^= 3;
        fs::write(&path, &other).expect("writes");
        let known = |stat_cache: &StatCache| stat_cache.names_absent(&directory(), &Digest([9; 32]));
        assert!(!known(&StatCache::open(&store, false)), "byte {byte}");
        assert!(fs::read(&path).expect("reads") == other, "only read");
        assert!(!known(&StatCache::open(&store, true)), "byte {byte}");
        assert!(fs::read(&path).expect("reads")[..16] == bytes[..16], "byte {byte}: made anew");
    }
}

/// Returns every path below `top`, with its mode.
fn names(top: &Path, below: &str, found: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(top.join(below)).expect("lists").map(|e| e.expect("reads")).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{below}/{}", entry.file_name().to_str().expect("is text"));
        let meta = entry.metadata().expect("looks");
        found.push(format!("{:o} {}", meta.mode(), name.trim_start_matches('/')));
        if meta.is_dir() {
            names(top, name.trim_start_matches('/'), found);
        }
    }
}

#[test]
fn golden_layout() {
    let (dir, store) = store();
    let weak = Digest([0xab; 32]);
    let blob = store.put_blob(&mut &b"object"[..]).expect("writes");
    let kind = OutputKind::File {
        placement: Placement::Replace,
        mode: FileMode { bits: 0o666, rule: ModeRule::Masked },
        rewrite: Rewrite::None,
        content: Content::Blob(blob),
    };
    let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
    let result = ActionResult { outputs: vec![Output::new(b"\0\x01/o", kind)], ..ActionResult::of(streams) };
    let mut body = Vec::new();
    let (set, made) = (ObservationSet::default(), Made { made_in: Digest([3; 32]), bound: None });
    let entry = Entry::new(&weak, Observer::Preload, 1, &made, &set, &result, &mut body);
    store.record(&weak, &ExplainWalk::default(), entry).expect("writes");
    store.note_neighbour(&Digest([0xcd; 32]), &weak).expect("writes");
    assert!(store.first_time(&Digest([0xef; 32])) && !store.first_time(&Digest([0xef; 32])));
    store.evict(u64::MAX).expect("evicts");
    stat_cache(&store);

    let mut found = Vec::new();
    names(&in_store(&dir, ""), "", &mut found);
    let [ab, ef] = ["ab", "ef"].map(|pair| pair.repeat(31));
    let object = blob.digest.hex();
    let expect = [
        "40700 blobs".to_owned(),
        format!("40700 blobs/{}", &object[..2]),
        format!("100600 blobs/{}/{}", &object[..2], &object[2..]),
        "100600 counters".to_owned(),
        "40700 locks".to_owned(),
        "100600 locks/ab".to_owned(),
        "100600 locks/evict".to_owned(),
        "40700 manifests".to_owned(),
        "40700 manifests/ab".to_owned(),
        format!("100600 manifests/ab/{ab}"),
        "100600 near".to_owned(),
        "40700 notes".to_owned(),
        format!("100600 notes/ef{ef}"),
        "40700 stamps".to_owned(),
        format!("100600 stamps/{}", boot_id().expect("is known here")),
        "40700 tmp".to_owned(),
    ];
    assert_eq!(found, expect);
    let read = |name: &str| fs::read_to_string(in_store(&dir, name)).expect("reads");
    let near = fs::read(in_store(&dir, "near")).expect("reads");
    assert_eq!(near.len() as u64, 0x0001_cdcd * 64 + 64);
    assert_eq!(near[near.len() - 64..near.len() - 8], [[0xcd; 24].as_slice(), &[0xab; 32]].concat());
    assert_eq!(read(&format!("blobs/{}/{}", &object[..2], &object[2..])), "object");
    for empty in [format!("notes/ef{ef}"), "locks/ab".to_owned(), "locks/evict".to_owned()] {
        assert_eq!(read(&empty), "", "{empty}");
    }
}

#[test]
fn what_another_version_left_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["v0/manifests/ab/x", "v255/blobs/cd/y", "other"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("makes");
        fs::write(path, "theirs").expect("writes");
    }
    let store = Store::open(dir.path()).expect("opens");
    assert!(store.read_manifest(&Digest([0xab; 32]), true).expect("reads").is_none());
    count_some(&store);
    store.evict(0).expect("evicts");
    store.clear().expect("clears");
    assert!(store.fsck(true, &mut |_, _| {}).expect("reads").problems.is_empty());
    for name in ["v0/manifests/ab/x", "v255/blobs/cd/y", "other"] {
        assert_eq!(fs::read_to_string(dir.path().join(name)).expect("is there"), "theirs");
    }
}
