use super::encode::NodeMetadata;
use super::*;
use larder_model::DecodeError;
use larder_testkit::golden;
use std::path::Path;

fn known(mode: u16, owner: u32, seconds: i64, attributes: &[(&str, &str)]) -> NodeMetadata {
    let attributes = attributes.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    NodeMetadata { mode, owner: (owner, owner), modified: (seconds, 999_999_999), attributes: attributes.collect() }
}

/// Returns a tree with each kind of node, holes, another owner, attributes, and times before 1970.
pub(crate) fn sample() -> Tree {
    let mut grower = Grower::new((0, 0));
    let directory = NodeKind::Directory(Span::default());
    let top = grower.add(0, b"", known(0o755, 0, 1_700_000_000, &[]), directory);
    let empty = grower.file(0);
    let file = grower.file(5000);
    let sparse = grower.file(3 * PIECE_BYTES + 1);
    let link = grower.link(b"../a");
    grower.add(top, b"a", known(0o4711, 0, -5, &[("user.x", "y")]), empty);
    let first = grower.add(top, b"b\xff\n", known(0o644, 7, 0, &[]), file);
    let sub = grower.add(top, b"c", known(0o700, 0, 3, &[]), directory);
    let holes = grower.add(top, b"d", known(0o600, 0, 4, &[("user.x", "y")]), sparse);
    grower.close(top, 1);
    let from = grower.len();
    grower.add(sub, b"again", known(0o644, 7, 0, &[]), NodeKind::Again(first));
    grower.add(sub, b"link", known(0o777, 0, 9, &[]), link);
    grower.add(sub, b"pipe", known(0o644, 0, 9, &[]), NodeKind::Fifo);
    grower.close(sub, from);
    let mut tree = grower.done();
    tree.set_extents(holes, &[Extent { offset: 0, length: 4096 }, Extent { offset: 3 * PIECE_BYTES, length: 1 }]);
    let NodeKind::File { pieces, .. } = tree.nodes[first as usize].kind else { unreachable!("it is a file") };
    tree.blocks[pieces.range()].copy_from_slice(&[7]);
    let NodeKind::File { pieces, .. } = tree.nodes[holes as usize].kind else { unreachable!("it is a file") };
    tree.blocks[pieces.range()].copy_from_slice(&[9, HOLE, HOLE, 0]);
    tree
}

#[test]
fn there_and_back() {
    let tree = sample();
    let bytes = tree.encode();
    let back = Tree::decode(&bytes).expect("the bytes are valid");
    assert_eq!(back.encode(), bytes);
    let paths: Vec<Vec<u8>> = (0..back.nodes.len()).map(|number| back.path(number as u32)).collect();
    assert_eq!(paths, [&b""[..], b"a", b"b\xff\n", b"c", b"d", b"c/again", b"c/link", b"c/pipe"]);
    assert_eq!(back.nodes[1].modified, (-5, 999_999_999));
    assert_eq!(back.extents, tree.extents);
    assert_eq!(back.blocks, tree.blocks);
    golden(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tree.hex"),
        "A tree with each kind of node",
        &bytes,
    );
}

#[test]
fn damage_is_an_error_or_another_tree() {
    let bytes = sample().encode();
    for at in 0..bytes.len() {
        assert!(Tree::decode(&bytes[..at]).is_err(), "cut at {at}");
        for flip in [1, 0x41, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            if let Ok(tree) = Tree::decode(&damaged) {
                (0..tree.nodes.len()).for_each(|number| drop(tree.path(number as u32)));
            }
        }
    }
    assert_eq!(Tree::decode(&[9]), Err(DecodeError::Version(9)));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [&b".."[..], b".", b"", b"a/b", b"/", b"a\0"] {
        let mut grower = Grower::new((0, 0));
        let top = grower.add(0, b"", known(0o755, 0, 0, &[]), NodeKind::Directory(Span::default()));
        grower.add(top, name, known(0o644, 0, 0, &[]), NodeKind::Fifo);
        grower.close(top, 1);
        assert!(Tree::decode(&grower.done().encode()).is_err(), "{name:?}");
    }
    for names in [["a", "a"], ["b", "a"]] {
        let mut grower = Grower::new((0, 0));
        let top = grower.add(0, b"", known(0o755, 0, 0, &[]), NodeKind::Directory(Span::default()));
        for name in names {
            grower.add(top, name.as_bytes(), known(0o644, 0, 0, &[]), NodeKind::Fifo);
        }
        grower.close(top, 1);
        assert!(Tree::decode(&grower.done().encode()).is_err(), "{names:?}");
    }
}

/// Attributes in a stranger's image could change what the kernel does.
#[test]
fn only_attributes_that_images_keep_are_read() {
    let is_read = |name: &str| {
        let mut grower = Grower::new((0, 0));
        let top = grower.add(0, b"", known(0o755, 0, 0, &[]), NodeKind::Directory(Span::default()));
        grower.add(top, b"x", known(0o644, 0, 0, &[(name, "y")]), NodeKind::Fifo);
        grower.close(top, 1);
        Tree::decode(&grower.done().encode()).is_ok()
    };
    for name in ["user.origin", "system.posix_acl_access", "system.posix_acl_default", "security.capability"] {
        assert!(is_read(name), "{name}");
    }
    for name in [
        "",
        "user.",
        "user",
        "user.a\0b",
        "trusted.overlay.opaque",
        "trusted.x",
        "security.selinux",
        "security.ima",
        "security.capability2",
        "system.posix_acl_access2",
        "system.nfs4_acl",
    ] {
        assert!(!is_read(name), "{name}");
    }
}

#[test]
fn rights_are_dropped() {
    let mut grower = Grower::new((0, 0));
    let top = grower.add(0, b"", known(0o3755, 0, 0, &[]), NodeKind::Directory(Span::default()));
    let capability = ("security.capability", "y");
    grower.add(top, b"a", known(0o4711, 0, 0, &[]), NodeKind::Fifo);
    grower.add(top, b"b", known(0o644, 0, 0, &[("user.x", "y"), capability]), NodeKind::Fifo);
    grower.add(top, b"c", known(0o644, 0, 0, &[("user.x", "y")]), NodeKind::Fifo);
    grower.close(top, 1);
    let mut tree = grower.done();
    assert_eq!((tree.drop_rights(), tree.drop_rights()), (3, 0));
    assert_eq!(tree.nodes.iter().map(|node| node.mode).collect::<Vec<_>>(), [0o1755, 0o711, 0o644, 0o644]);
    let kept = [(b"user.x".to_vec(), b"y".to_vec())];
    assert!(tree.nodes[2..].iter().all(|node| tree.sets[node.set as usize] == kept));
}

#[test]
fn a_piece_lies_within_a_pack() {
    use larder_model::{Blob, Digest, Pack};
    let pack = |blocks| Pack { blob: Blob { digest: Digest([1; 32]), size_bytes: 1 }, blocks };
    let fits = |blocks: &[u32]| {
        sample().fits(&PackList::new(blocks.iter().map(|&blocks| pack(blocks)).collect()).expect("few"))
    };
    assert!(fits(&[9, 256]));
    assert!(!fits(&[8, 257]), "5000 bytes from block 7 on");
    assert!(!fits(&[9, 255]));
}
