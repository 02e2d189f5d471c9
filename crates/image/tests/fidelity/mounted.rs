//! Mounted by the kernel, with the data beside.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use larder_image::{Device, metadata};
use larder_testkit::{has, is_root, probe_skip};

use crate::tree::{Place, rich, same};

/// Write what is mounted of the first saved path, and all of the data.
fn written(place: &Place, key: &str) {
    let image = place.open(key);
    let device = Device::new(&image);
    let bytes = metadata(&image.trees[0], image.packs.blocks(), (0, 0)).expect("makes");
    fs::write(place.path("metadata"), bytes).expect("writes");
    let data = File::options().create(true).truncate(true).write(true).open(place.path("data")).expect("makes");
    data.set_len(device.size_bytes()).expect("sets");
    for number in 0..image.packs.packs.len() {
        let bytes = place.store.blob_bytes(&image.packs.packs[number].blob, 1 << 30).expect("reads");
        device.fill(number, &bytes, &data).expect("fills");
    }
}

fn run(program: &str, words: &[&str], paths: &[&Path]) -> Output {
    Command::new(program).args(words).args(paths).output().expect("starts")
}

#[test]
fn a_tree_is_mounted_as_it_was() {
    probe_skip!(is_root(), "only root can mount");
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    written(&place, "k-1");
    fs::create_dir(place.path("m")).expect("makes");
    let (meta, data, at) = (place.path("metadata"), place.path("data"), place.path("m"));
    let device = format!("ro,device={}", data.display());
    let mounted = run("mount", &["-t", "erofs", "-o", &device], &[&meta, &at]);
    probe_skip!(mounted.status.success(), "no EROFS from files here: {}", String::from_utf8_lossy(&mounted.stderr));
    let compared = std::panic::catch_unwind(|| same(&place.path("a"), &at));
    assert!(run("umount", &[], &[&at]).status.success());
    compared.expect("is the same");
}

#[test]
fn the_checker_of_its_makers_finds_nothing() {
    probe_skip!(has("fsck.erofs"), "fsck.erofs is not installed (erofs-utils)");
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    written(&place, "k-1");
    let device = format!("--device={}", place.path("data").display());
    let checked = run("fsck.erofs", &[&device], &[&place.path("metadata")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn no_pack_that_is_wrong_reaches_the_data() {
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k-1", &["a"]);
    let image = place.open("k-1");
    let data = File::options().create(true).truncate(true).write(true).open(place.path("data")).expect("makes");
    let mut bytes = place.store.blob_bytes(&image.packs.packs[0].blob, 1 << 30).expect("reads");
    bytes[40] ^= 1;
    assert!(Device::new(&image).fill(0, &bytes, &data).is_err());
    assert_eq!(data.metadata().expect("is there").len(), 0);
}
