//! Export and import, also with the programs that other systems use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use larder_image::{Exported, Format, ImageError, Progress, Request, Rights, export, save, unpack};
use larder_testkit::{has, is_root, probe_skip};

use crate::tree::{Place, attribute, plain, rich, same, same_to_the_second, without_rights};

impl Place {
    fn export(&self, key: &str, file: &str) -> Result<Exported, ImageError> {
        let (image, to) = (self.open(key), self.path(file));
        export(&self.store, &image, &[0], Format::of(&to)?, &to, &Progress::default())
    }

    fn import(&self, file: &str, key: &str, name: Option<&str>) -> Result<(), ImageError> {
        let (from, staging) = (self.path(file), self.store.image_staging()?);
        let unpacked =
            unpack(&from, Format::of(&from)?, name.map(str::as_bytes), &staging, 1 << 30, &Progress::default())?;
        let elsewhere = |blobs: &[larder_model::Blob]| vec![false; blobs.len()];
        let key = key.parse().expect("a key");
        let request = Request { key, paths: &unpacked.paths, now_ms: 2, elsewhere: &elsewhere, rights: Rights::Kept };
        save(&self.store, &request, &Progress::default()).map(drop)
    }

    /// Checks that no temporary directory is left.
    fn is_clean(&self) {
        let staging = self.store.image_staging().expect("is made");
        for dir in [self.dir.path(), &staging] {
            let names = fs::read_dir(dir).expect("lists").map(|entry| entry.expect("reads").file_name());
            let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(".larder-")).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    #[track_caller]
    fn shell(&self, script: &str) {
        let ended =
            Command::new("sh").args(["-e", "-c", script]).current_dir(self.dir.path()).output().expect("starts");
        assert!(ended.status.success(), "{script}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

const TARS: [&str; 4] = ["x.tar", "x.tar.zst", "x.tar.lz4", "x.tar.gz"];

#[test]
fn a_tree_goes_through_each_tar() {
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k", &["a"]);
    for file in TARS {
        let exported = place.export("k", file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((exported.left, exported.copied, exported.attributes_left), (0, 0, 0));
        place.import(file, file, None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(place.open(file).record.saved[0].path, b"a");
        place.restore(file, "b");
        same(&place.path("a"), &place.path("b"));
        fs::rename(place.path("b"), place.path(&format!("b-{file}"))).expect("renames");
    }
    place.is_clean();
}

#[test]
fn attributes_of_what_may_not_be_written_to_are_kept() {
    without_rights();
    let place = Place::new();
    fs::create_dir_all(place.path("a/d")).expect("makes");
    for (name, size) in [("a/nothing", 0), ("a/small", 9), ("a/large", 3 << 20)] {
        fs::write(place.path(name), vec![7; size]).expect("writes");
    }
    for (name, mode) in [("a/nothing", 0o400), ("a/small", 0o444), ("a/large", 0o500), ("a/d", 0o555)] {
        attribute(&place.path(name), "user.origin", b"here");
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("sets");
    }
    place.save("k", &["a"]);
    let unset = place.restore("k", "b");
    assert_eq!(unset.attributes(), 0);
    same(&place.path("a"), &place.path("b"));
    place.export("k", "x.tar").unwrap_or_else(|error| panic!("{error}"));
    place.import("x.tar", "imported", None).unwrap_or_else(|error| panic!("{error}"));
    place.restore("imported", "c");
    same(&place.path("a"), &place.path("c"));
}

#[test]
fn tar_reads_what_is_written() {
    probe_skip!(is_root(), "only root can give files away");
    probe_skip!(["tar", "zstd", "lz4", "gzip"].iter().all(|name| has(name)), "tar, zstd, lz4 or gzip is not installed");
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k", &["a"]);
    for (file, through) in TARS.into_iter().zip(["cat", "zstd -dc", "lz4 -dc", "gzip -dc"]) {
        place.export("k", file).unwrap_or_else(|error| panic!("{error}"));
        place.shell(&format!("mkdir out; {through} {file} | tar -C out --xattrs --xattrs-include='*' -xpf -"));
        same(&place.path("a"), &place.path("out/a"));
        place.shell("rm -r out");
    }
}

#[test]
fn what_tar_writes_is_read() {
    probe_skip!(["tar", "zstd", "lz4"].iter().all(|name| has(name)), "tar, zstd or lz4 is not installed");
    let place = Place::new();
    rich(&place.path("a"));
    plain(&place.path("p"));
    for (file, script) in [
        ("posix.tar.zst", "tar --xattrs --format=posix -cf - a | zstd -q -o posix.tar.zst"),
        ("long.tar.zst", "tar --xattrs --format=posix -cf - a | zstd -q --long=30 -o long.tar.zst"),
        ("posix.tar.lz4", "tar --xattrs --format=posix -cf - a | lz4 -q - posix.tar.lz4"),
        ("dot.tgz", "tar --xattrs --format=posix -C a -czf dot.tgz ."),
    ] {
        place.shell(script);
        place.import(file, file, file.starts_with("dot").then_some("a")).unwrap_or_else(|error| panic!("{error}"));
        place.restore(file, "b");
        same(&place.path("a"), &place.path("b"));
        place.shell("chmod -R u+w b; rm -r b");
    }
    place.shell("touch -d '1960-01-02 UTC' p/nothing; tar --format=gnu --sparse -cf gnu.tar p");
    place.shell("cp a/sparse p/sparse; tar --format=gnu -S -cf sparse.tar p");
    place.import("gnu.tar", "gnu", None).unwrap_or_else(|error| panic!("{error}"));
    place.restore("gnu", "b");
    place.import("sparse.tar", "sparse", None).unwrap_or_else(|error| panic!("{error}"));
    place.restore("sparse", "c");
    same_to_the_second(&place.path("p"), &place.path("c"));
    assert!(crate::tree::blocks(&place.path("c/sparse")) < 1000);
    place.shell("tar --format=posix --sparse -cf odd.tar a/sparse");
    let error = place.import("odd.tar", "odd", None).expect_err("is not read");
    assert!(error.to_string().contains("--format=gnu"), "{error}");
}

#[test]
fn a_tree_goes_through_zip_to_and_from_its_programs() {
    probe_skip!(has("zip") && has("unzip"), "zip or unzip is not installed");
    let place = Place::new();
    plain(&place.path("a"));
    place.save("k", &["a"]);
    place.export("k", "x.zip").unwrap_or_else(|error| panic!("{error}"));
    place.import("x.zip", "again", None).unwrap_or_else(|error| panic!("{error}"));
    place.restore("again", "b");
    same(&place.path("a"), &place.path("b"));
    place.shell("mkdir out; unzip -q x.zip -d out; touch -h -r a/bin/link out/a/bin/link");
    same(&place.path("a"), &place.path("out/a"));
    place.shell("zip -q -r -y theirs.zip a");
    place.import("theirs.zip", "theirs", None).unwrap_or_else(|error| panic!("{error}"));
    place.restore("theirs", "c");
    same(&place.path("a"), &place.path("c"));
}

#[test]
fn what_a_zip_cannot_hold_is_said() {
    let place = Place::new();
    rich(&place.path("a"));
    place.save("k", &["a"]);
    let error = place.export("k", "x.zip").expect_err("a name is not UTF-8");
    assert!(error.to_string().contains("use a tar") && !place.path("x.zip").exists(), "{error}");
    plain(&place.path("p"));
    fs::hard_link(place.path("p/nothing"), place.path("p/other")).expect("links");
    place.shell("mkfifo p/pipe");
    place.save("p", &["p"]);
    let exported = place.export("p", "x.zip").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((exported.left, exported.copied), (1, 1));
    place.is_clean();
}

#[test]
fn a_tree_goes_through_squashfs() {
    probe_skip!(has("mksquashfs") && has("unsquashfs"), "mksquashfs is not installed (squashfs-tools)");
    probe_skip!(is_root(), "only root can give files away");
    let place = Place::new();
    plain(&place.path("a"));
    fs::hard_link(place.path("a/nothing"), place.path("a/other")).expect("links");
    place.save("k", &["a"]);
    place.export("k", "x.squashfs").unwrap_or_else(|error| panic!("{error}"));
    place.import("x.squashfs", "again", None).unwrap_or_else(|error| panic!("{error}"));
    place.restore("again", "b");
    same_to_the_second(&place.path("a"), &place.path("b"));
    place.shell("mksquashfs a theirs.squashfs -quiet -no-progress");
    place.import("theirs.squashfs", "theirs", Some("a")).unwrap_or_else(|error| panic!("{error}"));
    place.restore("theirs", "c");
    same_to_the_second(&place.path("a"), &place.path("c"));
}

#[test]
fn no_name_is_in_an_archive_twice() {
    let place = Place::new();
    plain(&place.path("a"));
    plain(&place.path("b"));
    let elsewhere = |blobs: &[larder_model::Blob]| vec![false; blobs.len()];
    let paths = [(b"x/deps".to_vec(), place.path("a")), (b"~/x".to_vec(), place.path("b"))];
    let clash = [(b"deps".to_vec(), place.path("a")), (b"~/deps".to_vec(), place.path("b"))];
    for (key, paths) in [("k-1", &paths), ("k-2", &clash)] {
        let request =
            Request { key: key.parse().expect("a key"), paths, now_ms: 1, elsewhere: &elsewhere, rights: Rights::Kept };
        save(&place.store, &request, &Progress::default()).unwrap_or_else(|error| panic!("{error}"));
    }
    for file in ["x.tar", "x.zip"] {
        let to = place.path(file);
        let written = |key: &str, saved: &[usize]| {
            let format = Format::of(&to).expect("is known");
            export(&place.store, &place.open(key), saved, format, &to, &Progress::default())
        };
        assert!(written("k-1", &[0, 1]).is_ok() && written("k-2", &[1]).is_ok(), "{file}");
        let error = written("k-2", &[0, 1]).expect_err("two paths have one name").to_string();
        assert!(error.contains("would be deps in it"), "{error}");
    }
    place.is_clean();
}

#[test]
fn what_is_cut_is_not_saved() {
    let place = Place::new();
    plain(&place.path("a"));
    place.save("k", &["a"]);
    for file in ["x.tar", "x.tar.zst", "x.tar.lz4", "x.tar.gz", "x.zip"] {
        place.export("k", file).unwrap_or_else(|error| panic!("{error}"));
        let whole = fs::read(place.path(file)).expect("reads");
        let cut: PathBuf = place.path(&format!("cut-{file}"));
        // A plain tar is also cut between two entries. One of its two blocks of zeros is enough. A
        // missing end mark of an LZ4 frame is not noticed if the tar itself is complete.
        let end = if file == "x.tar" { 1025 } else { 16 };
        for length in [0, 511, 512, whole.len() / 2, whole.len() - 1024, whole.len() - end] {
            fs::write(&cut, &whole[..length]).expect("writes");
            let came = place.import(&format!("cut-{file}"), "cut", None);
            assert!(matches!(came, Err(ImageError::Archive { .. })), "{file} cut at {length}: {came:?}");
        }
    }
    assert!(place.store.image(&"cut".parse().expect("a key")).expect("reads").is_none());
    place.is_clean();
}
