//! The preloaded observer: a library in each process of the tool writes events into a shared log.
//!
//! The library and the log are files without a name, in memory if the system allows it. Other
//! processes open them by paths below `/proc`. These paths exist only as long as this process does,
//! and contain neither a space nor a colon. So nothing is left behind, and nothing in the store can
//! damage a tool.
//!
//! The library removes its variables from the tool's environment. Its source is in
//! `crates/cache/observe/preload/`, and `log.h` there describes the form of the log.
//!
//! Unaware of: what follows from an event, which programs are trusted.

mod log;
mod outer;
mod program;
mod sample_slots;
mod self_test;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use larder_spawn::{Command, Destinations};
use larder_sys::Rivalry;

pub use outer::OuterLog;
pub use program::{Program, dynamic_names, inspect_program};
pub(crate) use sample_slots::{SampleSlot, SampleSlots};

use crate::{Observed, Observer, Trace};

/// The library, as `build.rs` compiled it.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/larder-preload.so"));
/// The size of the log. The file is sparse, so only what is written needs memory.
const LOG_BYTES: u64 = 256 << 20;
const LOG_VARIABLE: &[u8] = b"LARDER_PRELOAD_LOG=";
const PRELOAD_VARIABLE: &[u8] = b"LD_PRELOAD=";

/// The preloaded observer for one run: the library and an empty log.
pub struct PreloadObserver {
    library: File,
    log: File,
}

impl PreloadObserver {
    /// Creates both files.
    pub fn new() -> io::Result<PreloadObserver> {
        let mut library = larder_sys::memory_file("larder-preload", true)?;
        library.write_all(LIBRARY)?;
        let log = larder_sys::memory_file("larder-log", false)?;
        log.set_len(LOG_BYTES)?;
        let wrapper = larder_sys::own_program().map_or((0, 0), |(_, stat)| stat.file_id());
        let began_s = larder_sys::now_coarse_ns().max(0) as u64 / 1_000_000_000;
        log.write_all_at(&log::header(LOG_BYTES, wrapper, began_s), 0)?;
        let observer = PreloadObserver { library, log };
        // This fails without `/proc`, or if other processes may not read this one. Then no process
        // could load the library. In a new PID namespace that still has the `/proc` of its parent,
        // the path leads to a file of another process.
        let reached = larder_sys::fstat(&File::open(path_of(&observer.library))?)?;
        let made = larder_sys::fstat(&observer.library)?;
        if reached.file_id() != made.file_id() {
            return Err(io::Error::other("/proc belongs to another PID namespace"));
        }
        Ok(observer)
    }

    /// Tells the library that the kernel asks us as well, so that it repeats calls that a signal
    /// interrupts.
    pub(crate) fn kernel_asks(&self) -> io::Result<()> {
        log::kernel_asks(&self.log)
    }

    /// Returns the part of the log by which processes ask for a sample.
    pub(crate) fn sample_slots(&self) -> io::Result<SampleSlots> {
        SampleSlots::of(&self.log)
    }

    /// Returns the directory of the library and the log, as a prefix of their paths.
    pub(crate) fn own_directory() -> Vec<u8> {
        format!("/proc/{}/fd/", larder_sys::process_id()).into_bytes()
    }

    /// Returns the command with the library's two variables added. The library removes them again.
    fn prepared(&self, command: &Command) -> Command {
        let mut prepared = command.clone();
        let (library, log) = (larder_sys::volatile_path(&self.library), larder_sys::volatile_path(&self.log));
        load_library(&mut prepared.environment, &library, &log);
        prepared
    }
}

/// Makes a program with this `environment` load the library at this path, before any other library
/// of `LD_PRELOAD`, and write to this log.
fn load_library(environment: &mut Vec<Vec<u8>>, library: &[u8], log: &[u8]) {
    let mut preload = [PRELOAD_VARIABLE, library].concat();
    match environment.iter_mut().find(|variable| variable.starts_with(PRELOAD_VARIABLE)) {
        Some(old) => {
            preload.push(b':');
            preload.extend_from_slice(&old[PRELOAD_VARIABLE.len()..]);
            *old = preload;
        }
        None => environment.push(preload),
    }
    environment.push([LOG_VARIABLE, log].concat());
}

fn path_of(file: &File) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(larder_sys::volatile_path(file)).into()
}

impl Observer for PreloadObserver {
    fn name(&self) -> larder_model::Observer {
        larder_model::Observer::Preload
    }

    fn run(&self, command: &Command, to: &Destinations, rival: Rivalry) -> io::Result<Observed> {
        let finished = larder_spawn::run_beside(&self.prepared(command), to, rival)?;
        if finished.outlived {
            log::close(&self.log);
        }
        let trace = log::read(&self.log).unwrap_or(Trace { incomplete: true, ..Trace::default() });
        Ok(Observed { finished, trace })
    }
}
