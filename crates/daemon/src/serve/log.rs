//! The daemon's log: lines with a time stamp for failures, start and exit. Errors of the log itself
//! are ignored.

use std::fs::File;
use std::io::Write;

use larder_store::{Store, StoreError};
use parking_lot::Mutex;

use crate::say;

/// The log is truncated when it is larger than this, in bytes.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// An open log.
pub(super) struct Log(Mutex<File>);

impl Log {
    pub(super) fn open(store: &Store) -> Result<Log, StoreError> {
        Ok(Log(Mutex::new(store.open_daemon_log()?)))
    }

    /// Appends a line.
    pub(super) fn say(&self, what: &str) {
        let seconds = larder_sys::now_coarse_ns() as f64 / 1e9;
        let line = format!("{seconds:.3} {}\n", say::one_line(what));
        let mut file = self.0.lock();
        if file.metadata().is_ok_and(|about| about.len() > LOG_BYTES_MAX) {
            let _ = file.set_len(0);
        }
        let _ = file.write_all(line.as_bytes());
    }
}
