//! Set-user-id, set-group-id and capabilities are dropped from what another user made, unless they
//! are wanted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use larder_image::{
    Existing, Format, Image, ImageError, LocalPacks, Progress, Request, Rights, Target, restore, save, unpack,
};
use larder_model::Blob;

use crate::tree::{Place, attribute};

/// A `vfs_cap_data` of version 2 that permits `CAP_NET_RAW`.
const CAPABILITY: &[u8] = &[0, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn with_rights(place: &Place) {
    fs::create_dir_all(place.path("a/d")).expect("makes");
    for (name, mode) in [("a/user", 0o4755), ("a/group", 0o2755), ("a/plain", 0o755)] {
        fs::write(place.path(name), name).expect("writes");
        fs::set_permissions(place.path(name), Permissions::from_mode(mode)).expect("sets");
    }
    fs::set_permissions(place.path("a/d"), Permissions::from_mode(0o3777)).expect("sets");
}

fn modes(place: &Place, top: &str) -> Vec<u32> {
    let mode = |name: &&str| fs::metadata(place.path(top).join(name)).expect("is there").mode() & 0o7777;
    ["user", "group", "plain", "d"].iter().map(mode).collect()
}

fn restored(place: &Place, image: &Image, to: &str) {
    let targets = [Target { saved: 0, path: place.path(to) }];
    let packs = LocalPacks::new(&place.store, image, image.needed(&[0]));
    restore(image, &targets, &packs, Existing::Refuse, &Progress::default()).expect("restores");
}

#[test]
fn restoring_gives_none() {
    let place = Place::new();
    with_rights(&place);
    place.save("k", &["a"]);
    let record = || place.store.image(&"k".parse().expect("a key")).expect("reads").expect("is there");
    let image = Image::open(&place.store, record()).expect("opens");
    assert_eq!(image.rights_dropped, 3);
    restored(&place, &image, "without");
    assert_eq!(modes(&place, "without"), [0o755, 0o755, 0o755, 0o1777]);
    restored(&place, &Image::open_with_rights(&place.store, record()).expect("opens"), "with");
    assert_eq!(modes(&place, "with"), modes(&place, "a"));
}

#[test]
fn capabilities_are_rights() {
    larder_testkit::probe_skip!(larder_testkit::is_root(), "only root can give a file capabilities");
    let place = Place::new();
    with_rights(&place);
    let set = |name: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(place.path("a/plain"), name, CAPABILITY, flags).is_ok()
    };
    larder_testkit::probe_skip!(set("security.capability"), "the file system has no capabilities");
    attribute(&place.path("a/plain"), "user.kept", b"x");
    place.save("k", &["a"]);
    let record = place.store.image(&"k".parse().expect("a key")).expect("reads").expect("is there");
    let image = Image::open(&place.store, record.clone()).expect("opens");
    assert_eq!(image.rights_dropped, 4);
    restored(&place, &image, "without");
    restored(&place, &Image::open_with_rights(&place.store, record).expect("opens"), "with");
    let value = |top: &str, name: &str| {
        let mut value = [0; 64];
        let path = place.path(top).join("plain");
        rustix::fs::getxattr(path, name, &mut value).ok().map(|count| value[..count].to_vec())
    };
    assert_eq!(value("without", "security.capability"), None);
    assert_eq!(value("without", "user.kept").as_deref(), Some(&b"x"[..]));
    assert_eq!(value("with", "security.capability").as_deref(), Some(CAPABILITY));
}

#[test]
fn an_archive_brings_none() {
    let place = Place::new();
    with_rights(&place);
    let file = place.path("a.tar");
    let made =
        std::process::Command::new("tar").arg("-C").arg(place.dir.path()).arg("-cf").arg(&file).arg("a").status();
    larder_testkit::probe_skip!(made.is_ok_and(|status| status.success()), "tar is not installed");
    let format = Format::of(&file).expect("tar");
    let unpacked = unpack(&file, format, None, place.dir.path(), 1 << 30, &Progress::default());
    let unpacked = unpacked.expect("unpacks");
    let elsewhere = |blobs: &[Blob]| vec![false; blobs.len()];
    for (key, rights, dropped) in [("without", Rights::Dropped, 3), ("with", Rights::Kept, 0)] {
        let key = key.parse().expect("a key");
        let request = Request { key, paths: &unpacked.paths, now_ms: 1, elsewhere: &elsewhere, rights };
        assert_eq!(save(&place.store, &request, &Progress::default()).expect("saves").rights_dropped, dropped);
    }
    place.restore("without", "x");
    assert_eq!(modes(&place, "x"), [0o755, 0o755, 0o755, 0o1777]);
    place.restore("with", "y");
    assert_eq!(modes(&place, "y"), modes(&place, "a"));
}

#[test]
fn paths_that_lead_elsewhere_are_not_saved() {
    let place = Place::new();
    with_rights(&place);
    for name in ["a/../../b", "", "~", "a//b"] {
        let paths = [(name.as_bytes().to_vec(), place.path("a"))];
        let elsewhere = |blobs: &[Blob]| vec![false; blobs.len()];
        let key = "k".parse().expect("a key");
        let request = Request { key, paths: &paths, now_ms: 1, elsewhere: &elsewhere, rights: Rights::Kept };
        let saved = save(&place.store, &request, &Progress::default());
        assert!(matches!(saved, Err(ImageError::Name(_))), "{name}");
    }
}
