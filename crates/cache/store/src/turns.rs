//! Turns: locks by which only one process at a time runs an action (single-flight).
//!
//! A turn is the lock of one byte of `locks/turns`, at an offset given by the action's key. The
//! file stays empty. No file is made for an action, and a killed process leaves nothing. If two
//! different actions have the same byte, one waits for the other without need.
//!
//! Unaware of: which actions are the same, how long a process waits.

use std::fs::File;

use larder_model::Digest;
use larder_sys::LOCKED_BYTES_MAX;

use crate::Store;
use crate::layout::open_plain;

/// The turn of this process, until it is dropped.
pub struct Turn {
    _file: File,
}

/// Another process that has the turn.
pub struct Running {
    file: File,
    at: u64,
    /// Its process ID, or 0 if it is not visible from here, for example because of PID namespaces.
    pub pid: u32,
}

/// The answer to a request for a turn.
pub enum Asked {
    /// No process had it. It is ours now.
    Ours(Turn),
    /// Another process has it.
    Others(Running),
    /// Locks do not work here: the file cannot be written, its file system has no locks, or the
    /// kernel has no more.
    Nobodys,
}

impl Store {
    /// Requests the turn for the action of this key, without waiting. Takes two system calls if it
    /// is ours.
    pub fn ask_turn(&self, key: &Digest) -> Asked {
        let path = self.file("locks").join("turns");
        let opened = self.open_to_write(&path);
        let Ok(file) = opened else { return Asked::Nobodys };
        let at = key.place_among(LOCKED_BYTES_MAX);
        match larder_sys::try_lock_byte(&file, at) {
            Ok(true) => Asked::Ours(Turn { _file: file }),
            Ok(false) => {
                // If the other process has ended meanwhile, the next `goes_on` shows it.
                let pid = larder_sys::byte_locked_by(&file, at).ok().flatten().unwrap_or(0);
                Asked::Others(Running { file, at, pid })
            }
            Err(_) => Asked::Nobodys,
        }
    }

    /// Returns the process that has the turn for the action of this key. Creates nothing, so it
    /// also works in a store that cannot be written.
    pub fn running(&self, key: &Digest) -> Option<Running> {
        let (file, _) = open_plain(&self.file("locks").join("turns")).ok()?;
        let at = key.place_among(LOCKED_BYTES_MAX);
        let pid = larder_sys::byte_locked_by(&file, at).ok()??;
        Some(Running { file, at, pid })
    }
}

impl Running {
    /// Returns true if the same process still has the turn, and false if that cannot be found out.
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
        let Asked::Ours(turn) = store.ask_turn(&key) else { panic!("no process has it") };
        // A process does not see its own locks. The tests of whole programs use two processes.
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
