//! How a file is filled.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::Arc;

use super::switches::{Prepare, prepare};

/// How a file is filled.
#[derive(Clone)]
pub struct Options {
    /// How many fetches run at once for bytes that a reader waits for.
    pub workers: usize,
    /// How many further fetches run at once, with a lower priority, for bytes that no reader waits
    /// for. With 0, only bytes that are read are fetched.
    pub background: usize,
    /// The ranges that earlier jobs read, in the order of their first reads. They are fetched
    /// first.
    pub order: Vec<Range<u64>>,
    /// True if reads are traced until `finish` is called, even when all bytes are local.
    pub trace: bool,
    /// The program and its arguments that call `gate` with their standard input.
    pub gate: Vec<OsString>,
    /// Further arguments of the gate: a working directory, a program and its arguments, which start
    /// a new filler if there is none. If this is empty, reads wait until another process starts
    /// one.
    pub rescue: Vec<OsString>,
    /// Does what `prepare` does, perhaps in another process.
    pub prepare: Prepare,
}

impl Options {
    /// Returns the defaults: 16 fetches at once and 8 in the background. With pieces of 1 MiB and
    /// 20 ms a fetch, that is 800 and 400 MB/s.
    pub fn new(gate: Vec<OsString>) -> Options {
        let prepare = Arc::new(prepare);
        Options { workers: 16, background: 8, order: Vec::new(), trace: false, gate, rescue: Vec::new(), prepare }
    }
}
