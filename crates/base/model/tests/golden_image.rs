//! The exact bytes of the formats of images. `crates/testkit/src/golden.rs` says how to renew the
//! files. If a format changes, raise `IMAGE_VERSION`: images of other versions are then not found.

use std::path::{Path, PathBuf};

use larder_model::{
    AccessTrace, Blob, Digest, ImageKey, ImageRecord, Pack, PackList, PieceList, SavedPath, listed_prefix,
};
use larder_testkit::{golden, golden_bytes};

/// The digest of the key `deps-linux-1`, and of the list of `deps-`.
const KEY: &str = "8f32437fb365ed1aba95b5e9e249b6501acd3807653763c34e67fa755081f7ec";
const LIST: &str = "1daa4233f025b40c31eb84aa34f860ac2e4e65b6556e01ccfcf0f68f1048d570";

fn file(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).join(name)
}

fn blob(n: u8) -> Blob {
    Blob { digest: Digest([n; 32]), size_bytes: u64::from(n) * 1000 }
}

fn record(trace: Option<Blob>) -> ImageRecord {
    let saved = |path: &[u8], n| SavedPath { path: path.to_vec(), tree: blob(n) };
    ImageRecord {
        key: "deps-linux-1".parse().expect("a key"),
        created_ms: 1_790_000_000_000,
        saved: vec![saved(b"node_modules", 1), saved(b"~/.npm/\xff", 2)],
        packs: blob(3),
        pieces: blob(4),
        files: 200_000,
        size_bytes: 1 << 31,
        trace,
    }
}

fn packs() -> PackList {
    let pack = |(n, blocks)| Pack { blob: blob(n), blocks };
    PackList::new([(5, 1), (6, 511), (7, 256)].map(pack).to_vec()).expect("few")
}

fn pieces() -> PieceList {
    let digest = |n| Digest([n; 32]);
    PieceList { packs: vec![vec![(digest(8), 1)], vec![(digest(9), 255), (digest(10), 256)], vec![(digest(11), 256)]] }
}

#[test]
fn golden_images() {
    golden(&file("image.hex"), "the record of an image without a trace", &record(None).encode());
    golden(&file("image_traced.hex"), "the record of an image with a trace", &record(Some(blob(12))).encode());
    golden(&file("packs.hex"), "a list of packs", &packs().encode());
    golden(&file("pieces.hex"), "a list of pieces", &pieces().encode());
    let trace = AccessTrace { packs: vec![2, 0, 300], is_carried: true };
    golden(&file("trace.hex"), "what jobs touched, carried over", &trace.encode());
}

#[test]
fn golden_images_are_read() {
    assert_eq!(ImageRecord::decode(&golden_bytes(&file("image.hex"))), Ok(record(None)));
    assert_eq!(ImageRecord::decode(&golden_bytes(&file("image_traced.hex"))), Ok(record(Some(blob(12)))));
    assert_eq!(PackList::decode(&golden_bytes(&file("packs.hex"))), Ok(packs()));
    assert_eq!(PieceList::decode(&golden_bytes(&file("pieces.hex"))), Ok(pieces()));
    let trace = AccessTrace { packs: vec![2, 0, 300], is_carried: true };
    assert_eq!(AccessTrace::decode(&golden_bytes(&file("trace.hex"))), Ok(trace));
    assert!(pieces().fits(&packs()));
}

#[test]
fn golden_names_of_images() {
    let key: ImageKey = "deps-linux-1".parse().expect("a key");
    assert_eq!(key.digest().hex(), KEY, "other digests: images are not found");
    assert_eq!(listed_prefix("deps-").expect("has one").hex(), LIST, "other digests: lists are not found");
    assert_eq!(key.lists()[0].hex(), LIST);
}
