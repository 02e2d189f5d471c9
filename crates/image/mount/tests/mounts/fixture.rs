//! A tree with every kind of file, images of it, and a comparison of other trees with it.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_mount::{Backend, Image, Mount, MountError, erofs, erofs_by_loop_device, erofs_has_data, squashfs};

/// The name of a test and its function.
pub(crate) type Test = (&'static str, fn());

/// The size of the largest file, in bytes.
pub(crate) const LARGE_BYTES: usize = 3 << 20;

/// A fresh directory with a tree and its images.
pub(crate) struct Fixture {
    directory: tempfile::TempDir,
}

/// Returns pseudo-random bytes that are never zero, so that bytes which were not filled are
/// noticed.
pub(crate) fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 | 1
    };
    std::iter::repeat_with(next).take(count).collect()
}

impl Fixture {
    /// Makes a fixture with its tree.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { directory: tempfile::tempdir().expect("makes a directory") };
        let tree = fixture.tree();
        fs::create_dir_all(tree.join("deep/er/est")).expect("makes");
        fs::create_dir(tree.join("empty")).expect("makes");
        fs::write(tree.join("nothing"), b"").expect("writes");
        for number in 0..40 {
            let path = tree.join(format!("deep/er/file{number}"));
            fs::write(path, bytes(number, 100 + number as usize * 311)).expect("writes");
        }
        fs::write(tree.join("large"), bytes(99, LARGE_BYTES)).expect("writes");
        fs::write(tree.join(std::ffi::OsStr::from_bytes(b"odd \n\xff name")), b"odd").expect("writes");
        let sparse = File::create(tree.join("sparse")).expect("makes");
        sparse.set_len(1 << 20).expect("grows");
        sparse.write_all_at(b"middle", 500_000).expect("writes");
        fs::hard_link(tree.join("deep/er/file7"), tree.join("linked")).expect("links");
        symlink("deep/er/file7", tree.join("pointer")).expect("links");
        symlink("/nowhere/at all", tree.join("dangling")).expect("links");
        for (name, mode) in [("deep/er/file1", 0o755), ("deep/er/file2", 0o400), ("empty", 0o1777), ("deep", 0o750)] {
            fs::set_permissions(tree.join(name), Permissions::from_mode(mode)).expect("changes");
        }
        assert!(run("touch", &["-d", "2020-02-02 02:02:02.123456789 UTC"], &tree.join("deep/er/file3")));
        fs::set_permissions(&tree, Permissions::from_mode(0o755)).expect("changes");
        fixture
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.path("tree")
    }

    /// Makes a directory in the fixture.
    pub(crate) fn make(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("makes");
        path
    }

    /// An EROFS image made by `mkfs.erofs`, or `None` if that is not installed. Its data is in a
    /// separate file, or in the image if the kernel does not support that.
    pub(crate) fn erofs(&self) -> Option<Image> {
        let (metadata, data) = (self.path("metadata.erofs"), erofs_has_data().then(|| self.path("data")));
        if !metadata.exists() {
            let apart =
                data.iter().flat_map(|data| ["--chunksize=4096".to_owned(), format!("--blobdev={}", data.display())]);
            let mut command = Command::new("mkfs.erofs");
            let done = command.arg("--quiet").args(apart).arg(&metadata).arg(self.tree()).output();
            let done = done.map_err(|error| eprintln!("skipped: mkfs.erofs: {error}")).ok()?;
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        Some(Image::Erofs { metadata, data })
    }

    /// A squashfs image, or `None` if `mksquashfs` is not installed.
    pub(crate) fn squashfs(&self) -> Option<Image> {
        let file = self.path("image.squashfs");
        if !file.exists() {
            let words = ["-quiet", "-no-progress", "-comp", "gzip"];
            let done = Command::new("mksquashfs").arg(self.tree()).arg(&file).args(words).output();
            let done = done.map_err(|error| eprintln!("skipped: mksquashfs: {error}")).ok()?;
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        Some(Image::Squashfs(file))
    }

    /// An image that this kernel mounts by itself, and its backend: EROFS, or squashfs if the kernel
    /// has no EROFS.
    pub(crate) fn of_kernel(&self) -> Option<(Backend, Image)> {
        let image = self.erofs()?;
        match layer(&image) {
            Ok(_) => Some((Backend::Mount, image)),
            Err(_) => Some((Backend::Squashfs, self.squashfs()?)),
        }
    }

    /// Asserts that a directory holds the same tree: bytes, attributes, and times to the second.
    pub(crate) fn assert_same(&self, other: &Path) {
        let done = Command::new("diff").args(["-r", "--no-dereference"]).arg(self.tree()).arg(other).output();
        let done = done.expect("diff runs");
        assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        assert_eq!(looks(&self.tree()), looks(other));
    }
}

/// Mounts an image by the kernel, as a detached mount.
pub(crate) fn layer(image: &Image) -> Result<Mount, MountError> {
    match image {
        Image::Erofs { metadata, data } => {
            let by_file = erofs(metadata, data.as_deref());
            by_file.or_else(|first| erofs_by_loop_device(metadata, data.as_deref()).map_err(|_| first))
        }
        Image::Squashfs(file) => squashfs(file),
    }
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A line for each path: path, type, mode, owners, mtime, link count, symbolic link target and
/// size. Link count and size of directories are left out.
fn looks(tree: &Path) -> String {
    let format = "%P %y %m %U %G %Ts %n %l";
    let line = |kind: &str, format: &str| {
        let mut find = Command::new("find");
        find.arg(tree).args(["-mindepth", "1", kind, "-type", "d", "-printf"]);
        let done = find.arg(format!("{format}\\n")).output().expect("find runs");
        assert!(done.status.success(), "{}", text(&done.stderr));
        let mut lines: Vec<String> = text(&done.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines.join("\n")
    };
    // The link count and the size of a directory differ between file systems.
    line("!", &format!("{format} %s")) + &line("-true", "%P %y %m %U %G %Ts")
}

/// Runs a program on a path. Returns true if it succeeded.
pub(crate) fn run(program: &str, words: &[&str], path: &Path) -> bool {
    Command::new(program).args(words).arg(path).status().is_ok_and(|status| status.success())
}

/// Appends to a file through a mount.
pub(crate) fn append(path: &Path, what: &[u8]) {
    let file = File::options().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(what)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
