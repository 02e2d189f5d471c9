//! A failure leaves nothing incomplete.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder_image::{Existing, ImageError, sweep};

use crate::tree::{Place, pattern, rich, same};

#[test]
fn what_changes_while_it_is_saved_is_not_saved() {
    let place = Place::new();
    fs::create_dir(place.path("a")).expect("makes");
    for number in 0..400 {
        fs::write(place.path("a").join(number.to_string()), pattern(30_000 + number)).expect("writes");
    }
    let (end, mut changed) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                let number = round % 400;
                fs::write(place.path("a").join(number.to_string()), round.to_string()).expect("writes");
                if end.load(Relaxed) {
                    break;
                }
            }
        });
        for round in 0..5 {
            let saved = place.try_save(&format!("k-{round}"), &["a"]);
            changed += u32::from(matches!(saved, Err(ImageError::Changed(_))));
        }
        end.store(true, Relaxed);
    });
    let kept = place.store.images().expect("lists").len() as u32;
    assert!(changed > 0, "files changed all the time");
    assert_eq!(kept + changed, 5);
}

#[test]
fn a_pack_that_is_wrong_or_gone_restores_nothing() {
    let place = Place::new();
    rich(&place.path("a"));
    let saved = place.save("k-1", &["a"]);
    let last = saved.packs.last().expect("there are some");
    let path = place.store.blob_file(&last.digest);
    let good = fs::read(&path).expect("reads");
    let mut bad = good.clone();
    bad[30] ^= 1;
    for bytes in [bad, good[..100].to_vec()] {
        fs::write(&path, bytes).expect("writes");
        let error = place.try_restore("k-1", &[(0, "b")], Existing::Refuse).expect_err("is wrong");
        assert!(matches!(error, ImageError::PackDamaged(_)), "{error}");
        assert!(!place.path("b").exists());
        assert!(!path.exists(), "the damaged pack must be removed");
    }
    place.try_restore("k-1", &[(0, "b")], Existing::Refuse).expect_err("is gone");
    assert!(!place.path("b").exists());
    assert_eq!(fs::read_dir(place.dir.path()).expect("lists").count(), 2, "the tree and the store");
    // The missing pack is made again.
    assert!(place.save("k-1", &["a"]).new_bytes > 0);
    place.restore("k-1", "b");
    same(&place.path("a"), &place.path("b"));
}

#[test]
fn several_save_under_one_key() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        fs::create_dir(place.path(name)).expect("makes");
        for number in 0..200 {
            fs::write(place.path(name).join(format!("{name}{number}")), pattern(number * 100)).expect("writes");
        }
    }
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let place = &place;
            scope.spawn(move || (0..4).for_each(|_| drop(place.save("k-1", &[name]))));
        }
    });
    let name = String::from_utf8(place.open("k-1").record.saved[0].path.clone()).expect("is text");
    place.restore("k-1", "to");
    same(&place.path(&name), &place.path("to"));
    assert!(place.store.fsck(false, &mut |_, _| {}).expect("reads").problems.is_empty());
}

#[test]
fn what_cannot_be_held_is_said() {
    let place = Place::new();
    fs::create_dir(place.path("a")).expect("makes");
    let _socket = std::os::unix::net::UnixListener::bind(place.path("a/socket")).expect("binds");
    let saved = place.save("k-1", &["a"]);
    assert_eq!(saved.left, [place.path("a/socket")]);
    assert!(matches!(place.try_save("k-2", &["none"]), Err(ImageError::Io { .. })));
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can make a device");
    let device = rustix::fs::makedev(1, 3);
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let made =
        rustix::fs::mknodat(rustix::fs::CWD, place.path("a/null"), rustix::fs::FileType::CharacterDevice, mode, device);
    larder_testkit::probe_skip!(made.is_ok(), "no device can be made here");
    assert!(matches!(place.try_save("k-3", &["a"]), Err(ImageError::Unsuitable { what: "a device", .. })));
}

#[test]
fn attributes_that_no_tree_can_hold_are_said() {
    // Few file systems support that many.
    let dir = tempfile::tempdir_in("/dev/shm");
    larder_testkit::probe_skip!(dir.is_ok(), "there is no /dev/shm");
    let (place, dir) = (Place::new(), dir.expect("is there"));
    let set = |file: &str, name: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        let path = dir.path().join(file);
        fs::OpenOptions::new().append(true).create(true).open(&path).expect("makes");
        rustix::fs::lsetxattr(&path, name, value, flags).is_ok()
    };
    let is_set = set("large", "user.a", &[7; 65_536]) && (0..257).all(|at| set("many", &format!("user.{at}"), b"x"));
    larder_testkit::probe_skip!(is_set, "tmpfs has no such attributes here");
    for name in ["large", "many"] {
        let name = dir.path().join(name);
        let saved = place.try_save("k", &[name.to_str().expect("is text")]);
        assert!(matches!(&saved, Err(ImageError::Unsuitable { path, .. }) if *path == name), "{:?}", saved.err());
    }
    assert!(set("most", "user.a", &[7; 65_535]) && (0..255).all(|at| set("most", &format!("user.{at}"), b"x")));
    let most = dir.path().join("most");
    place.save("k", &[most.to_str().expect("is text")]);
    assert_eq!(place.open("k").record.files, 1);
}

#[test]
fn what_a_killed_restore_left_is_swept() {
    let place = Place::new();
    let left = place.path(".larder-0123456789abcdef");
    fs::create_dir_all(left.join("top/sub")).expect("makes");
    assert_eq!(sweep(place.dir.path()), []);
    assert!(left.exists(), "a young directory is kept");
    let hour = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let dir = fs::File::open(&left).expect("opens");
    dir.set_modified(hour).expect("sets");
    assert!(larder_sys::try_write_lock(&dir).expect("locks"));
    assert_eq!(sweep(place.dir.path()), []);
    assert!(left.exists(), "a locked directory is kept");
    drop(dir);
    assert_eq!(sweep(place.dir.path()), []);
    assert!(!left.exists());
    fs::create_dir(place.path(".larder-mine")).expect("makes");
    assert_eq!(sweep(place.dir.path()), []);
    assert!(place.path(".larder-mine").exists(), "a directory with another name is kept");
}
