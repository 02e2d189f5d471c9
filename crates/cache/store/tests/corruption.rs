//! Damages each bit of each byte of each file of a store: damaged data must not be used. These
//! tests run no programs, so that they are fast. `crates/testkit/tests/corruption.rs` tests whole
//! runs.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use larder_model::{
    ActionResult, Blob, Bound, Content, Digest, Entry, ExplainWalk, FORMAT_VERSION, Made, Manifest, ObservationSet,
    Observer, Outcome, Streams, Walk,
};
use larder_store::{Counters, StatCache, Store, StoreError};
use larder_sys::{FileType, Stat, Trust};
use larder_testkit::is_full;
use tempfile::TempDir;

struct Place {
    _dir: TempDir,
    base: PathBuf,
    store: Store,
}

fn place() -> Place {
    // In memory if possible, because some disks are slow for each newly written file.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dir = dir.expect("a directory");
    let store = Store::open(dir.path()).expect("opens");
    Place { base: dir.path().join(format!("v{FORMAT_VERSION}")), _dir: dir, store }
}

/// Calls `stat` for every damage of one byte and every cut of `path`, and then restores the file.
fn each_damage(path: &PathBuf, mut stat: impl FnMut(&str, usize)) {
    let bytes = fs::read(path).expect("reads");
    for at in 0..bytes.len() {
        for mask in (0..8).map(|bit| 1u8 << bit).chain([0xff]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= mask;
            fs::write(path, damaged).expect("writes");
            stat("changed", at);
        }
        fs::write(path, &bytes[..at]).expect("writes");
        stat("cut", at);
    }
    fs::write(path, [&bytes[..], &[0]].concat()).expect("writes");
    stat("longer", bytes.len());
    fs::write(path, bytes).expect("writes");
}

#[test]
fn a_manifest() {
    let place = place();
    let weak = Digest([0xab; 32]);
    let mut walk = ExplainWalk::default();
    walk.field("argument", b"-c");
    let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::Inline(b"warning") };
    let result = ActionResult::of(streams);
    for run_time_us in [1, 2] {
        let (set, mut body) = (ObservationSet::default(), Vec::new());
        let made = Made { made_in: Digest([run_time_us as u8; 32]), bound: Some((Bound::Output, b"x.o".to_vec())) };
        let entry = Entry::new(&weak, Observer::Preload, run_time_us, &made, &set, &result, &mut body);
        place.store.record(&weak, &walk, entry).expect("records");
    }
    let read = || place.store.read_manifest(&weak, true).expect("reads").expect("is there");
    assert_eq!(Manifest::decode(&read().bytes).expect("is sound").entries.len(), 2);
    let path = place.base.join("manifests/ab").join("ab".repeat(31));
    each_damage(&path, |how, at| assert!(Manifest::decode(&read().bytes).is_err(), "{how} at {at}"));
}

#[test]
fn a_blob() {
    let place = place();
    let size = if is_full() { 5000 } else { 300u32 };
    let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
    let blob = place.store.put_blob(&mut &bytes[..]).expect("writes");
    let hex = blob.digest.hex();
    let path = place.base.join("blobs").join(&hex[..2]).join(&hex[2..]);
    // A reader that may not write sees each damage, because it does not remove the file.
    let stat_cache = StatCache::open(&place.store, false);
    each_damage(&path, |how, at| {
        let opened = place.store.open_blob(&blob, &stat_cache).map(|_| ());
        assert!(matches!(opened, Err(StoreError::BlobDamaged(_))), "{how} at {at}: {opened:?}");
    });
    assert!(place.store.open_blob(&blob, &stat_cache).is_ok());
    let other = Blob { size_bytes: blob.size_bytes + 1, ..blob };
    assert!(place.store.open_blob(&other, &stat_cache).is_err(), "the size differs from the record's");
}

