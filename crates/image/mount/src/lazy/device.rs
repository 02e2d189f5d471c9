//! The FUSE file: a file system with a single file, which the process that has the device open
//! answers for. The protocol is implemented here, because no crate can take over a device for which
//! another process began to answer.
//!
//! When the last descriptor of the device is closed, the kernel fails all reads, waiting and future
//! ones. A process that takes over from one that died makes the kernel resend the requests that the
//! other process had not answered (Linux 6.9).
//!
//! The protocol is described in Linux, `include/uapi/linux/fuse.h`. Numbers are in native byte
//! order.
//!
//! Unaware of: what the file holds.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::dev_fuse::{DEVICE, mount_device, open_device};
use crate::{Mount, MountError};

/// The name of the file.
const NAME: &str = "data";
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// The time limit for the kernel's first request.
const PATIENCE: Duration = Duration::from_secs(10);

const HEADER: usize = 40;
const ANSWER: usize = 16;
/// The size of the buffer for requests. The kernel refuses less than 8 KiB, and no request here is
/// longer than that.
const BUFFER_BYTES: usize = 64 << 10;
/// The limit for one read, in bytes: the kernel requests at most 256 pages, of up to 64 KiB each.
const READ_BYTES_MAX: u32 = 16 << 20;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

const MAJOR: u32 = 7;
/// The protocol version of Linux 6.9, the first one that can resend requests.
const MINOR: u32 = 40;
/// `FUSE_MAX_PAGES` (reads of up to `PAGES_MAX` pages) and `FUSE_INIT_EXT` (there are more than 32
/// feature bits).
const FEATURES: u32 = 1 << 22 | 1 << 30;
const PAGES_MAX: u16 = 256;
/// `FUSE_HAS_RESEND`, in the second word of feature bits.
const ASKS_AGAIN: u32 = 1 << 7;
/// `FUSE_NOTIFY_RESEND`.
const ASK_AGAIN: i32 = 7;
/// `FOPEN_DIRECT_IO`: the kernel passes each read on as it is, without read-ahead or caching.
const AS_READ: u32 = 1;
/// How long the kernel may cache answers, in seconds.
const FOR_EVER: u64 = 1 << 28;

/// An open `/dev/fuse` on which the file system is mounted.
#[derive(Debug)]
pub(super) struct Device(OwnedFd);

/// A read that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    unique: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// The buffer that requests are read into.
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer(vec![0; BUFFER_BYTES])
    }
}

impl Device {
    /// Mounts a new file system, whose file has this size, and answers the kernel's first request.
    /// Fails if the device cannot be opened, or if the kernel cannot mount it or cannot resend
    /// requests.
    pub(super) fn mount(size_bytes: u64) -> Result<(Device, Mount), MountError> {
        let device = open_device().map_err(MountError::path(DEVICE, "cannot be opened"))?;
        rustix::io::ioctl_fionbio(&device, true)
            .map_err(|error| MountError::path(DEVICE, "cannot be made non-blocking")(error.into()))?;
        let mount = mount_device(device.as_fd())?;
        let device = Device(device.into());
        device.greet(size_bytes).map_err(MountError::lazy("the FUSE file for lazy reads cannot be set up"))?;
        Ok((device, mount))
    }

    /// Wraps a device that another process opened and passed to us.
    pub(super) fn passed(device: OwnedFd) -> Device {
        Device(device)
    }

    /// Returns the path of the file in a file system with this root. It is valid as long as `root`
    /// is open.
    pub(super) fn file(root: BorrowedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{NAME}", root.as_raw_fd()))
    }

