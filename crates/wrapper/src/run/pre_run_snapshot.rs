//! Notes the content of files before a command runs, because it may change what it reads. The files
//! are:
//!
//! - those named on the command line, for archivers, `strip` and `sed -i`;
//! - those that an earlier run of the command changed;
//! - for a whole command, small files in and below its working directory. For example, `make`
//!   rewrites its dependency files;
//! - for rustc, the metadata of other crates. cargo starts it while they are still compiled. When
//!   such a compile ends, it links its metadata into its incremental session.
//!
//! Unaware of: whether the command will read or change them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use larder_compiler::{Family, rust};
use larder_lookup::Request;
use larder_model::{Digest, Identity, Prior};
use larder_store::StatCache;
use larder_sys::{FileType, Opening, Stat};

/// At most this many bytes are read to compute digests.
const READ_BYTES_MAX: u64 = 64 << 20;

/// For a whole command at most this many names below the working directory are examined, the
/// nearest first. Version control directories are skipped.
const NAMES_MAX: usize = 4096;
/// Only files up to this size are noted below the working directory, in bytes. Most files that a
/// command changes in place are small. A larger one is noted from its second run on, because the
/// first run shows that it is changed.
const SMALL_BYTES: u64 = 64 << 10;

/// Directories of file systems that the kernel generates.
const KERNELS: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];

/// The content of files and the targets of links before the run.
#[derive(Default)]
pub(crate) struct PreRunSnapshot {
    /// The result of `stat` and the digest, by device and inode.
    files: HashMap<(u64, u64), (Stat, Digest)>,
    /// The targets of links, by path.
    links: HashMap<Vec<u8>, Vec<u8>>,
    read_bytes: u64,
}

impl PreRunSnapshot {
    /// Notes the files that `request` names, those in `changes`, for a whole command those below its
    /// working directory, and for rustc the metadata of other crates. Nothing is noted for another
    /// compiler, because it never changes its sources.
    pub(crate) fn note(request: &Request, changes: &[Vec<u8>], stat_cache: &StatCache) -> PreRunSnapshot {
        let mut before = PreRunSnapshot::default();
        match request.family {
            Family::Binutils | Family::Command => {}
            Family::Rustc => {
                before.metadata(request, stat_cache);
                return before;
            }
            _ => return before,
        }
        for argument in request.action.argv[1..].iter().chain(changes) {
            before.file(argument, &|stat| stat.size_bytes <= READ_BYTES_MAX, stat_cache);
        }
        changes.iter().for_each(|path| before.link(path));
        if request.family == Family::Command {
            before.around(&request.action.cwd, stat_cache);
        }
        before
    }

    fn link(&mut self, path: &[u8]) {
        if let Ok(target) = std::fs::read_link(larder_sys::as_path(path)) {
            self.links.insert(path.to_vec(), target.into_os_string().into_vec());
        }
    }

    fn file(&mut self, path: &[u8], is_wanted: &dyn Fn(&Stat) -> bool, stat_cache: &StatCache) {
        if KERNELS.iter().any(|kernels| path.starts_with(kernels)) {
            return;
        }
        let Ok(stat) = larder_sys::stat(path) else { return };
        if stat.kind != FileType::File || !is_wanted(&stat) {
            return;
        }
        let mut read = || {
            // A generated file reports size 0. Reading some of these never ends.
            if stat.size_bytes == 0 {
                return Some(Digest::of(b""));
            }
            let read_bytes = self.read_bytes + stat.size_bytes;
            if read_bytes > READ_BYTES_MAX {
                return None;
            }
            self.read_bytes = read_bytes;
            let mut file = larder_sys::open(path, Opening::Read).ok()?;
            let digest = stat_cache.hash(&mut file).ok()?;
            larder_sys::fstat(&file).is_ok_and(|after| after == stat).then_some(digest)
        };
        if let Some(digest) = stat_cache.content(&stat).or_else(&mut read) {
            self.files.insert(stat.file_id(), (stat, digest));
        }
    }