fn stat(inode: u64) -> Stat {
    Stat {
        kind: FileType::Directory,
        mode: 0o755,
        volume: 9,
        device: 9,
        inode,
        size_bytes: 0,
        modified_ns: 1,
        changed_ns: 2,
        links: 2,
        owner: 0,
        group: 0,
    }
}

/// The header, the used slots and some empty ones are damaged. With `LARDER_TEST_FULL=1` it is the
/// whole table.
#[test]
fn stat_cache() {
    const SLOT: usize = 80;
    let place = place();
    let stat_cache = StatCache::open(&place.store, true);
    let names = Digest([9; 32]);
    let trust = Trust { files: true, directories: true };
    (0..3).for_each(|inode| stat_cache.keep_absent(&stat(inode), 1 << 62, &names, || trust));
    let path = place.base.join("stamps").join(larder_sys::boot_id().expect("is known"));
    let whole = fs::read(&path).expect("reads");
    let told = |at: usize| at < SLOT || whole[at / SLOT * SLOT..][..SLOT].iter().any(|&byte| byte != 0);
    let mut believed = 0;
    for at in (0..whole.len()).filter(|&at| is_full() || told(at) || at % 997 == 0) {
        for mask in [1 << (at % 8), 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= mask;
            fs::write(&path, damaged).expect("writes");
            let stat_cache = StatCache::open(&place.store, false);
            for inode in 0..3 {
                believed += usize::from(stat_cache.names_absent(&stat(inode), &names));
                assert!(!stat_cache.names_absent(&stat(inode), &Digest([8; 32])), "byte {at}");
                assert!(!stat_cache.names_absent(&stat(inode + 10), &names), "byte {at}");
                assert_eq!(stat_cache.content(&stat(inode)), None, "byte {at}");
            }
        }
        if told(at) {
            fs::write(&path, &whole[..at]).expect("writes");
            assert!(!StatCache::open(&place.store, false).names_absent(&stat(0), &names), "cut at {at}");
        }
    }
    assert!(believed > 0, "undamaged slots are still used");
}

/// All bytes of the counters are damaged, and some of the recent commands after them, which fill most
/// of the file.
#[test]
fn counters() {
    const COUNTERS_BYTES: usize = 4096;
    let place = place();
    Counters::open(&place.store).expect("opens").count(Outcome::Hit);
    let path = place.base.join("counters");
    let bytes = fs::read(&path).expect("reads");
    let check = |how: &str, at: usize| {
        // Counts may be wrong after damage, but they can be read and incremented.
        let before = Counters::read(&place.store).miss;
        Counters::open(&place.store).expect("opens").count(Outcome::Miss(None));
        let after = Counters::read(&place.store).miss;
        assert!(after == before + 1 || after == 1, "{how} at {at}");
    };
    for at in (0..COUNTERS_BYTES).chain((COUNTERS_BYTES..bytes.len()).step_by(9973)) {
        for mask in (0..8).map(|bit| 1u8 << bit).chain([0xff]) {
            let file = fs::OpenOptions::new().write(true).open(&path).expect("opens");
            file.write_all_at(&[bytes[at] ^ mask], at as u64).expect("writes");
            check("changed", at);
            // A file that is not believed may have been made anew meanwhile.
            let file = fs::OpenOptions::new().write(true).open(&path).expect("opens");
            file.write_all_at(&bytes[at..=at], at as u64).expect("writes");
        }
        fs::write(&path, &bytes[..at]).expect("writes");
        check("cut", at);
    }
}

#[test]
fn the_nearest_record() {
    let place = place();
    // The subject that has the first slot.
    let mut subject = Digest([0xcd; 32]);
    subject.0[..8].fill(0);
    let weak = Digest([0xab; 32]);
    place.store.note_neighbour(&subject, &weak).expect("writes");
    let path = place.base.join("near");
    each_damage(&path, |how, at| {
        assert!(how == "longer" || place.store.neighbour(&subject).is_none(), "{how} at {at}")
    });
    assert_eq!(place.store.neighbour(&subject), Some(weak));
}
