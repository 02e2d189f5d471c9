//! Being asked before a file's bytes are read: fanotify's events before access, of Linux 6.14.
//!
//! Whoever reads waits until it is answered. When the last descriptor of a group is closed, everybody who waits is let
//! through: whoever must never let an unfilled range be seen has somebody else hold one as well.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

const PRE_ACCESS: u64 = 0x0010_0000;
const INFO_RANGE: u8 = 6;
const METADATA_BYTES: usize = 24;
/// Some hundred events; the kernel gives as many as fit.
const BUFFER_BYTES: usize = 16 << 10;

/// A group of marks, and the events that wait for an answer.
pub struct Touches(OwnedFd);

/// Somebody is about to read.
#[derive(Debug)]
pub struct Touch {
    /// The file, as nobody else has it open: reading and writing through it asks nobody.
    pub file: OwnedFd,
    /// Who reads, or the kernel for somebody.
    pub pid: i32,
    /// The first byte.
    pub offset: u64,
    /// How many; `None` where the kernel does not say.
    pub length: Option<u64>,
}

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes on.
    GoOn,
    /// It fails with EIO.
    Fail,
}

impl Touches {
    /// A new group. Only the superuser may have one.
    pub fn new() -> io::Result<Touches> {
        let flags = libc::FAN_CLASS_PRE_CONTENT
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_UNLIMITED_QUEUE
            | libc::FAN_UNLIMITED_MARKS;
        let opening = libc::O_RDWR | libc::O_LARGEFILE | libc::O_CLOEXEC;
        // SAFETY: takes two numbers.
        let fd = unsafe { libc::fanotify_init(flags, opening as _) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else has.
        Ok(Touches(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// A group that somebody else made and passed.
    pub fn passed(group: OwnedFd) -> Touches {
        Touches(group)
    }

    /// Ask before this file is read, from now on.
    pub fn watch(&self, file: impl AsFd) -> io::Result<()> {
        self.mark(libc::FAN_MARK_ADD, PRE_ACCESS, Some(file.as_fd()))
    }

    /// Ask no more about any file.
    pub fn watch_nothing(&self) -> io::Result<()> {
        self.mark(libc::FAN_MARK_FLUSH, 0, None)
    }

    fn mark(&self, what: u32, mask: u64, file: Option<BorrowedFd>) -> io::Result<()> {
        let file = file.map_or(libc::AT_FDCWD, |file| file.as_raw_fd());
        // SAFETY: numbers, and no path: the descriptor itself is meant.
        let done = unsafe { libc::fanotify_mark(self.0.as_raw_fd(), what, mask, file, std::ptr::null()) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// All events that are there; none when none is.
    pub fn take(&self) -> io::Result<Vec<Touch>> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let count = match rustix::io::read(&self.0, buffer.as_mut_slice()) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Vec::new()),
            done => done?,
        };
        let mut touches = Vec::new();
        let mut left = &buffer[..count];
        while left.len() >= METADATA_BYTES {
            let length = number(left, 0, 4) as usize;
            if length < METADATA_BYTES || length > left.len() {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            touches.extend(touch(&left[..length]));
            left = &left[length..];
        }
        Ok(touches)
    }

    /// Answer the event whose file has this number in the process that took it.
    pub fn answer(&self, file: i32, answer: Answer) -> io::Result<()> {
        let response = match answer {
            Answer::GoOn => libc::FAN_ALLOW,
            Answer::Fail => libc::FAN_DENY | (libc::EIO as u32) << 24,
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&file.to_ne_bytes());
        bytes[4..].copy_from_slice(&response.to_ne_bytes());
        rustix::io::write(&self.0, &bytes)?;
        Ok(())
    }
}

impl AsFd for Touches {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A number of up to eight bytes in an event.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[at..at + size]);
    u64::from_le_bytes(word)
}

/// One event: `struct fanotify_event_metadata`, and what is known beyond that.
fn touch(event: &[u8]) -> Option<Touch> {
    let fd = number(event, 16, 4) as i32;
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel opened it for this event, and we alone know of it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut touch = Touch { file, pid: number(event, 20, 4) as i32, offset: 0, length: None };
    let mut more = event.get(number(event, 6, 2) as usize..).unwrap_or_default();
    while more.len() >= 4 {
        let (kind, length) = (more[0], number(more, 2, 2) as usize);
        if length < 4 || length > more.len() {
            break;
        }
        if kind == INFO_RANGE && length >= 24 {
            touch.offset = number(more, 8, 8);
            touch.length = Some(number(more, 16, 8)).filter(|length| *length > 0);
        }
        more = &more[length..];
    }
    Some(touch)
}
