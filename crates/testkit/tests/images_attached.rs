//! Squashfs files that another program made, files beside directories in an image, limits on
//! images, and errors with single files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use larder_testkit::{Place, Tree, has, is_root, probe_skip};

/// Creates a directory, and a squashfs file of it by `mksquashfs`. Returns `None`, and prints the
/// reason, if that is not installed.
fn squashed() -> Option<(Place, Tree)> {
    let place = Place::new();
    for (name, bytes) in [("deps/a/index.js", "a"), ("deps/a/b/x.js", "x"), ("deps/empty", "")] {
        place.put(name, bytes);
    }
    let (from, to) = (place.path("work/deps"), place.path("work/deps.squashfs"));
    let made = Command::new("mksquashfs").arg(&from).arg(&to).args(["-quiet", "-no-progress"]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: mksquashfs is not installed");
        return None;
    }
    Some((place, Tree::of(&from)))
}

#[test]
fn a_file_that_others_made_is_mounted_and_written_to() {
    probe_skip!(is_root(), "only root can mount without a namespace");
    let Some((place, _)) = squashed() else { return };
    let bytes = fs::read(place.path("work/deps.squashfs")).expect("cannot read the file");
    for via in ["fuse", "squashfs"] {
        let mounted = place.image(&["attach", "--via", via, "deps.squashfs", "there"]).run();
        if mounted.code != Some(0) {
            eprintln!("skipped: {via}: {}", mounted.stderr);
            continue;
        }
        assert_eq!(place.read("there/a/b/x.js"), b"x");
        place.put("there/a/b/x.js", "changed");
        let listed = place.image(&["list", "--mounted"]).run().quiet();
        assert!(listed.contains("deps.squashfs") && listed.contains(via), "{listed}");
        let taken = place.image(&["attach", "deps.squashfs", "there"]).run().ends(1);
        assert!(taken.stderr.contains("there") && taken.stderr.lines().count() == 1, "{taken:#?}");
        assert!(place.image(&["unmount", "--strict", "there"]).run().ends(0).stdout.starts_with("unmounted "));
        assert!(!place.path("work/there").exists());
    }
    assert_eq!(fs::read(place.path("work/deps.squashfs")).expect("cannot read the file"), bytes);
}

#[test]
fn a_command_has_a_file_that_others_made_for_itself() {
    let Some((place, before)) = squashed() else { return };
    probe_skip!(has("squashfuse"), "squashfuse is not installed");
    let script = "cat there/a/b/x.js && echo new > there/a/new && exit 7";
    let ran = place.image(&["attach", "deps.squashfs", "there", "--", "sh", "-c", script]).run();
    probe_skip!(ran.code != Some(1), "nothing can be mounted here: {}", ran.stderr);
    assert_eq!(ran.ends(7).stdout, "x");
    assert_eq!(fs::read_dir(place.path("work/there")).expect("cannot list the directory").count(), 0);
    assert_eq!(Tree::of(&place.path("work/deps")), before);
}

#[test]
fn what_is_no_squashfs_file_is_not_mounted() {
    let place = Place::new();
    place.put("x.squashfs", "PK, or something else");
    for (file, piece) in [("x.squashfs", "not a squashfs file"), ("none", "cannot be read")] {
        let odd = place.image(&["attach", file, "there"]).run().ends(1);
        assert!(odd.stderr.contains(piece) && odd.stderr.lines().count() == 1, "{odd:#?}");
        assert!(!place.path("work/there").exists());
    }
}

#[test]
fn a_saved_file_is_restored_beside_what_is_mounted() {
    probe_skip!(is_root(), "only root can mount without a broker");
    let place = Place::new();
    place.put("cache/a.zip", "a");
    place.put("loader.cjs", "load");
    place.image(&["save", "--key", "pnp-1", "cache", "loader.cjs"]).run().quiet();
    fs::remove_dir_all(place.path("work/cache")).expect("cannot remove the directory");
    let in_the_way = place.image(&["mount", "--strict", "--via", "mount", "--key", "pnp-1"]).run().ends(1);
    assert!(!place.path("work/cache").exists(), "{in_the_way:#?}");
    fs::remove_file(place.path("work/loader.cjs")).expect("cannot remove the file");
    let mounted = place.image(&["mount", "--via", "mount", "--strict", "--key", "pnp-1"]).run();
    probe_skip!(mounted.code == Some(0), "nothing can be mounted here: {}", mounted.stderr);
    assert_eq!((place.read("cache/a.zip"), place.read("loader.cjs")), (b"a".to_vec(), b"load".to_vec()));
    place.image(&["unmount", "--strict", "cache", "loader.cjs"]).run().ends(0);
    assert!(!place.path("work/cache").exists() && place.path("work/loader.cjs").exists());
}

