//! The filler: answers the kernel's reads of bytes that are not local, once they are fetched.
//!
//! Unaware of: how bytes are fetched, and in which order.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use super::channel::{GateChannel, Message};
use super::crew::{LOOK_EVERY, STACK_BYTES};
use super::device::{Buffer, Device, Read, wait};
use super::directory::switched;
use super::gate;
use super::own::Own;
use super::start_gate::start_gate;
use super::switches::{Prepare, Switches};
use crate::{Mount, MountError, layer};

/// The time limit for messages to the gate. The gate never waits for anything long.
const SAY_PATIENCE: Duration = Duration::from_secs(10);

thread_local! {
    /// A thread's buffer for answers, which is reused.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The state of the filler of one file.
pub(super) struct Filler {
    directory: PathBuf,
    data: PathBuf,
    size_bytes: u64,
    gate: Vec<OsString>,
    own: Arc<Own>,
    device: Device,
    /// The root of the FUSE file system.
    root: OwnedFd,
    /// The sending half of the connection to the gate.
    line: Mutex<Arc<GateChannel>>,
    /// The descriptors by which a gate notices that a mount is gone. A new gate gets them, too.
    readers: Mutex<Vec<OwnedFd>>,
    /// True if requests may still be read from the device. It is locked while they are: a request
    /// that was read after this became false would never be answered.
    answers: Mutex<bool>,
    /// The gate was told that the file is complete.
    completed: AtomicBool,
    /// False until a mount sets the switches, if earlier mounts depend on them.
    may_complete: AtomicBool,
}

impl Filler {
    pub(super) fn start(
        (directory, data): (&Path, &Path),
        size_bytes: u64,
        gate: Vec<OsString>,
        own: Arc<Own>,
        (device, root): (Device, OwnedFd),
        line: GateChannel,
        may_complete: bool,
    ) -> io::Result<Arc<Filler>> {
        let (heard, said) = line.split()?;
        heard.set_patience(SAY_PATIENCE)?;
        let filler = Arc::new(Filler {
            directory: directory.to_owned(),
            data: data.to_owned(),
            size_bytes,
            gate,
            own,
            device,
            root,
            line: Mutex::new(Arc::new(said)),
            readers: Mutex::new(Vec::new()),
            answers: Mutex::new(true),
            completed: AtomicBool::new(false),
            may_complete: AtomicBool::new(may_complete),
        });
        let its = Arc::clone(&filler);
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || its.serve(heard))?;
        Ok(filler)
    }

    pub(super) fn own(&self) -> &Own {
        &self.own
    }

    /// Mounts the image with this metadata. Each chunk is read from the FUSE file until it is in
    /// the data file.
    pub(super) fn mount(&self, metadata: &Path, prepare: &Prepare) -> Result<Mount, MountError> {
        let path = switched(&self.directory, metadata)
            .map_err(MountError::path(&self.directory, "cannot hold the mounted metadata"))?;
        let switches = Switches::open(metadata, &path, self.size_bytes, prepare)
            .map_err(MountError::path(metadata, "cannot be prepared for lazy reads"))?;
        self.own.set_switches(switches);
        self.may_complete.store(true, SeqCst);
        let mount = layer::erofs_asked(&path, &self.data, &Device::file(self.root.as_fd()))?;
        let watch = gate::watch_reader(mount.descriptor());
        let told = watch.and_then(|watch| self.tell_mounted(watch));
        told.map_err(MountError::lazy("the gate cannot be told about a mount"))?;
        self.own.note_mounted();
        Ok(mount)
    }

    fn tell_mounted(&self, watch: OwnedFd) -> io::Result<()> {
        // If the gate has died, `replace_gate` tells its successor.
        let mut readers = self.readers.lock();
        let _ = self.say(Message::Mounted, &[watch.as_fd()]);
        readers.push(watch);
        Ok(())
    }

    pub(super) fn stop(&self) {
        *self.answers.lock() = false;
        self.own.leave();
        // The gate notices that there is no filler, and makes the kernel resend what was not
        // answered.
        self.line.lock().hang_up();
    }

    fn say(&self, message: Message, passed: &[BorrowedFd]) -> io::Result<()> {
        let line = Arc::clone(&self.line.lock());
        line.send(message, passed)
    }

    /// The filler's thread: answers the kernel and replaces a gate that died, until it is told to
    /// stop.
    fn serve(self: Arc<Filler>, line: GateChannel) {
        let (mut line, mut buffer) = (Some(line), Buffer::new());
        loop {
            let of = [Some(self.device.as_fd()), line.as_ref().map(GateChannel::descriptor)];
            let of: Vec<BorrowedFd> = of.into_iter().flatten().collect();
            let found = wait(&of, LOOK_EVERY).unwrap_or_default();
            let is_spoken = found.get(1).is_some_and(|found| !found.is_empty());
            if !self.answer_all(&mut buffer) {
                return;
            }
            if is_spoken && line.as_mut().is_some_and(|line| is_over(&line.receive())) {
                line = None;
            }
            if self.completed.load(SeqCst) {
                continue;
            }
            if self.may_complete.load(SeqCst) && self.own.is_settled() {
                let _ = self.say(Message::Complete, &[]);
                self.completed.store(true, SeqCst);
                line = None;
            } else if line.is_none() {
                // Without a gate, reads fail if this process dies.
                line = self.replace_gate().ok();
            }
        }
    }

    /// Answers the requests that wait. Returns false if the thread should end: the filler was
    /// stopped, or the device cannot be read any more.
    fn answer_all(self: &Arc<Filler>, buffer: &mut Buffer) -> bool {
        let answers = self.answers.lock();
        if !*answers {
            return false;
        }
        loop {
            match self.device.next(buffer, self.size_bytes) {
                Ok(Some(read)) => self.answer(read),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Answers a read once its bytes are local.
    fn answer(self: &Arc<Filler>, read: Read) {
        let end = read.offset.saturating_add(read.length.into()).min(self.size_bytes);
        let (bytes, its) = (read.offset.min(end)..end, Arc::clone(self));
        let answer = move |came: io::Result<()>| {
            let answered = came.and_then(|()| its.fill(read, (end.saturating_sub(read.offset)) as usize));
            if answered.is_err() {
                // The bytes could not be fetched, or the answer could not be written. If the error
                // cannot be written either, another process answers the read.
                let _ = its.device.fail(read);
            }
        };
        self.own.when_there(vec![bytes; 1], Box::new(answer));
    }

    /// Answers a read whose first `count` bytes are in the file. The bytes after the end of the
    /// file are zeros.
    fn fill(&self, read: Read, count: usize) -> io::Result<()> {
        BYTES.with_borrow_mut(|bytes| {
            bytes.clear();
            bytes.resize(read.length as usize, 0);
            self.own.read(&mut bytes[..count], read.offset)?;
            self.device.fill(read, bytes)
        })
    }

    /// Starts a gate in place of one that died. Reads wait a little longer meanwhile.
    fn replace_gate(&self) -> io::Result<GateChannel> {
        let started = start_gate(&self.directory, &self.gate, self.size_bytes, &self.device, self.root.as_fd());
        let (heard, said) = started?.split()?;
        heard.set_patience(SAY_PATIENCE)?;
        let readers = self.readers.lock();
        *self.line.lock() = Arc::new(said);
        readers.iter().try_for_each(|reader| self.say(Message::Mounted, &[reader.as_fd()]))?;
        Ok(heard)
    }
}

/// Returns true if the other side has closed the connection.
fn is_over(heard: &io::Result<Vec<Message>>) -> bool {
    use io::ErrorKind::{TimedOut, WouldBlock};
    heard.as_ref().is_err_and(|error| !matches!(error.kind(), WouldBlock | TimedOut))
}
