//! Starts processes while no file of a case is open for writing.
//!
//! Cases run side by side. A child has all descriptors of this process until its own program
//! begins. If one of them is a script that another case is writing, running that script fails with
//! ETXTBSY.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{PoisonError, RwLock};

/// Held for reading while a file is written, and for writing while a process starts.
static WRITES: RwLock<()> = RwLock::new(());

/// Does `write`, which opens and closes files of a case.
pub(crate) fn writing<T>(write: impl FnOnce() -> T) -> T {
    let _no_process_starts = WRITES.read().unwrap_or_else(PoisonError::into_inner);
    write()
}

/// Starts a process. Its program has begun when this returns.
pub(crate) fn spawn(command: &mut Command) -> io::Result<Child> {
    let _nothing_is_written = WRITES.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Runs a command to its end, and returns its output.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?.wait_with_output()
}
