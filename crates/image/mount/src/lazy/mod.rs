//! Files that can be read before all of their bytes are local: the data file of an EROFS image is
//! filled while jobs read the image.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | starts to fill, takes over from a process that died, mounts, ends |
//! | `options.rs` | how a file is filled |
//! | `directory.rs` | the state on the disk: the lock, and the note that the file is complete |
//! | `switches.rs` | the file that each chunk is read from: the data file or the FUSE file |
//! | `device.rs` | the FUSE file: as much of the FUSE protocol as one file needs |
//! | `filler.rs` | answers reads of the FUSE file |
//! | `own.rs` | the data file, and the reads that wait for its bytes |
//! | `crew.rs` | the threads that fetch |
//! | `outage.rs` | retries while the source of the bytes cannot be reached |
//! | `gate.rs` | the process that keeps the FUSE device open if the filler dies |
//! | `start_gate.rs` | starts a gate |
//! | `fill_queue.rs` | decides what is fetched next; pure |
//! | `units.rs` | a set of units (4 KiB blocks) of a file; pure |
//! | `channel.rs` | messages between gate and filler |
//! | `whole.rs` | fetches a whole data file before it is mounted |
//! | `journal.rs` | the list of filled units as a file; the trace of reads |
//!
//! ```text
//!   a job reads ─► EROFS ─► its bytes are local:      data file
//!                      └──► they are not local yet:   FUSE file ─► filler ─► Fill
//! ```
//!
//! For each chunk of a file, the mounted metadata says which of the two files it is read from. Only
//! a filler that has written the bytes changes that. So bytes that were not filled are never read
//! from the data file. If no process answers for the FUSE file any more, the kernel fails its
//! reads.
//!
//! Unaware of: packs, remotes, which image it is.

mod channel;
mod crew;
mod device;
mod directory;
mod fill_queue;
mod filler;
mod gate;
mod journal;
mod options;
mod outage;
mod own;
mod start_gate;
mod switches;
mod units;
mod whole;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Instant;

use larder_sys::{Channel, peer_may_mount};

use self::channel::{GateChannel, Message};
use self::device::{Buffer, Device};
use self::directory::{PATIENCE, PAUSE, SWITCHED, lock, try_lock, was_completed};
use self::filler::Filler;
pub use self::gate::{READ_WAITS_MAX, gate};
pub use self::journal::Trace;
pub use self::options::Options;
pub(crate) use self::own::Own;
use self::start_gate::{GATE, start_gate};
use self::switches::Switches;
pub use self::switches::{Prepare, prepare};
use self::units::UNIT_BYTES;
pub use self::whole::fill_whole;
use crate::{Fill, Mount, MountError, layer};

/// A data file that is filled while it is read. When this is dropped, reads wait for the next
/// process that fills the file.
pub struct Lazy {
    data: PathBuf,
    directory: PathBuf,
    size_bytes: u64,
    /// `None` if all bytes were local at the start, and no mount asks for them.
    filler: Option<Arc<Filler>>,
    /// The bytes were local at the start, and mounts of an earlier process ask for them.
    took_over: bool,
    prepare: Prepare,
    /// The lock of the filler, which is also `None` then.
    _lock: Option<File>,
}

impl Lazy {
    /// Starts to fill the file `data` of `size_bytes`, which is created if it does not exist, by
    /// `fill`. The state is kept in `directory`, which is created as well. If an earlier process
    /// filled the file and its gate is alive, this takes over. Fails if another process fills the
    /// file, if the kernel or the rights of this process are insufficient, or if no gate can be
    /// started.
    pub fn begin(
        directory: &Path,
        data: &Path,
        size_bytes: u64,
        fill: Arc<dyn Fill>,
        options: &Options,
    ) -> Result<Lazy, MountError> {
        fs::create_dir_all(directory).map_err(MountError::path(directory, "cannot be made"))?;
        let directory = fs::canonicalize(directory).map_err(MountError::path(directory, "cannot be found"))?;
        let lock = match was_completed(&directory, data, size_bytes) {
            true => try_lock(&directory)?,
            false => Some(lock(&directory)?),
        };
        let own = Own::open(&directory, data, size_bytes, fill, options)?;
        let data = fs::canonicalize(data).map_err(MountError::path(data, "cannot be found"))?;
        let prepare = Arc::clone(&options.prepare);
        let mut lazy = Lazy { data, directory, size_bytes, filler: None, took_over: false, prepare, _lock: lock };
        let gate = [&*options.gate, &*options.rescue].concat();
        // A gate is alive although the file is complete if its filler died while reads were traced.
        // Then its mounts still ask for chunks.
        let earlier = if lazy._lock.is_some() { lazy.go_on()? } else { None };
        lazy.took_over = earlier.is_some() && own.is_complete();
        // The process that held the lock before may have completed the file.
        if own.is_complete() && !lazy.took_over {
            lazy._lock = None;
            return Ok(lazy);
        }
        let (line, device, root) = match earlier {
            Some(all) => all,
            None => lazy.begin_anew(&gate)?,
        };
        own.start(options)?;
        let (directory, data) = (&*lazy.directory, &*lazy.data);
        let filler = Filler::start((directory, data), size_bytes, gate, own, (device, root), line, !lazy.took_over);
        lazy.filler =
            Some(filler.map_err(MountError::lazy("the image cannot be filled, because no thread can be started"))?);
        Ok(lazy)
    }

