//! Converts the tracer's steps to lines of a record. A process that has just executed a program is
//! stopped until it has been examined, so only that is done meanwhile; the line is written after it
//! continues.
//!
//! Unaware of: what is made of the lines.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_sys::{ChildEnd, Step, Tracer};

use crate::Redact;
use crate::process_reader::{ProcessReader, Program};
use crate::schema::Event;

/// How often lines are flushed to the file, even if no further events come.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// How a traced command ended.
pub(crate) struct Followed {
    pub(crate) end: ChildEnd,
    /// The largest peak memory of its processes, in bytes.
    pub(crate) peak_bytes: u64,
    /// The error because of which not all lines were written.
    pub(crate) unwritten: Option<io::Error>,
}

/// Traces the command to its end, even if lines cannot be written. Calls `count` with the number of
/// processes so far.
pub(crate) fn follow(
    tracer: &mut Tracer,
    lines: File,
    began: Instant,
    redact: &Redact,
    count: &mut dyn FnMut(u64),
) -> io::Result<Followed> {
    let mut follower = Follower {
        lines: Lines::into(lines),
        began,
        looks: ProcessReader::new(redact)?,
        directories: HashMap::new(),
        peaks: HashMap::new(),
    };
    let command = tracer.pid;
    follower.executed(tracer, command);
    let mut processes = 1;
    while let Some(step) = tracer.step()? {
        match step {
            Step::Forked { parent, child } => {
                processes += 1;
                count(processes);
                follower.forked(parent, child);
            }
            Step::Executed { pid } => follower.executed(tracer, pid),
            Step::Ending { pid } => {
                follower.peaks.extend(follower.looks.peak_bytes(pid).map(|peak| (pid, peak)));
            }
            Step::Ended { pid, end, usage, threads } => {
                follower.ended(pid, end, usage, threads);
                if pid == command {
                    let unwritten = follower.lines.end().err();
                    return Ok(Followed { end, peak_bytes: usage.peak_bytes, unwritten });
                }
            }
        }
    }
    let _ = follower.lines.end();
    Err(io::Error::other("the tracer lost the command before it ended"))
}

struct Follower<'a> {
    lines: Lines,
    began: Instant,
    looks: ProcessReader<'a>,
    /// The working directory of each process, if it is known.
    directories: HashMap<i32, Rc<[u8]>>,
    /// The peak memory of each process that is about to end, in bytes.
    peaks: HashMap<i32, u64>,
}

impl Follower<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn forked(&mut self, parent: i32, pid: i32) {
        if let Some(directory) = self.directories.get(&parent).map(Rc::clone) {
            self.directories.insert(pid, directory);
        }
        self.lines.write(&Event::Fork { t: self.now(), parent, pid });
    }

    fn executed(&mut self, tracer: &mut Tracer, pid: i32) {
        let t = self.now();
        let program = self.looks.program(pid);
        tracer.go_on();
        let Program { exe, directory } = program;
        let is_new = self.directories.get(&pid).is_none_or(|known| **known != directory[..]);
        let cwd = is_new.then(|| String::from_utf8_lossy(&directory).into_owned());
        if is_new {
            self.directories.insert(pid, directory.into());
        }
        let argv = self.looks.arguments();
        self.lines.write(&Event::Exec { t, pid, exe: String::from_utf8_lossy(&exe).into_owned(), argv, cwd });
    }

    fn ended(&mut self, pid: i32, end: ChildEnd, usage: larder_sys::Usage, threads: u32) {
        self.directories.remove(&pid);
        let peak = self.peaks.remove(&pid);
        self.lines.write(&Event::Exit { t: self.now(), pid, code: exit_code(end), usage: usage.into(), peak, threads });
    }
}

/// Buffers lines, and flushes them at least every [`FLUSH_EVERY`].
struct Lines {
    buffer: Arc<Mutex<BufWriter<File>>>,
    /// The first error. Nothing is written after it.
    failed: Option<io::Error>,
    stop: Sender<()>,
    flusher: JoinHandle<()>,
}

impl Lines {
    fn into(file: File) -> Lines {
        let buffer = Arc::new(Mutex::new(BufWriter::with_capacity(1 << 16, file)));
        let ((stop, stopped), lines) = (channel::<()>(), Arc::clone(&buffer));
        let flusher = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(FLUSH_EVERY) {
                // An error will be reported with the next line.
                let _ = lines.lock().unwrap_or_else(PoisonError::into_inner).flush();
            }
        });
        Lines { buffer, failed: None, stop, flusher }
    }

    fn write(&mut self, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_writer(&mut *buffer, event).map_err(io::Error::from);
        self.failed = written.and_then(|()| buffer.write_all(b"\n")).err();
    }

    fn end(self) -> io::Result<()> {
        drop(self.stop);
        let _ = self.flusher.join();
        let flushed = self.buffer.lock().unwrap_or_else(PoisonError::into_inner).flush();
        self.failed.map_or(flushed, Err)
    }
}

/// Returns the exit code, as a shell reports it.
pub(crate) fn exit_code(end: ChildEnd) -> i32 {
    match end {
        ChildEnd::Exited(code) => i32::from(code),
        ChildEnd::Signalled(signal) => 128 + signal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_file_also_when_nothing_follows() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut lines = Lines::into(file.reopen().expect("opens"));
        lines.write(&Event::Fork { t: 1, parent: 2, pid: 3 });
        let read = || std::fs::read_to_string(file.path()).expect("reads");
        let began = Instant::now();
        while read().is_empty() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(read().ends_with("}\n"), "{}", read());
        lines.write(&Event::Fork { t: 2, parent: 2, pid: 4 });
        lines.end().expect("writes");
        assert_eq!(read().lines().count(), 2);
    }

    #[test]
    fn ends() {
        assert_eq!([exit_code(ChildEnd::Exited(3)), exit_code(ChildEnd::Signalled(15))], [3, 143]);
    }
}
