//! Creating the entries of an untrusted archive below one directory. No name leads out of it: each
//! directory on the way is opened by itself, and links are not followed.
//!
//! Unaware of: archive formats.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use crate::ImageError;
use crate::tree::{Attribute, NODES_MAX, is_kept};

/// Set-user-id and set-group-id. They are not set if the file gets another owner than it had.
const RIGHTS: u32 = 0o6000;
/// The bytes that are read and written at once. If a file has holes in the archive, this many zeros
/// become a hole.
const CHUNK_BYTES: usize = 64 << 10;
/// The most bytes of a path. Linux accepts 4,096 at once, but deeper files can be unpacked, too.
const PATH_BYTES_MAX: usize = 16 << 10;
/// The bytes that a name counts as, besides its length: about what it takes on a disk.
const NAME_BYTES: u64 = 512;
/// The most bytes of paths and attributes of directories, which are kept until the end.
const HELD_BYTES_MAX: usize = 256 << 20;
/// The bytes that a directory counts as, besides that.
const HELD_BYTES_EACH: usize = 256;
/// The most characters of a path in a message.
const SHOWN_MAX: usize = 256;

/// The metadata of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Meta {
    /// Permission bits.
    pub(super) mode: u32,
    /// User and group; `None` if the format has none.
    pub(super) owner: Option<(u32, u32)>,
    /// The modification time: seconds since 1970, and nanoseconds.
    pub(super) modified: (i64, u32),
    pub(super) attributes: Vec<Attribute>,
}

/// The directory below which an archive is unpacked.
pub(super) struct Stage {
    top: OwnedFd,
    from: PathBuf,
    /// The directory of the last name, because the next name is mostly in the same one.
    opened: Option<(Vec<u8>, OwnedFd)>,
    /// Metadata of directories. It is set at the end, because creating files in a directory changes
    /// its times, and because its mode may deny access.
    directories: BTreeMap<Vec<u8>, Meta>,
    names: u64,
    /// How many bytes may still be unpacked. Each name counts as some bytes.
    room_bytes: u64,
    /// The bytes that are kept of directories.
    held_bytes: usize,
    owners_left: u64,
    attributes_left: u64,
    own: (u32, u32),
}

