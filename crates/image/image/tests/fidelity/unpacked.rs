//! Restoring to directories.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use larder_image::{Aside, Existing, ImageError};

use crate::tree::{Place, blocks, pattern, rich, same, statuses, without_rights};

#[test]
fn a_tree_is_restored_as_it_was() {
    let place = Place::new();
    rich(&place.path("a"));
    let saved = place.save("k-1", &["a"]);
    assert_eq!((saved.left.len(), saved.attributes_left), (0, 0));
    let unset = place.restore("k-1", "b");
    assert_eq!((unset.owners(), unset.attributes()), (0, 0));
    same(&place.path("a"), &place.path("b"));
    for name in ["sparse", "only-a-hole", "big"] {
        let (before, after) = (blocks(&place.path("a").join(name)), blocks(&place.path("b").join(name)));
        assert!(after <= before, "{name}: {before} blocks, {after} restored");
    }
    assert!(blocks(&place.path("b/sparse")) < 1000);
    assert!(
        !fs::read_dir(place.dir.path())
            .expect("lists")
            .any(|entry| { entry.expect("reads").file_name().to_string_lossy().starts_with(".larder-") })
    );
}

#[test]
fn saving_again_keeps_what_is_there() {
    let place = Place::new();
    rich(&place.path("a"));
    let first = place.save("k-1", &["a"]);
    assert!(first.new_bytes > 1 << 20);
    let again = place.save("k-1", &["a"]);
    assert_eq!((again.new_bytes, again.record.image()), (0, first.record.image()));
    fs::write(place.path("a/many/file-0300.txt"), "other").expect("writes");
    fs::remove_file(place.path("a/nothing")).expect("removes");
    let changed = place.save("k-2", &["a"]);
    assert!((1..200).contains(&changed.new_bytes), "{}", changed.new_bytes);
    place.restore("k-2", "b");
    same(&place.path("a"), &place.path("b"));
    place.restore("k-1", "c");
    assert_eq!(fs::read(place.path("c/many/file-0300.txt")).expect("reads"), b"300");
}

#[test]
fn several_paths_and_single_files() {
    let place = Place::new();
    fs::create_dir(place.path("a")).expect("makes");
    fs::write(place.path("a/x"), "same").expect("writes");
    fs::write(place.path("f"), "same").expect("writes");
    fs::write(place.path("g"), pattern(2_000_000)).expect("writes");
    std::os::unix::fs::symlink("f", place.path("l")).expect("links");
    place.save("k-1", &["a", "f", "g", "l"]);
    let targets = [(0, "to/a"), (1, "to/f"), (2, "to/deep/g"), (3, "to/l")];
    place.try_restore("k-1", &targets, Existing::Refuse).expect("restores");
    for (saved, target) in [("a", "to/a"), ("f", "to/f"), ("g", "to/deep/g"), ("l", "to/l")] {
        same(&place.path(saved), &place.path(target));
    }
    assert_eq!(fs::read_link(place.path("to/l")).expect("reads").to_str(), Some("f"));
}

#[test]
fn a_directory_may_be_named_by_what_leads_to_it() {
    let place = Place::new();
    rich(&place.path("a"));
    std::os::unix::fs::symlink("a", place.path("l")).expect("links");
    for (key, name) in [("k-1", "l/"), ("k-2", "a/.")] {
        place.save(key, &[name]);
        place.restore(key, key);
        same(&place.path("a"), &place.path(key));
    }
}

#[test]
fn what_is_there_is_in_the_way_unless_it_may_go() {
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    fs::create_dir_all(place.path("b/old")).expect("makes");
    let error = place.try_restore("k-1", &[(0, "b")], Existing::Refuse).expect_err("is in the way");
    assert!(matches!(&error, ImageError::InTheWay(path) if *path == place.path("b")), "{error}");
    assert!(place.path("b/old").exists());
    place.try_restore("k-1", &[(0, "b")], Existing::Replace).expect("restores");
    same(&place.path("a"), &place.path("b"));
    fs::create_dir(place.path("c")).expect("makes");
    place.restore("k-1", "c");
    same(&place.path("a"), &place.path("c"));
    fs::write(place.path("d"), "a file").expect("writes");
    place.try_restore("k-1", &[(0, "d")], Existing::Replace).expect("restores");
    same(&place.path("a"), &place.path("d"));
}

#[test]
fn a_place_that_is_a_mount_is_filled() {
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    fs::create_dir(place.path("b")).expect("makes");
    let mount = std::process::Command::new("mount").args(["-t", "tmpfs", "larder-test"]).arg(place.path("b")).status();
    larder_testkit::probe_skip!(mount.is_ok_and(|status| status.success()), "nothing can be mounted here");
    let filled = place.try_restore("k-1", &[(0, "b")], Existing::Refuse);
    let names = fs::read_dir(place.path("b")).expect("lists").count();
    let again = place.try_restore("k-1", &[(0, "b")], Existing::Refuse);
    let replaced = place.try_restore("k-1", &[(0, "b")], Existing::Replace);
    let mut left = statuses(&place.path("a"));
    let mut right = statuses(&place.path("b"));
    std::process::Command::new("umount").arg(place.path("b")).status().expect("starts");
    filled.expect("fills it");
    assert_eq!(names, fs::read_dir(place.path("a")).expect("lists").count());
    assert!(matches!(again, Err(ImageError::InTheWay(_))));
    replaced.expect("fills it");
    // The mount point itself is not changed.
    left.remove(std::path::Path::new(""));
    right.remove(std::path::Path::new(""));
    assert_eq!(left, right);
}