    /// Answers the kernel's `INIT` request, and other requests that come before it.
    fn greet(&self, size_bytes: u64) -> io::Result<()> {
        let (until, mut buffer) = (Instant::now() + PATIENCE, Buffer::new());
        while Instant::now() < until {
            wait(&[self.as_fd()], PATIENCE)?;
            let Some(count) = self.receive(&mut buffer)? else { continue };
            let asked = &buffer.0[..count];
            if number(asked, 4) != INIT {
                self.answer_plain(asked, size_bytes)?;
                continue;
            }
            let unique = long(asked, 8);
            if number(asked, HEADER) != MAJOR || number(asked, HEADER + 16) & ASKS_AGAIN == 0 {
                self.fail_number(unique, Errno::PROTO)?;
                return Err(io::Error::other("Linux 6.9 is needed, which can resend requests"));
            }
            let mut said = [0; 64];
            put(&mut said, 0, MAJOR);
            put(&mut said, 4, MINOR);
            put(&mut said, 12, FEATURES);
            // The largest write (there are none), and the granularity of times in nanoseconds.
            put(&mut said, 20, 4096);
            put(&mut said, 24, 1);
            said[28..30].copy_from_slice(&PAGES_MAX.to_ne_bytes());
            put(&mut said, 32, ASKS_AGAIN);
            return self.answer(unique, &said);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Returns the next read that waits, or `None` if no request waits. Other requests are answered
    /// here. Fails if the file system is gone, or the device cannot be read.
    pub(super) fn next(&self, buffer: &mut Buffer, size_bytes: u64) -> io::Result<Option<Read>> {
        while let Some(count) = self.receive(buffer)? {
            let asked = &buffer.0[..count];
            if number(asked, 4) != READ {
                self.answer_plain(asked, size_bytes)?;
                continue;
            }
            let read =
                Read { unique: long(asked, 8), offset: long(asked, HEADER + 8), length: number(asked, HEADER + 16) };
            if read.length <= READ_BYTES_MAX {
                return Ok(Some(read));
            }
            self.fail(read)?;
        }
        Ok(None)
    }

    /// Answers a read with all of its bytes.
    pub(super) fn fill(&self, read: Read, bytes: &[u8]) -> io::Result<()> {
        self.answer(read.unique, bytes)
    }

    /// Fails a read with EIO.
    pub(super) fn fail(&self, read: Read) -> io::Result<()> {
        self.fail_number(read.unique, Errno::IO)
    }

    /// Makes the kernel resend the requests that another process read but did not answer.
    pub(super) fn ask_again(&self) -> io::Result<()> {
        self.write(&header(ANSWER, ASK_AGAIN, 0), &[])
    }

    fn receive(&self, buffer: &mut Buffer) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, buffer.0.as_mut_slice()) {
                Ok(count) if count >= HEADER => return Ok(Some(count)),
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(Errno::AGAIN) => return Ok(None),
                // The request was cancelled before it could be read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers a request that is not a read.
    fn answer_plain(&self, asked: &[u8], size_bytes: u64) -> io::Result<()> {
        let (unique, node) = (long(asked, 8), long(asked, 16));
        match number(asked, 4) {
            FORGET | BATCH_FORGET => Ok(()),
            LOOKUP => {
                let name = asked[HEADER..].split(|byte| *byte == 0).next();
                if node != ROOT || name.is_none_or(|name| OsStr::new(NAME).as_encoded_bytes() != name) {
                    return self.fail_number(unique, Errno::NOENT);
                }
                let mut said = [0; 40 + 88];
                for (at, value) in [(0, FILE), (16, FOR_EVER), (24, FOR_EVER)] {
                    put_long(&mut said, at, value);
                }
                attributes(&mut said[40..], FILE, size_bytes);
                self.answer(unique, &said)
            }
            GETATTR => {
                let mut said = [0; 16 + 88];
                put_long(&mut said, 0, FOR_EVER);
                attributes(&mut said[16..], node, size_bytes);
                self.answer(unique, &said)
            }
            OPEN => {
                let mut said = [0; 16];
                put(&mut said, 8, AS_READ);
                self.answer(unique, &said)
            }
            RELEASE | DESTROY => self.answer(unique, &[]),
            _ => self.fail_number(unique, Errno::NOSYS),
        }
    }

    fn answer(&self, unique: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(&header(ANSWER + bytes.len(), 0, unique), bytes)
    }

    fn fail_number(&self, unique: u64, error: Errno) -> io::Result<()> {
        self.write(&header(ANSWER, -error.raw_os_error(), unique), &[])
    }

    fn write(&self, header: &[u8], bytes: &[u8]) -> io::Result<()> {
        match rustix::io::writev(&self.0, &[IoSlice::new(header), IoSlice::new(bytes)]) {
            // The reader was killed meanwhile, or the kernel has resent the request to another
            // process.
            Err(Errno::NOENT) => Ok(()),
            done => done.map(drop).map_err(io::Error::from),
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of these descriptors is readable or its other end is closed, but at most this
/// long. Returns the events of each descriptor.
pub(super) fn wait(of: &[BorrowedFd], at_most: Duration) -> io::Result<Vec<PollFlags>> {
    let mut asked: Vec<PollFd> = of.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let at_most = Timespec::try_from(at_most).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut asked, Some(&at_most)) {
        Ok(_) | Err(Errno::INTR) => Ok(asked.iter().map(PollFd::revents).collect()),
        Err(error) => Err(error.into()),
    }
}

fn header(length: usize, error: i32, unique: u64) -> [u8; ANSWER] {
    let mut header = [0; ANSWER];
    put(&mut header, 0, length as u32);
    put(&mut header, 4, error as u32);
    put_long(&mut header, 8, unique);
    header
}

/// Writes a `struct fuse_attr` for the root directory or the file. Only root may open them.
fn attributes(said: &mut [u8], node: u64, size_bytes: u64) {
    let is_root = node == ROOT;
    put_long(said, 0, node);
    put_long(said, 8, if is_root { 0 } else { size_bytes });
    put(said, 60, if is_root { 0o040_500 } else { 0o100_400 });
    put(said, 64, 1);
    put(said, 80, 4096);
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn put_long(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}
