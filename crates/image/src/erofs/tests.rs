use super::*;
use crate::tree::tests::sample;
use larder_testkit::{golden, has, probe_skip};
use std::path::Path;
use std::process::Command;

fn made(tree: &Tree, device_blocks: u32) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    metadata(tree, device_blocks, (0, 0), file.as_file()).expect("makes");
    std::fs::read(file.path()).expect("reads")
}

#[test]
fn the_bytes_are_these() {
    let bytes = made(&sample(), 300);
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
    std::fs::write(&image, made(&sample(), 300)).expect("writes");
    std::fs::write(&data, vec![7; 300 * BLOCK]).expect("writes");
    let checked = Command::new("fsck.erofs").arg(format!("--device={}", data.display())).arg(&image).output();
    let checked = checked.expect("starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn blocks_are_counted_on_while_their_numbers_have_room() {
    let tree = sample();
    for (device_blocks, of_a_piece) in [(300, false), (1 << 31, false), ((1 << 31) + 1, true)] {
        let layout = Layout::new(&tree, device_blocks).expect("few names");
        let listed: Vec<bool> = tree.nodes.iter().map(|node| layout.is_listed(&tree, node)).collect();
        // The third is a file of a piece, the fifth one of four, of which some are not written.
        assert_eq!(listed, [false, false, of_a_piece, false, true, false, false, false]);
        let counted_on = made(&tree, device_blocks)[DEVICE + 68..][..4].to_vec();
        assert_eq!(counted_on != [0; 4], !of_a_piece);
    }
}