    /// Mounts the EROFS image whose data file this is. Fails if the kernel refuses, or if a file
    /// has data that is not in chunks of at most 1 MiB.
    pub fn mount(&self, metadata: &Path) -> Result<Mount, MountError> {
        match &self.filler {
            Some(filler) if self.took_over || !self.is_complete() => filler.mount(metadata, &self.prepare),
            _ => layer::erofs(metadata, Some(&self.data)),
        }
    }

    /// Returns true if all bytes are local.
    pub fn is_complete(&self) -> bool {
        self.filler.as_ref().is_none_or(|filler| filler.own().is_complete())
    }

    /// The number of bytes that are local.
    pub fn filled_bytes(&self) -> u64 {
        self.filler.as_ref().map_or(self.size_bytes, |filler| filler.own().filled_bytes())
    }

    /// Returns the trace of reads so far. It is empty if reads are not traced.
    pub fn trace(&self) -> Trace {
        self.filler.as_ref().map_or_else(Trace::default, |filler| filler.own().trace())
    }

    /// Ends the trace and returns it. From now on the kernel reads local bytes without asking the
    /// filler.
    pub fn finish(&self) -> Trace {
        self.filler.as_ref().map_or_else(Trace::default, |filler| filler.own().end_trace())
    }

    /// Takes over from an earlier filler if its gate is alive.
    fn go_on(&self) -> Result<Option<(GateChannel, Device, OwnedFd)>, MountError> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let Some(channel) = to_gate(&self.directory.join(GATE)) else { return Ok(None) };
        let mut line = GateChannel::new(channel);
        let mut hear = || {
            match line.receive()?.first() {
                Some(Message::Hello(size, unit)) if (*size, *unit) == (self.size_bytes, UNIT_BYTES) => {}
                _ => return Err(io::Error::other("the gate is for another file")),
            }
            line.take::<2>()
        };
        let [device, root] = match hear() {
            // The gate was just ending.
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => return Ok(None),
            heard => heard.map_err(MountError::lazy("the gate of an earlier run gave an unexpected answer"))?,
        };
        Ok(Some((line, Device::passed(device), root)))
    }

    /// Mounts a new FUSE file and starts a gate for it.
    fn begin_anew(&self, gate: &[OsString]) -> Result<(GateChannel, Device, OwnedFd), MountError> {
        let (device, mount) = Device::mount(self.size_bytes)?;
        let root = mount
            .descriptor()
            .try_clone_to_owned()
            .map_err(MountError::lazy("cannot copy the descriptor of a mount"))?;
        let line = start_gate(&self.directory, gate, self.size_bytes, &device, root.as_fd());
        Ok((line.map_err(MountError::lazy("no gate can be started"))?, device, root))
    }
}

/// Connects to the gate at this path, if there is one. Another process that listens there, and may
/// not mount, is no gate: it would pass a device for which it answers itself.
fn to_gate(path: &Path) -> Option<Channel> {
    let until = Instant::now() + PATIENCE;
    loop {
        let channel = Channel::connect(path, PATIENCE).ok()?;
        match peer_may_mount(&channel) {
            Ok(may) => return may.then_some(channel),
            // The process that opened the socket is gone, and the gate that it started does not
            // listen itself yet.
            Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.filler.iter().for_each(|filler| filler.stop());
    }
}

/// Returns true if the file `data` is complete and synced, according to the state in `directory`.
/// Then no process needs to fill it.
pub fn is_whole(directory: &Path, data: &Path, size_bytes: u64) -> bool {
    was_completed(directory, data, size_bytes)
}

/// Mounts the image as `Lazy::mount` does, to try whether that works. A thread answers for the FUSE
/// file until the mount is made. No file of the image may have bytes. Fails if it does not work.
pub(crate) fn on_trial(directory: &Path, metadata: &Path, data: &Path) -> Result<Mount, MountError> {
    let (device, mount) = Device::mount(UNIT_BYTES)?;
    let path = directory.join(SWITCHED);
    let prepare = Options::new(Vec::new()).prepare;
    Switches::open(metadata, &path, 0, &prepare)
        .map_err(MountError::path(metadata, "cannot be prepared for lazy reads"))?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answer = || {
            let mut buffer = Buffer::new();
            while !is_over.load(SeqCst) {
                let answered = device::wait(&[device.as_fd()], 10 * PAUSE).map(drop);
                if answered.and_then(|()| device.next(&mut buffer, UNIT_BYTES)).is_err() {
                    return;
                }
            }
        };
        scope.spawn(answer);
        let layer = layer::erofs_asked(&path, data, &Device::file(mount.descriptor()));
        is_over.store(true, SeqCst);
        layer
    })
}