impl Stage {
    /// Unpacks the archive `from` below `top`, at most `room_bytes` bytes.
    pub(super) fn new(top: &Path, from: &Path, room_bytes: u64) -> Result<Stage, ImageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(CWD, top, flags, Mode::empty()).map_err(ImageError::io("open it", top))?;
        Ok(Stage {
            top: opened,
            from: from.to_owned(),
            opened: None,
            directories: BTreeMap::new(),
            names: 0,
            room_bytes,
            held_bytes: 0,
            owners_left: 0,
            attributes_left: 0,
            own: (larder_sys::effective_user(), larder_sys::effective_group()),
        })
    }

    /// Creates a file. If `is_sparse`, long runs of zeros become holes.
    pub(super) fn file(
        &mut self,
        path: &[u8],
        bytes: &mut dyn Read,
        is_sparse: bool,
        meta: Meta,
    ) -> Result<(), ImageError> {
        let (name, failed) = (self.place(path)?, self.failed(path));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = |dir: BorrowedFd<'_>| rustix::fs::openat(dir, name.as_slice(), flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(self.replaced(&name, make).map_err(&failed)?);
        let copied = copy(bytes, &mut file, is_sparse, self.room_bytes);
        let copied = copied.map_err(|error| match Errno::from_io_error(&error) {
            Some(error) => failed(error),
            None => ImageError::archive(&self.from, format!("{} cannot be read: {error}", shown(path))),
        })?;
        self.take(path, copied)?;
        self.settle(&file, &meta).map_err(failed)
    }

    /// Creates a directory, unless it exists.
    pub(super) fn directory(&mut self, path: &[u8], meta: Meta) -> Result<(), ImageError> {
        let clean = self.parts(path)?.join(&b'/');
        let failed = self.failed(path);
        self.count(path)?;
        self.enter(&clean).map_err(failed)?;
        let attributes: usize = meta.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.held_bytes += HELD_BYTES_EACH + clean.len() + attributes;
        if self.held_bytes > HELD_BYTES_MAX {
            return Err(self.unsuitable(path, "a directory beyond the limit of 256 MiB for their paths and attributes"));
        }
        self.directories.insert(clean, meta);
        Ok(())
    }

    /// Creates a symbolic link.
    pub(super) fn link(&mut self, path: &[u8], target: &[u8], meta: Meta) -> Result<(), ImageError> {
        let (name, failed) = (self.place(path)?, self.failed(path));
        self.replaced(&name, |dir| rustix::fs::symlinkat(target, dir, name.as_slice())).map_err(&failed)?;
        let dir = self.at();
        let owner = meta.owner.filter(|owner| self.own.0 == 0 && *owner != self.own);
        let owned = owner.map_or(Ok(()), |(user, group)| {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chownat(dir, name.as_slice(), Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
        });
        let times = times(meta.modified);
        owned
            .and_then(|()| rustix::fs::utimensat(dir, name.as_slice(), &times, AtFlags::SYMLINK_NOFOLLOW))
            .map_err(failed)
    }

    /// Creates a hard link to an earlier entry.
    pub(super) fn again(&mut self, path: &[u8], first: &[u8]) -> Result<(), ImageError> {
        let (name, failed) = (self.place(path)?, self.failed(path));
        let parts = self.parts(first)?;
        let (last, above) = parts.split_last().ok_or_else(|| self.unsuitable(path, "a hard link to nothing"))?;
        let (last, above) = (last.to_vec(), above.join(&b'/'));
        let from = walk(&self.top, &above, false).map_err(&failed)?;
        let from = from.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
        let to =
            |dir: BorrowedFd<'_>| rustix::fs::linkat(from, last.as_slice(), dir, name.as_slice(), AtFlags::empty());
        self.replaced(&name, to).map_err(failed)
    }

    /// Creates a FIFO.
    pub(super) fn fifo(&mut self, path: &[u8], meta: Meta) -> Result<(), ImageError> {
        let (name, failed) = (self.place(path)?, self.failed(path));
        let mode = Mode::RUSR | Mode::WUSR;
        let make = |dir: BorrowedFd<'_>| rustix::fs::mknodat(dir, name.as_slice(), FileType::Fifo, mode, 0);
        self.replaced(&name, make).map_err(&failed)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fifo = rustix::fs::openat(self.at(), name.as_slice(), flags, Mode::empty()).map_err(&failed)?;
        self.settle(&fifo, &meta).map_err(failed)
    }

    /// Returns an error for an entry that cannot be kept.
    pub(super) fn unsuitable(&self, path: &[u8], what: &str) -> ImageError {
        let why = format!("{} is {what}, which an image cannot hold", shown(path));
        ImageError::archive(&self.from, why)
    }

    /// Sets the metadata of directories, at the end. Returns how many owners and attributes could
    /// not be set.
    pub(super) fn done(mut self) -> Result<(u64, u64), ImageError> {
        // In reverse order a directory comes after everything in it.
        for (path, meta) in std::mem::take(&mut self.directories).into_iter().rev() {
            let failed = self.failed(&path);
            let dir = walk(&self.top, &path, false).map_err(&failed)?;
            let dir = dir.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::openat(dir, ".", flags, Mode::empty()).map_err(&failed)?;
            self.settle(&dir, &meta).map_err(failed)?;
        }
        Ok((self.owners_left, self.attributes_left))
    }

    /// Enters the directory of a path, which is created if necessary, and returns the path's last
    /// component.
    fn place(&mut self, path: &[u8]) -> Result<Vec<u8>, ImageError> {
        self.count(path)?;
        let parts = self.parts(path)?;
        let (name, above) = parts.split_last().ok_or_else(|| self.unsuitable(path, "an entry without a name"))?;
        let (name, above) = (name.to_vec(), above.join(&b'/'));
        let failed = self.failed(path);
        self.enter(&above).map_err(failed)?;
        Ok(name)
    }

    fn count(&mut self, path: &[u8]) -> Result<(), ImageError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(self.unsuitable(path, "a path of more than 16 KiB"));
        }
        self.names += 1;
        if self.names > NODES_MAX {
            return Err(self.unsuitable(path, "beyond the limit of 67 million names"));
        }
        self.take(path, NAME_BYTES + path.len() as u64)
    }

    /// Subtracts unpacked bytes from the room.
    fn take(&mut self, path: &[u8], bytes: u64) -> Result<(), ImageError> {
        match self.room_bytes.checked_sub(bytes) {
            Some(left) => self.room_bytes = left,
            None => {
                let what = "it is larger than the store may be (max_size); unpack it elsewhere, or raise max_size";
                return Err(ImageError::archive(&self.from, format!("from {} on {what}", shown(path))));
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: &[u8]) -> rustix::io::Result<()> {
        if self.opened.as_ref().is_some_and(|(known, _)| known == path) {
            return Ok(());
        }
        let opened = walk(&self.top, path, true)?;
        self.opened = opened.map(|dir| (path.to_vec(), dir));
        Ok(())
    }

    /// Returns the directory that was entered.
    fn at(&self) -> BorrowedFd<'_> {
        self.opened.as_ref().map_or(self.top.as_fd(), |(_, dir)| dir.as_fd())
    }

    /// Creates a name. If an earlier entry has created it already, that is replaced.
    fn replaced<T>(
        &self,
        name: &[u8],
        make: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        match make(self.at()) {
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(self.at(), name, AtFlags::empty())?;
                make(self.at())
            }
            made => made,
        }
    }

    /// Returns the components of a path; none if it is the top itself.
    fn parts<'p>(&self, path: &'p [u8]) -> Result<Vec<&'p [u8]>, ImageError> {
        let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
        match parts.contains(&&b".."[..]) || path.contains(&0) {
            true => Err(ImageError::archive(&self.from, format!("{} leads out of it; nothing is saved", shown(path)))),
            false => Ok(parts),
        }
    }

    fn failed(&self, path: &[u8]) -> impl Fn(Errno) -> ImageError + 'static {
        let (from, path) = (self.from.clone(), shown(path));
        move |error| match error {
            Errno::NOTDIR | Errno::LOOP => {
                ImageError::archive(&from, format!("{path} leads through what is not a directory; nothing is saved"))
            }
            error => ImageError::archive(&from, format!("{path} cannot be unpacked: {}", io::Error::from(error))),
        }
    }

    /// Sets owner, attributes, mode and times, in this order. Each may change the later ones, and
    /// the mode may forbid the owner to set attributes.
    fn settle(&mut self, file: impl AsFd, meta: &Meta) -> rustix::io::Result<()> {
        let mut mode = meta.mode;
        match meta.owner.filter(|owner| *owner != self.own) {
            Some((user, group)) if self.own.0 == 0 => {
                rustix::fs::fchown(&file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
            }
            Some(_) => {
                self.owners_left += 1;
                mode &= !RIGHTS;
            }
            None => {}
        }
        for (name, value) in meta.attributes.iter().filter(|(name, _)| is_kept(name)) {
            let set = rustix::fs::fsetxattr(&file, OsStr::from_bytes(name), value, XattrFlags::empty());
            self.attributes_left += u64::from(set.is_err());
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        rustix::fs::futimens(&file, &times(meta.modified))
    }
}

/// Opens the directory `path` below `top`, component by component, without following links. Returns
/// `None` if that is `top`.
fn walk(top: &OwnedFd, path: &[u8], is_made: bool) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        let dir = at.as_ref().unwrap_or(top);
        let opened = match rustix::fs::openat(dir, part, flags, Mode::empty()) {
            Err(Errno::NOENT) if is_made => {
                rustix::fs::mkdirat(dir, part, Mode::from_raw_mode(0o755))?;
                rustix::fs::openat(dir, part, flags, Mode::empty())
            }
            opened => opened,
        };
        at = Some(opened?);
    }
    Ok(at)
}

