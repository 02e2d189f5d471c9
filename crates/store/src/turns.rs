//! Who runs an action: one process at a time has its turn, and others can see that.
//!
//! A turn is the lock of one byte of `locks/turns`, at an offset that the action's key says; the file stays empty.
//! Nothing is made for an action, and nothing is left by a process that was killed. Two actions of one byte only wait
//! for each other.
//!
//! Unaware of: what makes two actions the same, how long anybody waits.

use std::fs::{File, OpenOptions};

use larder_model::Digest;
use larder_sys::LOCKED_BYTES_MAX;

use crate::Store;
use crate::layout::open_plain;

/// Ours, until it is dropped.
pub struct Turn {
    _file: File,
}

/// Another process has it.
pub struct Running {
    file: File,
    at: u64,
    /// Its number; 0 where that is not to be seen from here.
    pub pid: u32,
}

/// What came of asking for a turn.
pub enum Asked {
    /// Nobody had it.
    Ours(Turn),
    /// Another process has it.
    Others(Running),
    /// There are no locks here: the file cannot be written, its file system has none, or the kernel no more.
    Nobodys,
}

impl Store {
    /// Ask for the turn at the action of this key, without waiting: two system calls where it is ours.
    pub fn ask_turn(&self, key: &Digest) -> Asked {
        let path = self.file("locks").join("turns");
        let opened = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false));
        let Ok(file) = opened else { return Asked::Nobodys };
        let at = key.place_among(LOCKED_BYTES_MAX);
        match larder_sys::try_lock_byte(&file, at) {
            Ok(true) => Asked::Ours(Turn { _file: file }),
            Ok(false) => {
                // Where it has ended meanwhile there is nobody to wait for, and the next look says so.
                let pid = larder_sys::byte_locked_by(&file, at).ok().flatten().unwrap_or(0);
                Asked::Others(Running { file, at, pid })
            }
            Err(_) => Asked::Nobodys,
        }
    }

    /// Who has the turn at the action of this key. Makes nothing, and can be asked where nothing can be written.
    pub fn running(&self, key: &Digest) -> Option<Running> {
        let (file, _) = open_plain(&self.file("locks").join("turns")).ok()?;
        let at = key.place_among(LOCKED_BYTES_MAX);
        let pid = larder_sys::byte_locked_by(&file, at).ok()??;
        Some(Running { file, at, pid })
    }
}

impl Running {
    /// Whether the same process still has it. False, too, where that cannot be told.
    pub fn goes_on(&self) -> bool {
        larder_sys::byte_locked_by(&self.file, self.at).is_ok_and(|pid| pid == Some(self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_ones_own_is_nobody_elses_business() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("store")).expect("opens");
        let key = Digest([7; 32]);
        assert!(store.running(&key).is_none() && !dir.path().join("store").exists());
        let Asked::Ours(turn) = store.ask_turn(&key) else { panic!("nobody has it") };
        // Locks are between processes; the tests of whole programs have two.
        assert!(store.running(&key).is_none());
        drop(turn);
        assert!(matches!(store.ask_turn(&key), Asked::Ours(_)));
        let path = store.file("locks").join("turns");
        assert_eq!(std::fs::metadata(&path).expect("is there").len(), 0);
        std::fs::remove_file(&path).expect("removes");
        std::fs::create_dir(&path).expect("makes");
        assert!(matches!(store.ask_turn(&key), Asked::Nobodys), "no file");
    }
}
