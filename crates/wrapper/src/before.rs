//! What was in files before a command ran: those that it names, since archivers, `strip` and `sed -i` change what they
//! read, those that a run of it before was seen to change, and for a whole command the small ones where it works, since
//! `make` writes its dependency files anew.
//!
//! Unaware of: whether the command will read or change them.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_compiler::Family;
use larder_lookup::Request;
use larder_model::{Digest, Identity, Prior};
use larder_store::Stamps;
use larder_sys::{Kind, Look};

/// Beyond this much, nothing more is read for it.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Where a whole command works, so many names are looked at, the nearest first, and none below `.git`.
const NAMES_MAX: usize = 4096;
/// What a whole command changes of itself is small; what is larger is noted from its second run on.
const SMALL_BYTES: u64 = 64 << 10;

/// Where files are the kernel's.
const KERNELS: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];

/// Files as they were.
#[derive(Default)]
pub(crate) struct Before {
    /// By device and inode.
    files: HashMap<(u64, u64), (Look, Digest)>,
    read_bytes: u64,
}

impl Before {
    /// Note the files that `request` names, those that it `changes`, and those around a whole command. A compiler's
    /// sources are never changed, so nothing is noted for one.
    pub(crate) fn note(request: &Request, changes: &[Vec<u8>], stamps: &Stamps) -> Before {
        let mut before = Before::default();
        if !matches!(request.family, Family::Binutils | Family::Command) {
            return before;
        }
        for argument in request.action.argv[1..].iter().chain(changes) {
            before.file(argument, &|look| look.size_bytes <= READ_BYTES_MAX, stamps);
        }
        if request.family == Family::Command {
            before.around(&request.action.cwd, stamps);
        }
        before
    }

    fn file(&mut self, path: &[u8], is_wanted: &dyn Fn(&Look) -> bool, stamps: &Stamps) {
        if KERNELS.iter().any(|kernels| path.starts_with(kernels)) {
            return;
        }
        let Ok(look) = larder_sys::look_through(path) else { return };
        if look.kind != Kind::File || !is_wanted(&look) {
            return;
        }
        let mut read = || {
            // The kernel's files say that they have nothing in them, and some would be read for ever.
            if look.size_bytes == 0 {
                return Some(Digest::of(b""));
            }
            let read_bytes = self.read_bytes + look.size_bytes;
            if read_bytes > READ_BYTES_MAX {
                return None;
            }
            self.read_bytes = read_bytes;
            let mut file = File::open(Path::new(OsStr::from_bytes(path))).ok()?;
            let digest = stamps.hash(&mut file).ok()?;
            larder_sys::file_look(&file).is_ok_and(|after| after == look).then_some(digest)
        };
        if let Some(digest) = stamps.content(&look).or_else(&mut read) {
            self.files.insert((look.device, look.inode), (look, digest));
        }
    }

    /// Links are not followed, nor what is mounted there: reading a file of the kernel's may wait for ever.
    fn around(&mut self, directory: &[u8], stamps: &Stamps) {
        let Ok(top) = larder_sys::look_through(directory) else { return };
        if KERNELS.iter().any(|kernels| directory.starts_with(kernels)) {
            return;
        }
        let is_small = |look: &Look| look.device == top.device && look.size_bytes <= SMALL_BYTES;
        let is_here =
            |path: &Path| larder_sys::look(path.as_os_str().as_bytes()).is_ok_and(|it| it.device == top.device);
        let mut directories = VecDeque::from([PathBuf::from(OsStr::from_bytes(directory))]);
        let mut names = 0;
        while let Some(directory) = directories.pop_front() {
            for entry in directory.read_dir().into_iter().flatten().flatten() {
                names += 1;
                if names > NAMES_MAX {
                    return;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_file() => {
                        self.file(entry.path().as_os_str().as_bytes(), &is_small, stamps);
                    }
                    Ok(kind) if kind.is_dir() && !is_of_version_control(&entry.file_name()) => {
                        let path = entry.path();
                        if is_here(&path) {
                            directories.push_back(path);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Whether the file at `path` was noted and has not changed since, though it may have been opened for writing, as
    /// `flock` does: a change after `started_ns` would show in its times.
    pub(crate) fn is_as_it_was(&self, path: &[u8], started_ns: i64) -> bool {
        let now = larder_sys::look_through(path).ok().filter(|now| now.changed_ns < started_ns);
        now.is_some_and(|now| self.files.get(&(now.device, now.inode)).is_some_and(|(look, _)| *look == now))
    }

    /// What the file was that the command then had open, if it was noted and had not changed meanwhile.
    pub(crate) fn of(&self, opened: &Identity) -> Option<Prior> {
        let same = |look: &Look| {
            (look.device, look.inode, look.size_bytes, look.modified_ns, look.changed_ns)
                == (opened.device, opened.inode, opened.size_bytes, opened.modified_ns, opened.changed_ns)
        };
        let (look, digest) = self.files.get(&(opened.device, opened.inode)).filter(|(look, _)| same(look))?;
        Some(Prior::File { digest: *digest, mode: Some(look.mode) })
    }
}

/// Where no build writes.
fn is_of_version_control(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b".git" | b".hg" | b".jj" | b".svn")
}
