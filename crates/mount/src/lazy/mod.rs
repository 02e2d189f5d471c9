//! Reading files before they have arrived: the data file of an EROFS image is filled when it is touched.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | beginning, going on after somebody was killed, mounting, the end |
//! | `gate.rs` | the process that holds reads back |
//! | `filler.rs` | filling what the gate holds back |
//! | `crew.rs` | the threads that fill |
//! | `own.rs` | filling for readers that ask this process itself, which needs no gate |
//! | `ledger.rs` | what is filled next; pure |
//! | `units.rs` | a set of pieces of a file; pure |
//! | `line.rs` | what gate and filler say to each other |
//! | `whole.rs` | all at once, for where reads cannot be held back |
//! | `journal.rs` | what was filled and what was touched, as files; the trace |
//!
//! ```text
//!   a job reads ─► EROFS ─► data file ─► the kernel asks ─► gate ─► filler ─► Fill
//!        ◄──────────────────────────────── it goes on ◄──── filled ◄── written
//! ```
//!
//! Two processes hold the kernel's questions open: when the last one closes them all reads go on, and would see zeros.
//! Whoever of the two is killed, the other holds them still. A killed filler comes back (`begin` finds the gate), and
//! reads that waited are filled then; a killed gate is started again by the filler, and reads that waited fail. Only
//! where both are killed at the same instant what was not filled could be read as zeros: `docs/mounting.md` says what
//! stands against that.

mod crew;
mod filler;
mod gate;
mod journal;
mod ledger;
mod line;
mod own;
mod units;
mod whole;

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_sys::{Answer, Channel, Door, Touches};

use self::filler::Filler;
pub use self::gate::gate;
use self::journal::Journal;
pub use self::journal::Trace;
use self::line::{Line, Message};
pub(crate) use self::own::Own;
use self::units::Units;
pub use self::whole::fill_whole;
use crate::{Fill, Mount, MountError, layer};

/// What is noted as filled or touched: a block of EROFS, and a page.
const UNIT_BYTES: u64 = 4096;
const GATE: &str = "gate.sock";
const FILLED: &str = "filled";
const TOUCHED: &str = "touched";
const COMPLETE: &str = "complete";
const LOCK: &str = "lock";
/// A gate that lives answers at once; so does the kernel.
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
}

impl Options {
    /// Sixteen at once, and half as many in the background: pieces of 1 MiB that take 20 ms each come with 800 and 400
    /// MB/s.
    pub fn new(gate: Vec<OsString>) -> Options {
        Options { workers: 16, background: 8, order: Vec::new(), trace: false, gate }
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

/// What gate and filler both hold, beside what the kernel asks through.
struct Held {
    quiet: OwnedFd,
    filled: Journal,
    touched: Journal,
}

/// A line to a gate with what came over it already, and what both hold.
type Begun = ((Line, Vec<Message>), (Touches, Held));

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
        // The one before us may just have completed it.
        let is_complete = size_bytes == 0 || was_completed(&directory, data, size_bytes);
        if !data.exists() {
            // What was filled went with it.
            let _ = fs::remove_file(directory.join(FILLED));
        }
        if !is_complete {
            forget_complete(&directory)?;
        }
        make(data, size_bytes).map_err(MountError::path(data, "cannot be made"))?;
        let data = fs::canonicalize(data).map_err(MountError::path(data, "cannot be found"))?;
        let mut lazy = Lazy { data, directory, size_bytes, filler: None, _lock: lock };
        if is_complete {
            lazy._lock = None;
            return Ok(lazy);
        }
        let (line, held) = match lazy.go_on()? {
            Some(all) => all,
            None => lazy.begin_anew(options)?,
        };
        let filler = Filler::start(&lazy.directory, lazy.size_bytes, line, held, fill, options);
        lazy.filler = Some(filler.map_err(MountError::lazy("nobody can fill: no thread can be started"))?);
        Ok(lazy)
    }

    /// Mount the EROFS image whose data file this is.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses.
    pub fn mount(&self, metadata: &Path) -> Result<Mount, MountError> {
        let mount = layer::erofs(metadata, Some(&self.data))?;
        if let Some(filler) = &self.filler {
            let watch = gate::watch_reader(mount.descriptor());
            let told = watch.and_then(|watch| filler.tell_mounted(watch));
            told.map_err(MountError::lazy("the gate cannot be told of a mount"))?;
        }
        Ok(mount)
    }

    /// Whether all bytes are there.
    pub fn is_complete(&self) -> bool {
        self.filler.as_ref().is_none_or(|filler| filler.is_complete())
    }

