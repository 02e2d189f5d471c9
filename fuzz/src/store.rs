//! Decoders that read files. Each run has a store of its own, in memory if there is a `/dev/shm`.

use std::fs;
use std::path::{Path, PathBuf};

use larder_image::{Format, Packing, Progress, unpack};
use larder_model::{Blob, Digest, FORMAT_VERSION, Outcome, Writer};
use larder_store::{Counters, StatCache, Store};
use larder_sys::{FileType, Stat, Trust};
use tempfile::TempDir;

struct Place {
    _dir: TempDir,
    base: PathBuf,
    store: Store,
}

impl Place {
    fn new() -> Place {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("can be made");
        let base = dir.path().join(format!("v{FORMAT_VERSION}"));
        fs::create_dir(&base).expect("can be made");
        let store = Store::open(dir.path()).expect("opens");
        Place { _dir: dir, base, store }
    }

    fn put(&self, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
        let path = self.base.join(name);
        // Paths that conflict with each other are left out.
        let _ = fs::create_dir_all(path.parent().expect("has one"));
        let _ = fs::write(&path, bytes);
        path
    }
}

pub(crate) fn counters(data: &[u8]) {
    let place = Place::new();
    place.put("counters", data);
    let before = Counters::read(&place.store);
    let counters = Counters::open(&place.store).expect("opens");
    counters.count(Outcome::Hit);
    let after = Counters::read(&place.store);
    // A file that is too short is not read. `Counters::open` extends it, and then counts with what
    // is in it.
    let whole = data.len() >= Counters::FILE_BYTES;
    assert!(!whole || after.hit == before.hit.wrapping_add(1) || after.hit == 1);
    counters.grew(u64::MAX);
    counters.zero();
    assert_eq!(Counters::read(&place.store).hit, 0);
}

fn stat(inode: u64) -> Stat {
    Stat {
        kind: FileType::Directory,
        mode: 0o755,
        volume: 0x0801 << 32 | 2,
        device: 0x0801 << 32 | 2,
        inode,
        size_bytes: 4096,
        modified_ns: 1_700_000_000_123_456_789,
        changed_ns: 1_700_000_001_000_000_000,
        links: 2,
        owner: 0,
        group: 0,
    }
}

/// A stat cache of at most 256 slots, which are filled with `data` again and again. The first byte
/// says whether its header is made valid.
pub(crate) fn stat_cache(data: &[u8]) {
    const HEAD: usize = 80;
    const VERSION: [u8; 8] = 0x4c52_4453_0000_0001u64.to_ne_bytes();
    let place = Place::new();
    let (told, rest) = data.split_first().unwrap_or((&0, &[]));
    let mut bytes = rest.to_vec();
    if told & 1 == 1 {
        let count = 1usize << (told >> 1 & 7);
        bytes.resize(HEAD.max(bytes.len()), 0);
        bytes[..8].copy_from_slice(&VERSION);
        bytes[8..16].copy_from_slice(&(count as u64).to_ne_bytes());
        let slots = bytes.split_off(HEAD);
        let slots = if slots.is_empty() { vec![0] } else { slots };
        bytes.extend(slots.iter().copied().cycle().take(count * 80));
    }
    place.put(Path::new("stamps").join(larder_sys::boot_id().expect("is known")), &bytes);
    let names = Digest([9; 32]);
    let known = StatCache::open(&place.store, false);
    known.names_absent(&stat(1234), &names);
    assert_eq!(known.content(&stat(1)), None, "nothing is known of this file");
    let stat_cache = StatCache::open(&place.store, true);
    let trust = Trust { files: true, directories: true };
    for inode in 0..40 {
        stat_cache.keep_absent(&stat(inode), 1 << 62, &names, || trust);
        assert!(stat_cache.names_absent(&stat(inode), &names), "the entry that was written last is found");
    }
    stat_cache.settle(&place.store).expect("is written");
}

pub(crate) fn near(data: &[u8]) {
    let place = Place::new();
    // The digest of zeros belongs to the first slot.
    let subject = Digest([0; 32]);
    place.store.note_neighbour(&subject, &subject).expect("writes");
    assert_eq!(place.store.neighbour(&subject), Some(subject));
    place.put("near", data);
    if let Some(found) = place.store.neighbour(&subject) {
        assert_eq!(found.0, data[24..56]);
    }
}

/// Writes pieces of `data` to paths that are right for them and to paths that are not.
pub(crate) fn fsck(data: &[u8]) {
    let place = Place::new();
    let pieces: Vec<&[u8]> = data.split(|&byte| byte == b'\xfe').take(8).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let mut sealed = Writer::default();
        sealed.bytes.extend_from_slice(piece);
        let sealed = sealed.seal();
        let bytes = if at % 2 == 0 { piece } else { &sealed[..] };
        let named = Digest::of(bytes).hex();
        let told = piece.get(1..33).map_or(named.clone(), |weak| {
            let mut digest = [0; 32];
            digest.copy_from_slice(weak);
            Digest(digest).hex()
        });
        place.put(format!("blobs/{}/{}", &named[..2], &named[2..]), if at % 3 == 0 { piece } else { bytes });
        place.put(format!("manifests/{}/{}", &told[..2], &told[2..]), bytes);
        place.put(format!("manifests/{}/{at}", &named[..2]), bytes);
        place.put(format!("blobs/{at}"), bytes);
        place.put(format!("tmp/{at}"), bytes);
    }
    let store = &place.store;
    store.fsck(false, &mut |_, _| {}).expect("reads");
    let repaired = store.fsck(true, &mut |done, all| assert!(done <= all)).expect("reads");
    let again = store.fsck(true, &mut |_, _| {}).expect("reads");
    let last = store.fsck(false, &mut |_, _| {}).expect("reads");
    // The first repair may remove a blob that an entry needs. Then the second one removes the
    // entry.
    assert!(last.problems.is_empty(), "{repaired:?} {again:?} {last:?}");
    store.evict(100).expect("evicts");
    let blob = Blob { digest: Digest::of(data), size_bytes: data.len() as u64 };
    assert!(store.put_blob(&mut &data[..]).expect("writes") == blob);
    assert!(store.open_blob(&blob, &StatCache::none()).is_ok());
    store.clear().expect("clears");
    assert_eq!(store.fsck(false, &mut |_, _| {}).expect("reads"), Default::default());
}

/// An archive in each format that is read without another program. The first byte chooses it.
pub(crate) fn archive(data: &[u8]) {
    const BYTES_MAX: u64 = 1 << 20;
    let place = Place::new();
    let [which, bytes @ ..] = data else { return };
    let packings = [Packing::None, Packing::Gzip, Packing::Lz4, Packing::Zstd];
    let format = packings.get(usize::from(which % 5)).map_or(Format::Zip, |packing| Format::Tar(*packing));
    let archive = place.put("archive", bytes);
    let beside = place.base.join("beside");
    fs::create_dir(&beside).expect("can be made");
    let unpacked = unpack(&archive, format, Some(b"name"), &beside, BYTES_MAX, &Progress::default());
    drop(unpacked);
    let left: Vec<_> = fs::read_dir(&beside).expect("lists").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}
