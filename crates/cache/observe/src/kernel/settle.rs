//! Checks whether calls that were let go on did what was foreseen.
//!
//! We do not learn the result of a call. But its thread makes its next call only after that call is
//! done, so its effect can be checked then. For example, if the next call of a thread comes after a
//! `mkdir`, the directory must exist. If it does not, the run is refused.
//!
//! Unaware of: what the call was.

use super::pending::{Expected, Pending};
use super::watch::{DROP_UNREADABLE, Watch};

impl Watch {
    /// Checks the pending calls now that `thread` makes its next call. At the end of the run
    /// `thread` is `None`, and all calls are done.
    pub(super) fn settle(&mut self, thread: Option<u32>) {
        if self.pending.is_empty() {
            return;
        }
        for pending in std::mem::take(&mut self.pending) {
            let done = thread.is_none_or(|thread| thread == pending.caller.thread);
            match self.is_as_expected(&pending, thread) {
                true => {}
                false if done => self.drop_event(pending.caller, DROP_UNREADABLE, &pending.path),
                false => self.pending.push(pending),
            }
        }
    }

    fn is_as_expected(&mut self, pending: &Pending, thread: Option<u32>) -> bool {
        match pending.expected {
            Expected::Made { event } => match larder_sys::stat(&pending.path) {
                Ok(stat) => {
                    self.made(event, &stat);
                    true
                }
                Err(_) => false,
            },
            Expected::There => larder_sys::lstat(&pending.path).is_ok(),
            Expected::Gone => larder_sys::lstat(&pending.path).is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT)),
            // If the process is gone by now, it did nothing that was taken for the work of another
            // program.
            Expected::Runs { .. } if thread.is_none() => true,
            // A new program begins in the process's first thread, whichever thread executed it.
            Expected::Runs { image } if thread == Some(pending.caller.process) => {
                pending.caller.image().is_ok_and(|stat| stat.file_id() == image)
            }
            Expected::Runs { .. } => !larder_sys::is_thread_of(pending.caller.thread, pending.caller.process),
        }
    }
}
