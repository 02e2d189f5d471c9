use super::bytes::BLOCK;
use super::*;
use crate::tree::tests::sample;
use larder_testkit::{golden, has, probe_skip};
use std::os::unix::ffi::OsStringExt;
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

/// For every tree that can be decoded, the kernel gets a file system that `fsck.erofs` accepts.
#[test]
fn the_checker_finds_nothing_in_what_is_made_of_damaged_trees() {
    probe_skip!(has("fsck.erofs"), "fsck.erofs is not installed (erofs-utils)");
    const BLOCKS: u32 = 300;
    let dir = tempfile::tempdir().expect("a directory");
    let (image, data) = (dir.path().join("image"), dir.path().join("data"));
    std::fs::write(&data, vec![7; BLOCKS as usize * BLOCK]).expect("writes");
    let (bytes, mut checked) = (sample().encode(), 0);
    for at in 1..bytes.len() {
        for flip in [1, 2, 0x10, 0x40] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let Ok(tree) = Tree::decode(&damaged) else { continue };
            // As when an image is opened: its pieces are within its packs.
            let is_within = |block: &u32| *block == HOLE || *block < BLOCKS - (PIECE_BYTES / BLOCK_BYTES) as u32;
            if !tree.blocks.iter().all(is_within) {
                continue;
            }
            let file = File::create(&image).expect("makes");
            if metadata(&tree, BLOCKS, (0, 0), &file).is_err() {
                continue;
            }
            let done = Command::new("fsck.erofs").arg(format!("--device={}", data.display())).arg(&image).output();
            let done = done.expect("starts");
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "byte {at}, {flip:#x}: {said}");
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked} were checked");
}

#[test]
fn in_one_file_each_file_is_one_stretch() {
    probe_skip!(has("fsck.erofs"), "fsck.erofs is not installed (erofs-utils)");
    let (tree, dir) = (sample(), tempfile::tempdir().expect("a directory"));
    let blocks = tree.blocks.iter().filter(|block| **block != HOLE).max().expect("files have bytes") + 256;
    let byte = |block: u32| (block % 251) as u8 + 1;
    let path = dir.path().join("image");
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("makes");
    let made = whole(&tree, blocks, (0, 0), &file).expect("makes");
    assert_eq!(made.device_at % BLOCK_BYTES, 0);
    file.set_len(made.size_bytes).expect("grows");
    let device: Vec<u8> = (0..blocks).flat_map(|block| [byte(block); BLOCK]).collect();
    file.write_all_at(&device, made.device_at).expect("writes");
    made.end(&file).expect("writes");
    let to = dir.path().join("to");
    let checked = Command::new("fsck.erofs").arg(format!("--extract={}", to.display())).arg(&path).output();
    let checked = checked.expect("starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mut several = 0;
    for (number, node) in tree.nodes.iter().enumerate() {
        let NodeKind::File { size, pieces, .. } = node.kind else { continue };
        let name = std::ffi::OsString::from_vec(tree.path(number as u32));
        let bytes = std::fs::read(to.join(&name)).expect("was unpacked");
        assert_eq!(bytes.len() as u64, size);
        for (piece, &block) in tree.blocks[pieces.range()].iter().enumerate() {
            for (at, part) in bytes[piece << 20..].chunks(BLOCK).take(256).enumerate() {
                let expect = if block == HOLE { 0 } else { byte(block + at as u32) };
                assert!(part.iter().all(|byte| *byte == expect), "{name:?}, piece {piece}, block {at}");
            }
        }
        several += usize::from(pieces.range().len() > 1);
    }
    assert!(several > 0, "the sample has no file of several pieces");
}

#[test]
fn each_piece_of_a_file_says_where_it_is() {
    let tree = sample();
    let listed = |layout: Layout| tree.nodes.iter().map(|node| layout.is_listed(node)).collect::<Vec<bool>>();
    // Node 2 is a file of one piece, node 4 a file of four pieces with holes.
    let files = [false, false, true, false, true, false, false, false];
    assert_eq!(listed(Layout::new(&tree, 300).expect("few names")), files);
    assert_eq!(listed(Layout::whole(&tree, 300).expect("few names")), [false; 8]);
    assert_eq!(made(&tree, 300)[DEVICE + DEVICE_BYTES..][..SPARE.len()], *SPARE);
}
