//! Trees for the tests, with every kind of node and metadata, and their comparison.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_image::{
    Existing, Image, LocalPacks, Progress, Request, Rights, Saved, Target, Unset, name_of, restore, save,
};
use larder_store::Store;
use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::thread::CapabilitySet;

/// A directory for a test, with a store in it.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("store")).expect("opens");
        Place { dir, store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn try_save(&self, key: &str, names: &[&str]) -> Result<Saved, larder_image::ImageError> {
        let paths: Vec<(Vec<u8>, PathBuf)> =
            names.iter().map(|name| (name_of(Path::new(name), None), self.path(name))).collect();
        let elsewhere = |blobs: &[larder_model::Blob]| vec![false; blobs.len()];
        let request = Request {
            key: key.parse().expect("a key"),
            paths: &paths,
            now_ms: 1,
            elsewhere: &elsewhere,
            rights: Rights::Kept,
        };
        save(&self.store, &request, &Progress::default())
    }

    #[track_caller]
    pub(crate) fn save(&self, key: &str, names: &[&str]) -> Saved {
        self.try_save(key, names).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn open(&self, key: &str) -> Image {
        open(&self.store, key)
    }

    pub(crate) fn try_restore(
        &self,
        key: &str,
        targets: &[(usize, &str)],
        existing: Existing,
    ) -> Result<Unset, larder_image::ImageError> {
        let targets: Vec<_> = targets.iter().map(|&(saved, path)| (saved, self.path(path))).collect();
        try_restore(&self.store, key, &targets, existing)
    }

    #[track_caller]
    pub(crate) fn restore(&self, key: &str, target: &str) -> Unset {
        self.try_restore(key, &[(0, target)], Existing::Refuse).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn open(store: &Store, key: &str) -> Image {
    let record = store.image(&key.parse().expect("a key")).expect("reads").expect("is there");
    Image::open_with_rights(store, record).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_restore(
    store: &Store,
    key: &str,
    targets: &[(usize, PathBuf)],
    existing: Existing,
) -> Result<Unset, larder_image::ImageError> {
    let image = open(store, key);
    let target = |(saved, path): &(usize, PathBuf)| Target { saved: *saved, path: path.clone() };
    let targets: Vec<Target> = targets.iter().map(target).collect();
    let needed = image.needed(&targets.iter().map(|target| target.saved).collect::<Vec<_>>());
    restore(&image, &targets, &LocalPacks::new(store, &image, needed), existing, &Progress::default())
}

/// Creates a tree with everything that a tree can have and this user may create.
pub(crate) fn rich(top: &Path) {
    let odd = [&b"plain"[..], b"with space", b"new\nline", b"\xff\xfe", b"-n", b"#", b"~", b"\xc3\xbc", &[b'x'; 255]];
    fs::create_dir_all(top.join("a/b/c")).expect("makes");
    fs::create_dir(top.join("empty")).expect("makes");
    for (at, name) in odd.iter().enumerate() {
        let path = top.join("a").join(OsStr::from_bytes(name));
        fs::write(&path, vec![at as u8; at * 1500]).expect("writes");
        fs::set_permissions(&path, Permissions::from_mode(0o400 + at as u32)).expect("sets");
    }
    fs::write(top.join("big"), pattern(3_500_001)).expect("writes");
    fs::write(top.join("mebibyte"), pattern(1 << 20)).expect("writes");
    fs::write(top.join("same-as-big"), pattern(3_500_001)).expect("writes");
    fs::write(top.join("nothing"), b"").expect("writes");
    fs::write(top.join("set-user-id"), b"#!/bin/sh\n").expect("writes");
    fs::set_permissions(top.join("set-user-id"), Permissions::from_mode(0o4755)).expect("sets");
    fs::hard_link(top.join("big"), top.join("a/b/big-again")).expect("links");
    fs::hard_link(top.join("a/plain"), top.join("z-plain")).expect("links");
    sparse(&top.join("sparse"), 5 << 20, &[(70_000, b"in the middle"), ((5 << 20) - 3, b"end")]);
    sparse(&top.join("only-a-hole"), 100_000, &[]);
    symlink("../nowhere/at all", top.join("a/dangling")).expect("links");
    symlink("b", top.join("a/to-directory")).expect("links");
    symlink("x".repeat(4000), top.join("long-link")).expect("links");
    rustix::fs::mknodat(CWD, top.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).expect("makes");
    let many = top.join("many");
    fs::create_dir(&many).expect("makes");
    (0..700)
        .for_each(|number| fs::write(many.join(format!("file-{number:04}.txt")), number.to_string()).expect("writes"));
    attribute(&top.join("mebibyte"), "user.origin", b"here");
    attribute(&top.join("a"), "user.of-directory", &[0, 255, 1]);
    if larder_sys::effective_user() == 0 {
        std::os::unix::fs::chown(top.join("mebibyte"), Some(1234), Some(2345)).expect("gives away");
        std::os::unix::fs::lchown(top.join("a/dangling"), Some(77), Some(78)).expect("gives away");
    }
    age(top);
    fs::set_permissions(top.join("a/b"), Permissions::from_mode(0o555)).expect("sets");
}

/// Returns bytes that compress, but not to nothing.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    let mut state = count as u64 | 1;
    let next = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8 & 0x3f
    });
    next.take(count).collect()
}

fn sparse(path: &Path, size: u64, parts: &[(u64, &[u8])]) {
    let file = File::create(path).expect("makes");
    file.set_len(size).expect("sets");
    parts.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).expect("writes"));
}

