//! The preloaded observer: a library in each of the tool's processes writes what it does into a shared log.
//!
//! The library and the log are files in memory, named by paths under `/proc` that exist as long as this process does:
//! nothing is left behind, nothing in the store can damage a tool, and no path has a space or a colon in it. The
//! library hides itself from the tool's environment. `../../preload/` has its source, `log.h` the form of the log.

mod desks;
mod log;
mod outer;
mod program;
mod self_test;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use larder_spawn::{Command, Destinations};
use larder_sys::Rivalry;

pub(crate) use desks::{Desk, Desks};
#[cfg(feature = "fuzzing")]
pub(crate) use log::whole_bytes;
pub(crate) use log::{decode, placed};
pub(crate) use outer::encode;
pub use outer::{IN_ANY_ORDER, IN_ANY_ORDER_OF_KINDS, OuterLog};
pub use program::{Program, judge};

use crate::{Observed, Observer, Trace};

/// The library, as `build.rs` made it.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/larder-preload.so"));
/// The log never grows beyond this; it is sparse, so only what is written costs memory.
const LOG_BYTES: u64 = 256 << 20;
const LOG_VARIABLE: &[u8] = b"LARDER_PRELOAD_LOG=";
const PRELOAD_VARIABLE: &[u8] = b"LD_PRELOAD=";

/// The library and an empty log, ready for one run.
pub struct PreloadObserver {
    library: File,
    log: File,
}

impl PreloadObserver {
    /// Make both, where that is possible.
    pub fn new() -> io::Result<PreloadObserver> {
        let mut library = larder_sys::memory_file("larder-preload", true)?;
        library.write_all(LIBRARY)?;
        let log = larder_sys::memory_file("larder-log", false)?;
        log.set_len(LOG_BYTES)?;
        let wrapper = larder_sys::own_program().map_or((0, 0), |(_, look)| (look.device, look.inode));
        let began_s = larder_sys::now_coarse_ns().max(0) as u64 / 1_000_000_000;
        log.write_all_at(&log::header(LOG_BYTES, wrapper, began_s), 0)?;
        let observer = PreloadObserver { library, log };
        // Without /proc, or in a process that others may not look into, nobody could open them.
        File::open(path_of(&observer.library))?;
        Ok(observer)
    }

    /// Say that the kernel asks us as well: what it interrupts is to be done again.
    pub(crate) fn kernel_asks(&self) -> io::Result<()> {
        log::kernel_asks(&self.log)
    }

    /// What the library asks a sampler by.
    pub(crate) fn desks(&self) -> io::Result<Desks> {
        Desks::of(&self.log)
    }

    /// Below this are the library and the log, for those who use them.
    pub(crate) fn plumbing() -> Vec<u8> {
        format!("/proc/{}/fd/", larder_sys::process_id()).into_bytes()
    }

    /// The command as it is started: the same but for two variables, which the library takes out again.
    fn prepared(&self, command: &Command) -> Command {
        let mut prepared = command.clone();
        let (library, log) = (larder_sys::volatile_path(&self.library), larder_sys::volatile_path(&self.log));
        load_library(&mut prepared.environment, &library, &log);
        prepared
    }
}

/// Have a program started with `environment` load the library at this path, before what it is told to load anyway, and
/// write to this log.
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
