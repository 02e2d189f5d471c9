//! Reading files before they have arrived: the data file of an EROFS image is filled when it is read.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | beginning, going on after a process died, mounting, the end |
//! | `switches.rs` | where each chunk of a file is read from: the data file, or a file that asks |
//! | `device.rs` | the file that asks: FUSE, as far as it takes |
//! | `filler.rs` | answering what is asked |
//! | `own.rs` | the data file, and the reads that wait for it |
//! | `crew.rs` | the threads that fill |
//! | `outage.rs` | waiting for where bytes come from, if that is away |
//! | `gate.rs` | the process that keeps the FUSE device open when the filler dies |
//! | `ledger.rs` | what is filled next; pure |
//! | `units.rs` | a set of pieces of a file; pure |
//! | `line.rs` | what gate and filler say to each other |
//! | `whole.rs` | all at once, for where files cannot be read before they are there |
//! | `journal.rs` | what was filled, as a file; the trace |
//!
//! ```text
//!   a job reads ─► EROFS ─► its bytes are there:     data file
//!                      └──► they are not there yet:  FUSE file ─► filler ─► Fill
//! ```
//!
//! The metadata that is mounted says for each chunk of a file from which of the two it is read, and only a filler that
//! has written the bytes changes that. So what was not filled is never read from the data file, and FUSE fails its reads
//! if no process answers for it any more.

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

/// What is noted as filled or touched: a block of EROFS, and a page.
const UNIT_BYTES: u64 = 4096;
const GATE: &str = "gate2.sock";
const FILLED: &str = "filled";
/// What the mounted metadata begins with; the system's boot follows, because after a crash of the system it may be on the
/// disk while the bytes are not.
const SWITCHED: &str = "switched-";
const COMPLETE: &str = "complete";
const LOCK: &str = "lock";
/// A read waits at most so long for a process that answers, and for a remote that is away.
pub const READ_WAITS_MAX: Duration = Duration::from_secs(60);
/// A gate that lives answers at once.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// How a file is filled.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many fetch at once what somebody waits for.
    pub workers: usize,
    /// How many beside them what nobody waits for yet, in what is left of the processors; 0 to fetch only what is touched.
    pub background: usize,
    /// What earlier jobs touched, in their order: fetched first.
    pub order: Vec<Range<u64>>,
    /// Go on noting what is touched when all is there, until `finish`.
    pub trace: bool,
    /// The program and its arguments that call `gate` with their standard input.
    pub gate: Vec<OsString>,
    /// What is added to that: the working directory, the program and the arguments of what begins to fill again if nobody
    /// does. Without, reads wait for someone else to begin.
    pub rescue: Vec<OsString>,
}

impl Options {
    /// Sixteen at once, and half as many in the background: pieces of 1 MiB that take 20 ms each come with 800 and 400
    /// MB/s.
    pub fn new(gate: Vec<OsString>) -> Options {
        Options { workers: 16, background: 8, order: Vec::new(), trace: false, gate, rescue: Vec::new() }
    }
}

/// A data file that is filled while it is read. Dropped, nobody fills it: reads wait for the next who does.
pub struct Lazy {
    data: PathBuf,
    directory: PathBuf,
    size_bytes: u64,
    /// None where all was there already.
    filler: Option<Arc<Filler>>,
    /// Nor is it then.
    _lock: Option<File>,
}

impl Lazy {
    /// Watch the file `data` of `size_bytes`, which is made where it is not there, and fill it by `fill`. What belongs
    /// to it is in `directory`, which is made. Where others filled it before and their gate lives, it goes on.
    ///
    /// # Errors
    ///
    /// Where somebody else fills it and goes on with that, the kernel or our rights are not enough, or no gate can be started.
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
        // The one before us may just have completed it.
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
        lazy.filler = Some(filler.map_err(MountError::lazy("nobody can fill: no thread can be started"))?);
        Ok(lazy)
    }

    /// Mount the EROFS image whose data file this is.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or a file does not say for each MiB on which device it is.
    pub fn mount(&self, metadata: &Path) -> Result<Mount, MountError> {
        match &self.filler {
            Some(filler) if !self.is_complete() => filler.mount(metadata),
            _ => layer::erofs(metadata, Some(&self.data)),
        }
    }

    /// Whether all bytes are there.
    pub fn is_complete(&self) -> bool {
        self.filler.as_ref().is_none_or(|filler| filler.own().is_complete())
    }

    /// How many bytes are there.
    pub fn filled_bytes(&self) -> u64 {
        self.filler.as_ref().map_or(self.size_bytes, |filler| filler.own().filled_bytes())
    }

    /// What was touched so far, as long as that is noted.
    pub fn trace(&self) -> Trace {
        self.filler.as_ref().map_or_else(Trace::default, |filler| filler.own().trace())
    }

    /// Note no more what is touched. Returns what was: from now on the kernel reads by itself what is there.
    pub fn finish(&self) -> Trace {
        self.filler.as_ref().map_or_else(Trace::default, |filler| filler.own().end_trace())
    }

    /// Take the place of the filler before, if its gate lives.
    fn go_on(&self) -> Result<Option<(Line, Device, OwnedFd)>, MountError> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let path = self.directory.join(GATE);
        let Ok(channel) = Channel::connect(&path, PATIENCE) else { return Ok(None) };
        let mut line = Line::new(channel);
        let mut hear = || {
            match line.receive()?.first() {
                Some(Message::Hello(size, unit)) if (*size, *unit) == (self.size_bytes, UNIT_BYTES) => {}
                _ => return Err(io::Error::other("it is of another file")),
            }
            line.take::<2>()
        };
        let [device, root] = match hear() {
            // It was just ending.
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => return Ok(None),
            heard => heard.map_err(MountError::lazy("the gate of an earlier run does not answer as it should"))?,
        };
        Ok(Some((line, Device::passed(device), root)))
    }

    /// Have the kernel ask, and start a gate.
    fn begin_anew(&self, gate: &[OsString]) -> Result<(Line, Device, OwnedFd), MountError> {
        let (device, mount) = Device::mount(self.size_bytes)?;
        let root = mount.descriptor().try_clone_to_owned().map_err(MountError::lazy("no descriptor for a mount"))?;
        let line = start_gate(&self.directory, gate, self.size_bytes, &device, root.as_fd());
        Ok((line.map_err(MountError::lazy("no gate can be started"))?, device, root))
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        self.filler.iter().for_each(|filler| filler.stop());
    }
}