#[test]
fn what_cannot_be_put_in_a_mount_leaves_what_was_there() {
    let place = Place::new();
    rich(&place.path("a"));
    fs::write(place.path("f"), "a file").expect("writes");
    place.save("k-1", &["a"]);
    place.save("k-2", &["f"]);
    let mount = |name: &str| {
        fs::create_dir(place.path(name)).expect("makes");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "larder-test"]).arg(place.path(name));
        mount.status().is_ok_and(|status| status.success())
    };
    larder_testkit::probe_skip!(mount("b"), "nothing can be mounted here");
    fs::write(place.path("b/kept"), "kept").expect("writes");
    let names = || {
        let names = fs::read_dir(place.path("b")).expect("lists").map(|entry| entry.expect("reads").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let file = place.try_restore("k-2", &[(0, "b")], Existing::Replace);
    let beside_file = names();
    // A mount point in the target cannot be moved.
    let is_mounted = mount("b/inner");
    let tree = place.try_restore("k-1", &[(0, "b")], Existing::Replace);
    let beside_tree = names();
    for name in ["b/inner", "b"] {
        std::process::Command::new("umount").arg(place.path(name)).status().expect("starts");
    }
    assert!(file.is_err() && is_mounted && tree.is_err(), "{file:?} {tree:?}");
    assert!(beside_file.iter().eq(["kept"]), "{beside_file:?}");
    assert!(beside_tree.iter().eq(["inner", "kept"]), "{beside_tree:?}");
}

#[test]
fn all_paths_are_put_in_place_or_none() {
    let place = Place::new();
    fs::create_dir(place.path("a")).expect("makes");
    fs::write(place.path("f"), "a file").expect("writes");
    place.save("k-1", &["a", "f"]);
    fs::create_dir(place.path("b")).expect("makes");
    fs::write(place.path("b/old"), "old").expect("writes");
    // The second path is inside what the first replaces.
    let done = place.try_restore("k-1", &[(0, "b"), (1, "b/f")], Existing::Replace);
    assert!(done.is_err(), "{done:?}");
    let names = |name: &str| {
        let names = fs::read_dir(place.path(name)).expect("lists").map(|entry| entry.expect("reads").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert!(names("b").iter().eq(["old"]), "{:?}", names("b"));
    assert!(names("").iter().eq(["a", "b", "f", "store"]), "{:?}", names(""));
}

#[test]
fn what_may_not_be_written_to_is_put_in_place() {
    without_rights();
    let place = Place::new();
    fs::create_dir_all(place.path("a/b")).expect("makes");
    fs::write(place.path("a/b/f"), "file").expect("writes");
    let mode = rustix::fs::Mode::from_raw_mode(0o200);
    rustix::fs::mknodat(rustix::fs::CWD, place.path("a/pipe"), rustix::fs::FileType::Fifo, mode, 0).expect("makes");
    for name in ["a/b", "a"] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o555)).expect("sets");
    }
    place.save("k-1", &["a"]);
    place.restore("k-1", "c");
    same(&place.path("a"), &place.path("c"));
    place.try_restore("k-1", &[(0, "c")], Existing::Replace).expect("restores");
    same(&place.path("a"), &place.path("c"));
    drop(Aside::begin(&place.path("c")).expect("moves it aside").expect("is there"));
    same(&place.path("a"), &place.path("c"));
    // So that the test's directory can be removed.
    for name in ["a", "a/b", "c", "c/b"] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).expect("sets");
    }
}

#[test]
fn a_directory_that_passes_rights_on_gives_none() {
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    fs::create_dir(place.path("to")).expect("makes");
    // A default ACL, version 2: new files give everything to their owner and user 1234, and nothing
    // to others.
    let entry = |tag: u16, rights: u16, user: u32| {
        [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &user.to_le_bytes()].concat()
    };
    let nobody = u32::MAX;
    let entries =
        [entry(1, 7, nobody), entry(2, 7, 1234), entry(4, 0, nobody), entry(16, 7, nobody), entry(32, 0, nobody)];
    let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(place.path("to"), "system.posix_acl_default", &list, flags);
    larder_testkit::probe_skip!(set.is_ok(), "the file system has no such lists");
    place.restore("k-1", "to/b");
    same(&place.path("a"), &place.path("to/b"));
}

#[test]
fn who_may_not_set_owners_is_told() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can give files away");
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    let ours = fs::metadata(place.path("a/mebibyte")).expect("is there");
    assert_eq!((ours.uid(), ours.gid()), (1234, 2345));
    // A directory that passes its group on, with an unusual mode.
    fs::create_dir(place.path("to")).expect("makes");
    std::os::unix::fs::chown(place.path("to"), None, Some(999)).expect("gives away");
    fs::set_permissions(place.path("to"), fs::Permissions::from_mode(0o2755)).expect("sets");
    place.restore("k-1", "to/b");
    same(&place.path("a"), &place.path("to/b"));
}
