//! The files of `larderd` in the store: its socket, its log, and the lock that allows only one
//! `larderd` per store.
//!
//! Unaware of: what is sent over the socket.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_sys::{Door, Stat};

use crate::layout::{if_there, make_directory, read_plain};
use crate::{Store, StoreError};

/// A wrapper starts `larderd` at most once in this time, in nanoseconds. So a `larderd` that cannot
/// start is not retried by every wrapper.
const SUMMON_COARSE_NS: i64 = 3_000_000_000;
/// A `larderd` that starts successfully listens within this time, in nanoseconds.
const BEGINS_NS: i64 = 500_000_000;

/// The file in which `larderd` describes how remotes answer, for `larder stats`.
const LATENCIES: &str = "remotes.json";
/// A larger file is not read.
const LATENCIES_BYTES_MAX: u64 = 4 << 20;

/// The file in `locks/` that exists while `larderd` accepts no records.
const HITS_ONLY: &str = "hits-only";

/// When a process last tried to start `larderd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summoned {
    /// Not recently. The caller should start it now, and this attempt is noted.
    Never,
    /// Less than half a second ago, so it may be about to listen.
    JustNow,
    /// Long enough ago that it would listen by now. Also returned if the attempt cannot be noted.
    Lately,
}

/// A socket that this process put at its path.
pub struct StoreSocket {
    path: PathBuf,
    /// The device and inode of the socket. They differ if another process has put its socket there.
    is: (u64, u64),
}

impl Store {
    /// Returns the path of the socket on which `larderd` listens.
    pub fn daemon_socket(&self) -> PathBuf {
        self.file("daemon.sock")
    }

    /// Returns the path of the log to which `larderd` writes errors.
    pub fn daemon_log(&self) -> PathBuf {
        self.file("daemon.log")
    }

    /// Opens the log of `larderd` for appending.
    pub fn open_daemon_log(&self) -> Result<File, StoreError> {
        let path = self.daemon_log();
        self.open_or_make(&path, OpenOptions::new().append(true).create(true))
    }

    /// Stores a description of how remotes answer, and replaces the previous one.
    pub fn keep_latencies(&self, text: &[u8]) -> Result<(), StoreError> {
        self.put_file(&self.file(LATENCIES), text)
    }

    /// Returns the description of how remotes answer, if there is one.
    pub fn latencies(&self) -> Option<Vec<u8>> {
        read_plain(&self.file(LATENCIES), LATENCIES_BYTES_MAX).ok()
    }

    /// Takes the lock that allows only one `larderd` per store. It is held until the file is
    /// closed. Returns `None` if another process has it.
    pub fn lock_daemon(&self) -> Result<Option<File>, StoreError> {
        self.try_lock("daemon")
    }

    /// Returns true if a `larderd` of this store runs. Creates nothing, so it also works in a store
    /// that cannot be written.
    pub fn daemon_runs(&self) -> bool {
        self.is_locked("daemon")
    }

    /// Returns true if a process holds the lock with this name.
    pub(crate) fn is_locked(&self, name: &str) -> bool {
        let file = File::open(self.file("locks").join(name));
        file.is_ok_and(|file| larder_sys::is_write_locked(&file).unwrap_or(false))
    }

    /// Returns when a process last tried to start `larderd`. If that was not recently, notes that
    /// the caller does so now.
    pub fn may_summon(&self) -> Summoned {
        let path = self.file("locks").join("summoned");
        let age = || -> io::Result<i64> {
            let stat = larder_sys::lstat(path.as_os_str().as_encoded_bytes())?;
            Ok(larder_sys::now_coarse_ns().saturating_sub(stat.modified_ns).saturating_abs())
        };
        // If several processes ask at the same time, only one gets `Never`: the one that creates
        // the file, or the one that locks it and finds it still old.
        let is_ours = match age() {
            Ok(..BEGINS_NS) => return Summoned::JustNow,
            Ok(BEGINS_NS..SUMMON_COARSE_NS) => return Summoned::Lately,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.open_or_make(&path, OpenOptions::new().write(true).create_new(true)).map(|_| true)
            }
            _ => self.open_or_make(&path, OpenOptions::new().write(true)).map(|file| {
                let has_lock = larder_sys::try_write_lock(&file).unwrap_or(false);
                has_lock
                    && age().is_ok_and(|age| age >= SUMMON_COARSE_NS)
                    && file.set_modified(std::time::SystemTime::now()).is_ok()
            }),
        };
        match is_ours {
            Ok(true) => Summoned::Never,
            _ if age().is_ok_and(|age| age < BEGINS_NS) => Summoned::JustNow,
            _ => Summoned::Lately,
        }
    }

    /// Listens at the path of the socket. A socket that a killed `larderd` left is replaced by
    /// `rename`, so the path always exists. The caller must hold the lock of
    /// [`Store::lock_daemon`].
    pub fn open_daemon_door(&self) -> Result<(Door, StoreSocket), StoreError> {
        let path = self.daemon_socket();
        let beside = self.temporary_path();
        make_directory(&self.file("tmp"))?;
        StoreSocket::open(&path, &beside, 0o600).map_err(StoreError::writing(&path))
    }
}