/// One who fills at a time. Who was killed has it until the last of its threads is gone, one that waits for the disk
/// among them: that is waited for, since whoever reads what it filled has nobody else.
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

/// None where somebody else fills it.
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
    MountError::path(directory.join(LOCK), "somebody else fills this image")(io::ErrorKind::WouldBlock.into())
}

/// Whether all bytes of the file `data` are there and on the disk, by what is in `directory`: then it needs to be filled
/// by nobody.
pub fn is_whole(directory: &Path, data: &Path, size_bytes: u64) -> bool {
    was_completed(directory, data, size_bytes)
}

/// Whether all of it is there, and on the disk.
fn was_completed(directory: &Path, data: &Path, size_bytes: u64) -> bool {
    let said = fs::read_to_string(directory.join(COMPLETE));
    // What is said of a file that somebody removed holds for none that is made anew.
    let is_there = || fs::metadata(data).is_ok_and(|data| data.len() == size_bytes);
    said.is_ok_and(|said| said == format!("{size_bytes}\n")) && is_there()
}

/// Of a file that is made anew, or filled again.
fn forget_complete(directory: &Path) -> Result<(), MountError> {
    match fs::remove_file(directory.join(COMPLETE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(MountError::path(directory, "cannot be written")(error))
        }
        _ => Ok(()),
    }
}

/// Note that it is.
fn note_complete(directory: &Path, size_bytes: u64) -> io::Result<()> {
    let (path, new) = (directory.join(COMPLETE), directory.join("complete.new"));
    fs::write(&new, format!("{size_bytes}\n"))?;
    fs::rename(&new, &path)
}

/// The file, without blocks where nothing is yet.
fn make(data: &Path, size_bytes: u64) -> io::Result<()> {
    let file = File::options().write(true).create(true).truncate(false).open(data)?;
    if file.metadata()?.len() != size_bytes {
        file.set_len(size_bytes)?;
    }
    Ok(())
}

/// What is no longer there is not filled.
fn forget_filled(directory: &Path) -> Result<(), MountError> {
    let at = |what| MountError::path(directory, what);
    match fs::remove_file(directory.join(FILLED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("cannot be written")(error)),
        _ => {}
    }
    forget_switched(directory, "").map_err(at("cannot be written"))
}

/// Where the metadata is that is mounted while it is filled: a copy of these, made since the system began. What is left
/// of earlier boots is removed.
fn switched(directory: &Path, metadata: &Path) -> io::Result<PathBuf> {
    let boot = larder_sys::boot_id()?;
    forget_switched(directory, &boot)?;
    let mut hasher = DefaultHasher::new();
    fs::read(metadata)?.hash(&mut hasher);
    Ok(directory.join(format!("{SWITCHED}{boot}-{:016x}", hasher.finish())))
}

/// Remove what was mounted while it was filled, but for what was made in this boot. It stays for mounts that have it.
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

/// Start a gate, and give it all that it holds.
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
    // It ends when it is not needed; whoever started it is not there any more then, or does not wait.
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || child.wait())?;
    Ok(line)
}

/// The image in these metadata, mounted as `Lazy::mount` does, by a thread that answers for it until that is done: to try
/// whether it is possible. None of its files may have bytes.
///
/// # Errors
///
/// If it is not.
pub(crate) fn on_trial(directory: &Path, metadata: &Path, data: &Path) -> Result<Mount, MountError> {
    let (device, mount) = Device::mount(UNIT_BYTES)?;
    let path = directory.join(SWITCHED);
    Switches::open(metadata, &path).map_err(MountError::path(metadata, "cannot be filled when read"))?;
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
        let first = lock(directory.path()).expect("nobody has it");
        assert!(try_lock(directory.path()).expect("is made").is_none());
        let ends = std::thread::spawn(move || {
            std::thread::sleep(50 * PAUSE);
            drop(first);
        });
        lock(directory.path()).expect("it ended");
        ends.join().expect("ended");
    }
}
