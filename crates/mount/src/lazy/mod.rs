//! Files that can be read before all of their bytes are local: the data file of an EROFS image is
//! filled while jobs read the image.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | starts to fill, takes over from a process that died, mounts, ends |
//! | `switches.rs` | the file that each chunk is read from: the data file or the FUSE file |
//! | `device.rs` | the FUSE file: as much of the FUSE protocol as one file needs |
//! | `filler.rs` | answers reads of the FUSE file |
//! | `own.rs` | the data file, and the reads that wait for its bytes |
//! | `crew.rs` | the threads that fetch |
//! | `outage.rs` | retries while the source of the bytes cannot be reached |
//! | `gate.rs` | the process that keeps the FUSE device open if the filler dies |
//! | `ledger.rs` | decides what is fetched next; pure |
//! | `units.rs` | a set of units (4 KiB blocks) of a file; pure |
//! | `line.rs` | messages between gate and filler |
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

mod crew;
mod device;
mod filler;
mod gate;
mod journal;
mod ledger;
mod line;
mod outage;
mod own;
mod switches;
mod units;
mod whole;

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use larder_sys::{Channel, Door};

use self::device::{Buffer, Device};
use self::filler::Filler;
pub use self::gate::gate;
pub use self::journal::Trace;
use self::line::{Line, Message};
pub(crate) use self::own::Own;
use self::switches::Switches;
pub use self::whole::fill_whole;
use crate::{Fill, Mount, MountError, layer};

/// The size of a unit, in bytes: the smallest part that is filled or traced. It is the size of an
/// EROFS block and of a page.
const UNIT_BYTES: u64 = 4096;
const GATE: &str = "gate2.sock";
const FILLED: &str = "filled";
/// The first part of the name of mounted metadata. The boot ID follows. After a crash of the
/// system, the metadata may be on the disk while the bytes that it refers to are not.
const SWITCHED: &str = "switched-";
const COMPLETE: &str = "complete";
const LOCK: &str = "lock";
/// The longest time that a read waits for a process that answers, or for a remote that cannot be
/// reached.
pub const READ_WAITS_MAX: Duration = Duration::from_secs(60);
/// The time limit for an answer of the gate, which never waits for anything long.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// How a file is filled.
#[derive(Clone, Debug)]
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
}

impl Options {
    /// The defaults: 16 fetches at once and 8 in the background. With pieces of 1 MiB and 20 ms a
    /// fetch, that is 800 and 400 MB/s.
    pub fn new(gate: Vec<OsString>) -> Options {
        Options { workers: 16, background: 8, order: Vec::new(), trace: false, gate, rescue: Vec::new() }
    }
}

/// A data file that is filled while it is read. When this is dropped, reads wait for the next
/// process that fills the file.
pub struct Lazy {
    data: PathBuf,
    directory: PathBuf,
    size_bytes: u64,
    /// `None` if all bytes were local at the start.
    filler: Option<Arc<Filler>>,
    /// The lock of the filler, which is also `None` then.
    _lock: Option<File>,
}

impl Lazy {
    /// Starts to fill the file `data` of `size_bytes`, which is created if it does not exist, by
    /// `fill`. The state is kept in `directory`, which is created as well. If an earlier process
    /// filled the file and its gate is alive, this takes over.
    ///
    /// # Errors
    ///
    /// If another process fills the file, if the kernel or the rights of this process are
    /// insufficient, or if no gate can be started.
    pub fn begin(
        directory: &Path,
        data: &Path,
        size_bytes: u64,
        fill: Arc<dyn Fill>,
        options: &Options,
    ) -> Result<Lazy, MountError> {
        fs::create_dir_all(directory).map_err(MountError::path(directory, "cannot be made"))?;
        let directory = fs::canonicalize(directory).map_err(MountError::path(directory, "cannot be found"))?;
        let lock = if was_completed(&directory, data, size_bytes) { None } else { Some(lock(&directory)?) };
        let own = Own::open(&directory, data, size_bytes, fill, options)?;
        let data = fs::canonicalize(data).map_err(MountError::path(data, "cannot be found"))?;
        let mut lazy = Lazy { data, directory, size_bytes, filler: None, _lock: lock };
        // The process that held the lock before may have completed the file.
        if own.is_complete() {
            lazy._lock = None;
            return Ok(lazy);
        }
        let gate = [&*options.gate, &*options.rescue].concat();
        let (line, device, root) = match lazy.go_on()? {
            Some(all) => all,
            None => lazy.begin_anew(&gate)?,
        };
        own.start(options)?;
        let (directory, data) = (&*lazy.directory, &*lazy.data);
        let filler = Filler::start((directory, data), size_bytes, gate, own, (device, root), line);
        lazy.filler =
            Some(filler.map_err(MountError::lazy("the image cannot be filled, because no thread can be started"))?);
        Ok(lazy)
    }