impl StoreSocket {
    /// Listens at `path`, in place of the socket that was there. The socket is made at `beside`, on
    /// the same file system, and renamed.
    ///
    /// # Errors
    ///
    /// Returns an error if the socket cannot be made or renamed, or its mode cannot be set.
    pub fn open(path: &Path, beside: &Path, mode: u32) -> io::Result<(Door, StoreSocket)> {
        let opened = Door::open(beside).and_then(|door| {
            fs::set_permissions(beside, fs::Permissions::from_mode(mode))?;
            let stat = fs::symlink_metadata(beside)?;
            fs::rename(beside, path)?;
            Ok((door, StoreSocket { path: path.to_owned(), is: (stat.dev(), stat.ino()) }))
        });
        opened.inspect_err(|_| drop(fs::remove_file(beside)))
    }

    /// Returns true if the socket is still at its path. A user may have removed the store, or
    /// another process may have replaced the socket.
    pub fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|stat| (stat.dev(), stat.ino()) == self.is)
    }

    /// Removes the socket if it is still ours, so that no process connects to it any more.
    pub fn remove(&self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Store {
    /// Returns an error if no file can be made in the store. This is one system call, because every
    /// miss asks.
    pub fn may_be_written(&self) -> Result<(), StoreError> {
        let path = self.file("tmp");
        // The directory is made when it is first needed.
        let done = if_there(larder_sys::may_make_in(path.as_os_str().as_encoded_bytes()));
        done.map(drop).map_err(StoreError::writing(&path))
    }

    /// Returns true if this process cannot write the store, as in a sandbox that mounts it
    /// read-only. Only such a process uses records that were handed over. The answer costs one
    /// system call and is cached.
    pub fn is_only_read(&self) -> bool {
        *self.only_read.get_or_init(|| self.may_be_written().is_err_and(|error| error.refuses_writing()))
    }

    /// Returns a file, open for writing, that proves to `larderd` that this process can write the
    /// store. A process for which the store is mounted read-only cannot open it for writing.
    pub fn proof_of_writing(&self) -> Result<File, StoreError> {
        let path = self.file("locks").join("daemon");
        self.open_to_write(&path)
    }

    /// Returns true if `passed` is the file of [`Store::proof_of_writing`], open for writing.
    pub fn is_proof_of_writing(&self, passed: &File) -> bool {
        let file = |stat: Stat| stat.file_id();
        let named = larder_sys::lstat(self.file("locks").join("daemon").as_os_str().as_encoded_bytes());
        larder_sys::is_open_for_writing(passed)
            && named.is_ok_and(|named| larder_sys::fstat(passed).is_ok_and(|stat| file(stat) == file(named)))
    }

    /// Notes whether `larderd` accepts records. If it does not, wrappers that cannot write the
    /// store need not observe tools.
    pub fn note_taking(&self, takes: bool) -> Result<(), StoreError> {
        let path = self.file("locks").join(HITS_ONLY);
        match takes {
            false => self.open_to_write(&path).map(drop),
            true => if_there(fs::remove_file(&path)).map(drop).map_err(StoreError::writing(&path)),
        }
    }

    /// Returns true if the `larderd` that started last accepts records.
    pub fn daemon_takes(&self) -> bool {
        larder_sys::lstat(self.file("locks").join(HITS_ONLY).as_os_str().as_encoded_bytes()).is_err()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    /// Returns true if there is a socket, even if no process listens on it.
    fn has_socket(store: &Store) -> bool {
        const SOCKET: larder_sys::FileType = larder_sys::FileType::Other(0o14);
        let path = store.daemon_socket();
        larder_sys::lstat(path.as_os_str().as_encoded_bytes()).is_ok_and(|stat| stat.kind == SOCKET)
    }

    #[test]
    fn one_of_many_starts_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let path = store.file("locks").join("summoned");
        for _ in 0..20 {
            let at_once = std::sync::Barrier::new(8);
            let is_ours = || {
                at_once.wait();
                matches!(store.may_summon(), Summoned::Never)
            };
            let ours = std::thread::scope(|scope| {
                let all: Vec<_> = (0..8).map(|_| scope.spawn(is_ours)).collect();
                all.into_iter().filter_map(|one| one.join().ok()).filter(|ours| *ours).count()
            });
            assert_eq!(ours, 1);
            // The next processes find an attempt of long ago.
            let file = File::options().write(true).open(&path).expect("was made");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("is ours");
        }
    }

    #[test]
    fn there_is_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert!(!store.daemon_runs() && !has_socket(&store));
        let lock = store.lock_daemon().expect("locks").expect("no process has it");
        assert!(store.lock_daemon().expect("asks").is_none());
        assert!(store.daemon_runs());
        drop(lock);
        assert!(!store.daemon_runs());
    }

    /// Only a descriptor of the lock file that is open for writing proves that a process can write
    /// the store.
    #[test]
    fn who_can_write_is_seen_by_a_descriptor() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let _lock = store.lock_daemon().expect("locks").expect("no process has it");
        assert!(store.is_proof_of_writing(&store.proof_of_writing().expect("opens")));
        let path = store.file("locks/daemon");
        assert!(!store.is_proof_of_writing(&File::open(&path).expect("opens")), "open for reading only");
        const O_PATH: i32 = 0o10_000_000;
        let by_path = File::options().read(true).write(true).custom_flags(O_PATH).open(&path).expect("opens");
        assert!(!store.is_proof_of_writing(&by_path), "opened with O_PATH");
        let other = File::create(dir.path().join("other")).expect("makes");
        assert!(!store.is_proof_of_writing(&other), "another file");
        assert!(store.lock_daemon().expect("asks").is_none(), "the lock is still held");
    }

    #[test]
    fn whether_it_takes_what_is_handed_over_is_noted() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert!(store.daemon_takes());
        for takes in [false, false, true, true] {
            store.note_taking(takes).expect("notes");
            assert_eq!(store.daemon_takes(), takes);
        }
    }

    #[test]
    fn a_stale_socket_is_replaced_and_only_ones_own_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (_, first) = store.open_daemon_door().expect("listens");
        assert!(first.is_there() && has_socket(&store));
        let (door, second) = store.open_daemon_door().expect("listens");
        assert!(!first.is_there() && second.is_there());
        first.remove();
        assert!(second.is_there());
        let patience = std::time::Duration::from_secs(1);
        assert!(larder_sys::Channel::connect(&store.daemon_socket(), patience).is_ok());
        drop(door);
        second.remove();
        assert!(!has_socket(&store));
    }

    #[test]
    fn what_it_says_of_remotes_is_what_it_said_last() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert_eq!(store.latencies(), None);
        for text in [&b"one"[..], b"two"] {
            store.keep_latencies(text).expect("writes");
            assert_eq!(store.latencies().as_deref(), Some(text));
        }
    }

    #[test]
    fn one_is_summoned_once_in_a_while() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert_eq!([store.may_summon(), store.may_summon()], [Summoned::Never, Summoned::JustNow]);
        let file = File::options().write(true).open(store.file("locks/summoned")).expect("opens");
        let ago = |ns: i64| std::time::SystemTime::now() - std::time::Duration::from_nanos(ns as u64);
        file.set_modified(ago(2 * BEGINS_NS)).expect("sets");
        assert_eq!(store.may_summon(), Summoned::Lately);
        file.set_modified(ago(2 * SUMMON_COARSE_NS)).expect("sets");
        assert_eq!(store.may_summon(), Summoned::Never);
    }

    #[test]
    fn whether_it_can_be_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("not/there")).expect("opens");
        assert!(store.may_be_written().is_ok());
        store.lock("00").expect("makes");
        store.put_blob(&mut &b"x"[..]).expect("writes");
        assert!(store.may_be_written().is_ok());
    }
}