    /// Notes the metadata of the crates that rustc may read, if cargo does not wait for their code.
    fn metadata(&mut self, request: &Request, stat_cache: &StatCache) {
        let is_metadata = |path: &[u8]| path.ends_with(b".rmeta");
        let named = rust(&request.action.argv[1..]);
        if !named.externs.iter().any(|path| is_metadata(path)) {
            return;
        }
        let mut paths: BTreeSet<Vec<u8>> = named.externs.iter().map(|path| request.absolute(path)).collect();
        for directory in &named.dependency_directories {
            let entries = larder_sys::as_path(&request.absolute(directory)).read_dir();
            paths.extend(entries.into_iter().flatten().flatten().map(|entry| entry.path().into_os_string().into_vec()));
        }
        let metadata = paths.iter().filter(|path| is_metadata(path));
        metadata.for_each(|path| self.file(path, &|_| true, stat_cache));
    }

    /// Notes small files below a directory. Links and mount points are not followed, because
    /// reading a generated file may block.
    fn around(&mut self, directory: &[u8], stat_cache: &StatCache) {
        let Ok(top) = larder_sys::stat(directory) else { return };
        if KERNELS.iter().any(|kernels| directory.starts_with(kernels)) {
            return;
        }
        let is_small = |stat: &Stat| stat.device == top.device && stat.size_bytes <= SMALL_BYTES;
        let is_here =
            |path: &Path| larder_sys::lstat(path.as_os_str().as_bytes()).is_ok_and(|it| it.device == top.device);
        let mut directories = VecDeque::from([larder_sys::as_path(directory).to_owned()]);
        let mut names = 0;
        while let Some(directory) = directories.pop_front() {
            for entry in directory.read_dir().into_iter().flatten().flatten() {
                names += 1;
                if names > NAMES_MAX {
                    return;
                }
                match entry.file_type() {
                    Ok(kind) if kind.is_file() => {
                        self.file(entry.path().as_os_str().as_bytes(), &is_small, stat_cache);
                    }
                    Ok(kind) if kind.is_symlink() => self.link(entry.path().as_os_str().as_bytes()),
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

    /// Returns true if the file at `path` was noted and has not changed since. It may have been
    /// opened for writing, as `flock` does. A change after `started_ns` would show in its ctime.
    pub(crate) fn is_as_it_was(&self, path: &[u8], started_ns: i64) -> bool {
        let now = larder_sys::stat(path).ok().filter(|now| now.changed_ns < started_ns);
        now.is_some_and(|now| self.files.get(&now.file_id()).is_some_and(|(stat, _)| *stat == now))
    }

    /// Returns the target that a link at `path` had before the run, if that was noted.
    pub(crate) fn target(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.links.get(path).cloned()
    }

    /// Returns how a file was noted, if nothing of it but the number of hard links, and with it the
    /// ctime, has changed since.
    pub(crate) fn before_links(&self, now: &Stat) -> Option<(Stat, Digest)> {
        let (stat, digest) = self.files.get(&now.file_id())?;
        let is_linked =
            stat.links != now.links && Stat { links: now.links, changed_ns: now.changed_ns, ..*stat } == *now;
        is_linked.then_some((*stat, *digest))
    }

    /// Returns the content of a file that the command opened, if it was noted and was unchanged
    /// when it was opened.
    pub(crate) fn of(&self, opened: &Identity) -> Option<Prior> {
        let same = |stat: &Stat| {
            (stat.device, stat.inode, stat.size_bytes, stat.modified_ns, stat.changed_ns)
                == (opened.device, opened.inode, opened.size_bytes, opened.modified_ns, opened.changed_ns)
        };
        let (stat, digest) = self.files.get(&opened.file_id()).filter(|(stat, _)| same(stat))?;
        Some(Prior::File { digest: *digest, mode: Some(stat.mode) })
    }
}

/// Returns true for directories in which no build writes.
fn is_of_version_control(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b".git" | b".hg" | b".jj" | b".svn")
}