    /// How many bytes are there.
    pub fn filled_bytes(&self) -> u64 {
        self.filler.as_ref().map_or(self.size_bytes, |filler| filler.filled_bytes())
    }

    /// What was touched so far.
    ///
    /// # Errors
    ///
    /// Where the journal of it cannot be read.
    pub fn trace(&self) -> Result<Trace, MountError> {
        let units = Units::none(self.size_bytes, UNIT_BYTES);
        let path = self.directory.join(TOUCHED);
        let file = match File::open(&path) {
            // It was complete from the start.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Trace::default()),
            opened => opened.map_err(MountError::path(&path, "cannot be opened"))?,
        };
        let entries = Journal::passed(file).units().map_err(MountError::path(&path, "cannot be read"))?;
        Ok(Trace::of(&entries, &units))
    }

    /// Note no more what is touched: once all is there, nobody is asked any more.
    pub fn finish(&self) {
        self.filler.iter().for_each(|filler| filler.finish());
    }

    /// Take the place of who filled before, where their gate lives.
    fn go_on(&self) -> Result<Option<Begun>, MountError> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let path = self.directory.join(GATE);
        let Ok(channel) = Channel::connect(&path, PATIENCE) else { return Ok(None) };
        let mut line = Line::new(channel);
        let mut hear = || {
            let messages = line.receive()?;
            match messages.first() {
                Some(Message::Hello(size, unit)) if (*size, *unit) == (self.size_bytes, UNIT_BYTES) => {}
                _ => return Err(io::Error::other("it is of another file")),
            }
            let [group, quiet, filled, touched] = line.take()?;
            let (filled, touched) = (Journal::passed(filled.into()), Journal::passed(touched.into()));
            Ok(((Touches::passed(group), Held { quiet, filled, touched }), messages[1..].to_vec()))
        };
        let heard = match hear() {
            // It was just ending.
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => return Ok(None),
            heard => heard,
        };
        let (held, came) =
            heard.map_err(MountError::lazy("the gate of an earlier run does not answer as it should"))?;
        Ok(Some(((line, came), held)))
    }

    /// Watch the file, and start a gate.
    fn begin_anew(&self, options: &Options) -> Result<Begun, MountError> {
        let unable = "reads cannot be held back (Linux 6.14 and the superuser are needed)";
        let touches = Touches::new().map_err(MountError::lazy(unable))?;
        let watched = File::open(&self.data).and_then(|file| touches.watch(file));
        watched.map_err(MountError::lazy(unable))?;
        let quiet = quiet_file(&touches, &self.data).map_err(MountError::lazy(unable))?;
        let journal = |name| {
            let path = self.directory.join(name);
            let opened = Journal::open(&path, self.size_bytes, UNIT_BYTES);
            opened.map(|(journal, _)| journal).map_err(MountError::path(path, "cannot be written"))
        };
        let held = Held { quiet, filled: journal(FILLED)?, touched: journal(TOUCHED)? };
        let line = start_gate(&self.directory, &options.gate, self.size_bytes, &touches, &held);
        Ok(((line.map_err(MountError::lazy("no gate can be started"))?, Vec::new()), (touches, held)))
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

/// The file as the kernel opens it for an event: nobody is asked about what goes through it.
fn quiet_file(touches: &Touches, data: &Path) -> io::Result<OwnedFd> {
    let file = File::open(data)?;
    std::thread::scope(|scope| {
        let read = scope.spawn(|| file.read_at(&mut [0], 0));
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(touch) = touches.take()?.into_iter().next() {
                touches.answer(touch.file.as_raw_fd(), Answer::Fail)?;
                return Ok(touch.file);
            }
            if read.is_finished() {
                return Err(io::Error::other("a read went on unasked"));
            }
            std::thread::sleep(PAUSE);
        }
        touches.watch_nothing()?;
        Err(io::Error::from(io::ErrorKind::TimedOut))
    })
}

/// Start a gate, and give it all that it holds.
fn start_gate(
    directory: &Path,
    gate: &[OsString],
    size_bytes: u64,
    touches: &Touches,
    held: &Held,
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
    let passed = [
        touches.as_fd(),
        held.quiet.as_fd(),
        door.descriptor(),
        held.filled.file().as_fd(),
        held.touched.file().as_fd(),
    ];
    line.send(Message::Begin(size_bytes, UNIT_BYTES), &passed)?;
    // It ends when it is not needed; whoever started it is not there any more then, or does not wait.
    std::thread::Builder::new().stack_size(64 << 10).spawn(move || child.wait())?;
    Ok(line)
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
