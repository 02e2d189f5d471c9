use super::*;
use crate::tree::tests::sample;
use larder_testkit::{golden, has, probe_skip};
use std::path::Path;
use std::process::Command;

#[test]
fn the_bytes_are_these() {
    let bytes = metadata(&sample(), 300, (0, 0)).expect("makes");
    assert_eq!(bytes.len() % BLOCK, 0);
    golden(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/erofs.hex"),
        "An EROFS with each kind of node",
        &bytes,
    );
}

#[test]
fn the_checker_of_its_makers_finds_nothing() {
    probe_skip!(has("fsck.erofs"), "fsck.erofs is not installed (erofs-utils)");
    let dir = tempfile::tempdir().expect("a directory");
    let (image, data) = (dir.path().join("image"), dir.path().join("data"));
    std::fs::write(&image, metadata(&sample(), 300, (0, 0)).expect("makes")).expect("writes");
    std::fs::write(&data, vec![7; 300 * BLOCK]).expect("writes");
    let checked = Command::new("fsck.erofs").arg(format!("--device={}", data.display())).arg(&image).output();
    let checked = checked.expect("starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
