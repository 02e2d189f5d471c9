//! Mounted by the kernel, with the data in a separate file.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use larder_image::{Device, metadata};
use larder_testkit::{has, is_root, probe_skip};

use crate::tree::{Place, rich, same};

/// Writes the metadata of the first saved path, and all of the data.
fn written(place: &Place, key: &str) {
    let image = place.open(key);
    let device = Device::new(&image);
    let file = File::create(place.path("metadata")).expect("makes");
    metadata(&image.trees[0], image.packs.blocks(), (0, 0), &file).expect("makes");
    let data = File::options().create(true).truncate(true).write(true).open(place.path("data")).expect("makes");
    data.set_len(device.size_bytes()).expect("sets");
    for number in 0..image.packs.packs.len() {
        let bytes = place.store.blob_bytes(&image.packs.packs[number].blob, 1 << 30).expect("reads");
        device.fill(number, &bytes, &data).expect("fills");
    }
}

/// Mounts without a loop device.
fn mount(meta: &Path, data: &Path, at: &Path) -> rustix::io::Result<()> {
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};
    use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount};
    let system = fsopen("erofs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_flag(&system, "ro")?;
    fsconfig_set_string(&system, "source", meta)?;
    fsconfig_set_string(&system, "device", data)?;
    fsconfig_create(&system)?;
    let mounted = fsmount(&system, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    move_mount(&mounted, "", rustix::fs::CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
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
    let at = place.path("m");
    let mounted = mount(&place.path("metadata"), &place.path("data"), &at);
    probe_skip!(mounted.is_ok(), "no EROFS from files here: {mounted:?} (Linux 6.12 is needed)");
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