#[test]
fn images_have_limits_of_their_own() {
    let place = Place::new();
    let keys = || {
        let listed = place.image(&["list", "--json"]).run().ends(0).stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("not JSON");
        let keys = listed["images"].as_array().expect("not a list").iter().filter_map(|image| image["key"].as_str());
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    for (key, name) in [("a-1", "a"), ("a-2", "b"), ("a-3", "c")] {
        let mut state = u64::from(name.as_bytes()[0]);
        // These bytes cannot be compressed much.
        let noise = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(33 + (state % 90) as u8)
        });
        let noise: String = noise.take(60_000).collect();
        place.put(&format!("{name}/file"), &noise);
        place.image(&["save", "--key", key, name]).run().quiet();
    }
    assert_eq!(keys(), ["a-3", "a-2", "a-1"]);
    // Set back the mtime of the oldest image, as if it was last used three days ago.
    let records = place.store().join("images/records");
    let oldest =
        files_below(&records).into_iter().min_by_key(|file| fs::metadata(file).and_then(|m| m.modified()).ok());
    let then = SystemTime::now() - Duration::from_secs(3 * 24 * 60 * 60);
    let file =
        fs::File::options().write(true).open(oldest.expect("the store has no image")).expect("cannot open the file");
    file.set_modified(then).expect("cannot set the mtime");
    let evict = |name: &str, value: &str| {
        place.word(&["evict"]).env(name, value).run().ends(0);
    };
    evict("LARDER_IMAGE_MAX_DAYS", "4");
    assert_eq!(keys(), ["a-3", "a-2", "a-1"]);
    evict("LARDER_IMAGE_MAX_DAYS", "2");
    assert_eq!(keys(), ["a-3", "a-2"]);
    evict("LARDER_IMAGE_MAX_SIZE", "1 GiB");
    assert_eq!(keys(), ["a-3", "a-2"]);
    place.put("d/file", "little");
    place.image(&["save", "--key", "a-4", "d"]).env("LARDER_IMAGE_MAX_SIZE", "20 kB").run().quiet();
    assert_eq!(keys(), ["a-4"]);
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn trouble_with_the_cache_is_no_trouble_with_an_archive() {
    let place = Place::new();
    // The image's only pack is the one large blob.
    let noise: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::create_dir(place.path("work/deps")).expect("cannot create the directory");
    fs::write(place.path("work/deps/a"), noise).expect("cannot write the file");
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    place.image(&["export", "--key", "a-1", "none/a.tar"]).run().ends(1);
    place.image(&["export", "--key", "a-1", "a.tar"]).run().ends(0);
    let largest = files(&place.store().join("blobs")).into_iter().max_by_key(|(size, _)| *size);
    fs::remove_file(largest.expect("the store has no blob").1).expect("cannot remove the file");
    let gone = place.image(&["export", "--key", "a-1", "b.tar"]).run().ends(11);
    assert!(gone.stderr.contains("is missing") && !place.path("work/b.tar").exists(), "{gone:#?}");
    place.image(&["export", "--key", "a-1", "--strict", "b.tar"]).run().ends(1);
    place.put("c.tar", "no tar");
    place.image(&["import", "--key", "c-1", "c.tar"]).run().ends(1);
}

/// Returns all files below a directory, with their sizes.
fn files(dir: &Path) -> Vec<(u64, PathBuf)> {
    let below = |path: PathBuf| match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => files(&path),
        Ok(meta) => vec![(meta.len(), path)],
        Err(_) => Vec::new(),
    };
    fs::read_dir(dir).into_iter().flatten().flatten().flat_map(|entry| below(entry.path())).collect()
}

#[test]
fn what_a_killed_one_left_while_making_files_goes() {
    let place = Place::new();
    place.put("deps/a", "a");
    place.image(&["save", "--key", "a-1", "deps"]).run().quiet();
    let of_an_image = format!("live/{}", "ab".repeat(32));
    let left =
        [&of_an_image, "staging"].map(|dir| place.store().join("images").join(dir).join(".larder-0123456789abcdef"));
    for dir in &left {
        fs::create_dir_all(dir).expect("cannot create the directory");
        fs::write(dir.join("top"), "half").expect("cannot write the file");
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(dir).and_then(|dir| dir.set_modified(hour_ago)).expect("cannot set the mtime");
    }
    place.image(&["save", "--key", "a-2", "deps"]).run().quiet();
    assert_eq!(left.map(|dir| dir.exists()), [false, false]);
}