    /// Mounts the EROFS image whose data file this is.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or if a file has data that is not in chunks of at most 1 MiB.
    pub fn mount(&self, metadata: &Path) -> Result<Mount, MountError> {
        match &self.filler {
            Some(filler) if !self.is_complete() => filler.mount(metadata),
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

    /// The trace of reads so far. It is empty if reads are not traced.
    pub fn trace(&self) -> Trace {
        self.filler.as_ref().map_or_else(Trace::default, |filler| filler.own().trace())
    }

    /// Ends the trace and returns it. From now on the kernel reads local bytes without asking the
    /// filler.
    pub fn finish(&self) -> Trace {
        self.filler.as_ref().map_or_else(Trace::default, |filler| filler.own().end_trace())
    }

    /// Takes over from an earlier filler if its gate is alive.
    fn go_on(&self) -> Result<Option<(Line, Device, OwnedFd)>, MountError> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let path = self.directory.join(GATE);
        let Ok(channel) = Channel::connect(&path, PATIENCE) else { return Ok(None) };
        let mut line = Line::new(channel);
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
    fn begin_anew(&self, gate: &[OsString]) -> Result<(Line, Device, OwnedFd), MountError> {
        let (device, mount) = Device::mount(self.size_bytes)?;
        let root = mount
            .descriptor()
            .try_clone_to_owned()
            .map_err(MountError::lazy("cannot copy the descriptor of a mount"))?;
        let line = start_gate(&self.directory, gate, self.size_bytes, &device, root.as_fd());
        Ok((line.map_err(MountError::lazy("no gate can be started"))?, device, root))
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.filler.iter().for_each(|filler| filler.stop());
    }
}

/// Locks the directory, so that only one process fills the file.
///
/// A killed process holds the lock until its last thread has ended, and a thread may be waiting for
/// the disk. This waits for that, because readers of the file depend on the new process.
fn lock(directory: &Path) -> Result<File, MountError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match try_lock(directory)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() >= until => return Err(others_fill(directory)),
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Tries to lock the directory. Returns `None` if another process fills the file.
fn try_lock(directory: &Path) -> Result<Option<File>, MountError> {
    let path = directory.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(MountError::path(&path, "cannot be made"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(MountError::path(path, "cannot be locked")(error)),
    }
}

fn others_fill(directory: &Path) -> MountError {
    MountError::path(directory.join(LOCK), "another process is filling this image")(io::ErrorKind::WouldBlock.into())
}

/// Returns true if the file `data` is complete and synced, according to the state in `directory`.
/// Then no process needs to fill it.
pub fn is_whole(directory: &Path, data: &Path, size_bytes: u64) -> bool {
    was_completed(directory, data, size_bytes)
}

/// Returns true if the data file is complete and synced.
fn was_completed(directory: &Path, data: &Path, size_bytes: u64) -> bool {
    let said = fs::read_to_string(directory.join(COMPLETE));
    // The note does not hold for a file that was removed and created anew.
    let is_there = || fs::metadata(data).is_ok_and(|data| data.len() == size_bytes);
    said.is_ok_and(|said| said == format!("{size_bytes}\n")) && is_there()
}

/// Removes the note that the data file is complete, because it is filled again.
fn forget_complete(directory: &Path) -> Result<(), MountError> {
    match fs::remove_file(directory.join(COMPLETE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(MountError::path(directory, "cannot be written")(error))
        }
        _ => Ok(()),
    }
}

/// Notes that the data file is complete.
fn note_complete(directory: &Path, size_bytes: u64) -> io::Result<()> {
    let (path, new) = (directory.join(COMPLETE), directory.join("complete.new"));
    fs::write(&new, format!("{size_bytes}\n"))?;
    fs::rename(&new, &path)
}

/// Creates the data file as a sparse file of the given size.
fn make(data: &Path, size_bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(false).open(data)?;
    if file.metadata()?.len() != size_bytes {
        file.set_len(size_bytes)?;
    }
    Ok(())
}

/// Removes the journal and the mounted metadata, because the data file was removed.
fn forget_filled(directory: &Path) -> Result<(), MountError> {
    let at = |what| MountError::path(directory, what);
    match fs::remove_file(directory.join(FILLED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("cannot be written")(error)),
        _ => {}
    }
    forget_switched(directory, "").map_err(at("cannot be written"))
}

/// The path for the mounted copy of this metadata, which holds for one boot. Copies of earlier
/// boots are removed.
fn switched(directory: &Path, metadata: &Path) -> io::Result<PathBuf> {
    let boot = larder_sys::boot_id()?;
    forget_switched(directory, &boot)?;
    let mut hasher = DefaultHasher::new();
    fs::read(metadata)?.hash(&mut hasher);
    Ok(directory.join(format!("{SWITCHED}{boot}-{:016x}", hasher.finish())))
}

/// Removes mounted metadata of other boots; an empty `boot` stands for all. Existing mounts keep
/// working, because they have the file open.
fn forget_switched(directory: &Path, boot: &str) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_prefix(SWITCHED));
        if of.is_some_and(|of| boot.is_empty() || !of.starts_with(boot)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Starts a gate and passes it the device, the root of its file system and the door.
fn start_gate(
    directory: &Path,
    gate: &[OsString],
    size_bytes: u64,
    device: &Device,
    root: BorrowedFd,
) -> io::Result<Line> {
    let path = directory.join(GATE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let door = Door::open(&path)?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let (ours, theirs) = Channel::pair()?;
    let (program, arguments) = gate.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
    let line = Line::new(ours);
    let passed = [device.as_fd(), root, door.descriptor()];
    line.send(Message::Begin(size_bytes, UNIT_BYTES), &passed)?;
    // The gate ends when it is no longer needed. This thread collects its exit status, if this
    // process still exists.
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || child.wait())?;
    Ok(line)
}

/// Mounts the image as `Lazy::mount` does, to try whether that works. A thread answers for the FUSE
/// file until the mount is made. No file of the image may have bytes.
///
/// # Errors
///
/// If it does not work.
pub(crate) fn on_trial(directory: &Path, metadata: &Path, data: &Path) -> Result<Mount, MountError> {
    let (device, mount) = Device::mount(UNIT_BYTES)?;
    let path = directory.join(SWITCHED);
    Switches::open(metadata, &path).map_err(MountError::path(metadata, "cannot be prepared for lazy reads"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = lock(directory.path()).expect("the lock is free");
        assert!(try_lock(directory.path()).expect("is made").is_none());
        let ends = std::thread::spawn(move || {
            std::thread::sleep(50 * PAUSE);
            drop(first);
        });
        lock(directory.path()).expect("the other holder has ended");
        ends.join().expect("ended");
    }
}