/// Copies a file and returns its size. If it has more than `limit` bytes, the copy ends before the
/// chunk that exceeds the limit.
fn copy(from: &mut dyn Read, to: &mut File, is_sparse: bool, limit: u64) -> io::Result<u64> {
    use std::io::Seek;
    let (mut buffer, mut size) = (vec![0; CHUNK_BYTES], 0u64);
    loop {
        let mut count = 0;
        while count < buffer.len() {
            match from.read(&mut buffer[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        size += count as u64;
        if count == 0 || size > limit {
            break;
        }
        match is_sparse && buffer[..count].iter().all(|&byte| byte == 0) {
            true => drop(to.seek_relative(count as i64)?),
            false => to.write_all(&buffer[..count])?,
        }
    }
    if is_sparse && size <= limit {
        to.set_len(size)?;
    }
    Ok(size)
}

fn times((seconds, ns): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: ns.into() },
    }
}

/// Returns a path for messages.
fn shown(path: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&path[..path.len().min(SHOWN_MAX)]).escape_debug().to_string();
    if path.len() > SHOWN_MAX { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(mode: u32) -> Meta {
        Meta { mode, modified: (1_000_000_000, 5), ..Meta::default() }
    }

    fn stage() -> (tempfile::TempDir, Stage) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("top")).expect("makes");
        let stage = Stage::new(&dir.path().join("top"), Path::new("a.tar"), 1 << 30).expect("opens");
        (dir, stage)
    }

    #[test]
    fn no_name_leads_out() {
        let (dir, mut stage) = stage();
        let error = stage.file(b"a/../../x", &mut &b"x"[..], false, meta(0o600)).expect_err("leads out");
        assert!(error.to_string().contains("leads out"), "{error}");
        stage.link(b"up", b"..", meta(0)).expect("a link may lead anywhere");
        for path in [&b"up/x"[..], b"up/top/x"] {
            let error = stage.file(path, &mut &b"x"[..], false, meta(0o600)).expect_err("leads through a link");
            assert!(error.to_string().contains("not a directory"), "{error}");
        }
        assert!(stage.again(b"y", b"up/top/up").is_err() && stage.directory(b"up", meta(0o700)).is_err());
        stage.file(b"/abs", &mut &b"x"[..], false, meta(0o600)).expect("is below");
        stage.done().expect("ends");
        let names = |path: &str| std::fs::read_dir(dir.path().join(path)).expect("lists").count();
        assert_eq!((names(""), names("top")), (1, 2));
    }

    #[test]
    fn no_more_is_unpacked_than_there_is_room_for() {
        let (dir, mut stage) = stage();
        stage.room_bytes = 10_000;
        stage.file(b"a", &mut &[1; 4000][..], false, meta(0o600)).expect("fits");
        for is_sparse in [false, true] {
            let error = stage.file(b"b", &mut io::repeat(0), is_sparse, meta(0o600)).expect_err("has no end");
            assert!(error.to_string().contains("max_size"), "{error}");
        }
        let left = std::fs::metadata(dir.path().join("top/b")).expect("was begun").len();
        assert!(left <= 10_000, "{left}");
        let (_dir, mut stage) = self::stage();
        stage.room_bytes = 10_000;
        let names = (0..100).map_while(|number| stage.link(format!("l{number}").as_bytes(), b"x", meta(0)).ok());
        assert!((10..20).contains(&names.count()), "names count as well");
        stage.room_bytes = 1 << 40;
        let held = |stage: &mut Stage, number: u64| {
            let attributes = vec![(b"user.x".to_vec(), vec![0; 4 << 20])];
            stage.directory(format!("d{number}").as_bytes(), Meta { attributes, ..meta(0o700) })
        };
        let many = (0..100).map_while(|number| held(&mut stage, number).ok()).count();
        assert_eq!(many, 63, "the metadata of directories has a limit");
        let long = stage.directory(&vec![b'a'; PATH_BYTES_MAX + 1], meta(0o700)).expect_err("is too long");
        assert!(long.to_string().len() < 1000, "{long}");
    }

    #[test]
    fn later_names_replace_earlier_ones_and_directories_come_last() {
        let (dir, mut stage) = stage();
        stage.directory(b"./d/", meta(0o500)).expect("makes");
        stage.file(b"d/e/x", &mut &b"one"[..], false, meta(0o640)).expect("makes");
        stage.file(b"./d//e/./x", &mut &b"two"[..], false, meta(0o444)).expect("replaces");
        stage.again(b"d/y", b"d/e/x").expect("links");
        let zeros = vec![0; 1 << 20];
        stage.file(b"d/sparse", &mut zeros.as_slice(), true, meta(0o600)).expect("makes");
        stage.done().expect("ends");
        let top = dir.path().join("top");
        assert_eq!(std::fs::read(top.join("d/y")).expect("reads"), b"two");
        let of = |name: &str| std::fs::metadata(top.join(name)).expect("is there");
        use std::os::unix::fs::MetadataExt;
        assert_eq!((of("d").mode() & 0o7777, of("d").mtime(), of("d").mtime_nsec()), (0o500, 1_000_000_000, 5));
        assert_eq!((of("d/y").nlink(), of("d/y").mode() & 0o777), (2, 0o444));
        assert_eq!((of("d/sparse").len(), of("d/sparse").blocks()), (1 << 20, 0));
    }
}