pub(crate) fn attribute(path: &Path, name: &str, value: &[u8]) {
    // Not all file systems support attributes.
    let _ = rustix::fs::lsetxattr(path, name, value, XattrFlags::empty());
}

/// Gives every name a different time, some of them before 1970.
fn age(top: &Path) {
    let mut all: Vec<PathBuf> = statuses(top).into_keys().map(|path| top.join(path)).collect();
    all.reverse();
    for (at, path) in all.iter().enumerate() {
        let modified =
            Timespec { tv_sec: at as i64 * 1_000_003 - 5_000_000, tv_nsec: (at as i64 * 7_777_777) % 1_000_000_000 };
        let times = Timestamps { last_access: modified, last_modification: modified };
        rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("sets");
    }
}

/// The metadata of a name. The size and link count of directories and links are left out, because
/// they depend on the file system.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    size: u64,
    links: u64,
    target: Option<PathBuf>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first name of the same file.
    first: Option<PathBuf>,
}

/// Returns the metadata of `top` and of every name below.
pub(crate) fn statuses(top: &Path) -> BTreeMap<PathBuf, Status> {
    let mut all = BTreeMap::new();
    let mut seen = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    let mut names = Vec::new();
    while let Some(below) = open.pop() {
        let path = if below.as_os_str().is_empty() { top.to_owned() } else { top.join(&below) };
        if fs::symlink_metadata(&path).expect("is there").is_dir() {
            open.extend(fs::read_dir(&path).expect("lists").map(|entry| below.join(entry.expect("reads").file_name())));
        }
        names.push((below, path));
    }
    names.sort();
    for (below, path) in names {
        let meta = fs::symlink_metadata(&path).expect("is there");
        let is_file = meta.is_file();
        let first = is_file.then(|| seen.entry((meta.dev(), meta.ino())).or_insert(below.clone()).clone());
        let status = Status {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            size: if meta.is_dir() { 0 } else { meta.len() },
            links: if is_file { meta.nlink() } else { 0 },
            target: fs::read_link(&path).ok(),
            attributes: attributes(&path),
            first,
        };
        all.insert(below, status);
    }
    all
}

fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut names, mut value) = (vec![0; 4096], vec![0; 4096]);
    let count = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let mut found = Vec::new();
    for name in names[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let count = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value).expect("reads");
        found.push((name.to_vec(), value[..count].to_vec()));
    }
    found.sort();
    found
}

/// Checks that two trees have the same metadata and content, also by `diff -r`.
#[track_caller]
pub(crate) fn same(left: &Path, right: &Path) {
    let (of_left, of_right) = (statuses(left), statuses(right));
    for (name, status) in &of_left {
        assert_eq!(Some(status), of_right.get(name), "{}", name.display());
    }
    assert_eq!(of_left.len(), of_right.len(), "there are additional names");
    for (name, status) in &of_left {
        if status.mode & 0o170_000 == 0o100_000 {
            let path = |top: &Path| if name.as_os_str().is_empty() { top.to_owned() } else { top.join(name) };
            let bytes = |top: &Path| fs::read(path(top)).expect("reads");
            assert!(bytes(left) == bytes(right), "{}: the content differs", name.display());
        }
    }
    let diff = Command::new("diff").args(["-r", "--no-dereference"]).args([left, right]).output().expect("starts");
    let said = String::from_utf8_lossy(&diff.stdout);
    // `diff` reports FIFOs even if they are equal.
    let differs = said.lines().find(|line| !line.contains("is a fifo while"));
    assert_eq!(differs, None, "{said}");
}

/// Like [`same`], for formats that store times in seconds.
#[track_caller]
pub(crate) fn same_to_the_second(left: &Path, right: &Path) {
    for top in [left, right] {
        for path in statuses(top)
            .into_keys()
            .map(|below| if below.as_os_str().is_empty() { top.to_owned() } else { top.join(below) })
            .rev()
        {
            let modified = fs::symlink_metadata(&path).expect("is there").mtime();
            let modified = Timespec { tv_sec: modified, tv_nsec: 0 };
            let times = Timestamps { last_access: modified, last_modification: modified };
            rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("sets");
        }
    }
    same(left, right);
}

/// Creates a tree that every format can hold.
pub(crate) fn plain(top: &Path) {
    fs::create_dir_all(top.join("bin/deep/er")).expect("makes");
    fs::create_dir(top.join("empty")).expect("makes");
    for number in 0..300 {
        fs::write(top.join("bin").join(format!("f {number}")), pattern(number * 17)).expect("writes");
    }
    fs::write(top.join("bin/deep/er/big"), pattern(400_000)).expect("writes");
    fs::write(top.join("nothing"), b"").expect("writes");
    fs::write(top.join("bin/run"), b"#!/bin/sh\n").expect("writes");
    fs::set_permissions(top.join("bin/run"), Permissions::from_mode(0o755)).expect("sets");
    fs::set_permissions(top.join("bin/f 7"), Permissions::from_mode(0o440)).expect("sets");
    symlink("../nothing", top.join("bin/link")).expect("links");
    let mut all: Vec<PathBuf> = statuses(top).into_keys().collect();
    all.reverse();
    for (at, below) in all.iter().enumerate() {
        let modified = Timespec { tv_sec: 1_700_000_001 + at as i64 * 3, tv_nsec: 0 };
        let times = Timestamps { last_access: modified, last_modification: modified };
        let path = if below.as_os_str().is_empty() { top.to_owned() } else { top.join(below) };
        rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("sets");
    }
    fs::set_permissions(top.join("bin/deep"), Permissions::from_mode(0o555)).expect("sets");
}

/// Drops the superuser's right to access everything, in this thread and its later children.
pub(crate) fn without_rights() {
    let mut own = rustix::thread::capabilities(None).expect("are known");
    own.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    rustix::thread::set_capabilities(None, own).expect("are given up");
}

/// Returns the blocks of a file on the disk.
pub(crate) fn blocks(path: &Path) -> u64 {
    fs::metadata(path).expect("is there").blocks()
}
