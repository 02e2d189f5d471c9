//! Whether calls that were let go on did what was foreseen.
//!
//! A call's result is not told. But its thread makes its next call only when it is done, so by then it can be seen.

use super::process::Caller;
use super::watch::{DROP_UNREADABLE, Watch};

/// What will be seen when a call has done what was foreseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// A file was made; the event of this number does not know yet which.
    Made { event: usize },
    /// Something has the name.
    There,
    /// Nothing has it.
    Gone,
    /// The process runs the program of this device and inode.
    Runs { image: (u64, u64) },
}

/// A call that was let go on.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) caller: Caller,
    pub(super) path: Vec<u8>,
    pub(super) expected: Expected,
}

impl Watch {
    /// Look at what is pending now that `thread` makes a call; `None` at the end, when all is done.
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
            Expected::Made { event } => match larder_sys::look_through(&pending.path) {
                Ok(look) => {
                    self.made(event, &look);
                    true
                }
                Err(_) => false,
            },
            Expected::There => larder_sys::look(&pending.path).is_ok(),
            Expected::Gone => larder_sys::look(&pending.path).is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT)),
            // A process that is gone by now did nothing that could have been taken for another program's doing.
            Expected::Runs { .. } if thread.is_none() => true,
            // The program begins in the process's first thread, whichever executed it.
            Expected::Runs { image } if thread == Some(pending.caller.process) => {
                pending.caller.image().is_ok_and(|look| (look.device, look.inode) == image)
            }
            Expected::Runs { .. } => !larder_sys::is_thread_of(pending.caller.thread, pending.caller.process),
        }
    }
}
