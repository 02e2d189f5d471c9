//! A FUSE file system with one file, whose reads are answered by whoever has its device: the kernel's questions, read and
//! answered. Its own code, since no crate goes on with a device that another process began to answer for.
//!
//! When the last descriptor of the device is closed, the kernel fails all reads, those that wait and those that come. A
//! process that goes on for one that died has the kernel ask again what that one had not answered (Linux 6.9).
//!
//! The protocol: Linux, `include/uapi/linux/fuse.h`. Numbers are in the machine's own order.
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

/// The file.
const NAME: &str = "data";
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// The kernel says within this time what it can.
const PATIENCE: Duration = Duration::from_secs(10);

const HEADER: usize = 40;
const ANSWER: usize = 16;
/// What is read into: the kernel refuses less than 8 KiB, and no request that it makes here is longer.
const BUFFER_BYTES: usize = 64 << 10;
/// One read, bytes: 256 pages are what the kernel asks for at most, of up to 64 KiB.
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
/// Of Linux 6.9, which can ask again.
const MINOR: u32 = 40;
/// `FUSE_MAX_PAGES` and `FUSE_INIT_EXT`: reads of up to so many pages, and there are more than 32 features.
const FEATURES: u32 = 1 << 22 | 1 << 30;
const PAGES_MAX: u16 = 256;
/// `FUSE_HAS_RESEND`, of the second 32 features.
const ASKS_AGAIN: u32 = 1 << 7;
/// `FUSE_NOTIFY_RESEND`.
const ASK_AGAIN: i32 = 7;
/// `FOPEN_DIRECT_IO`: each read is asked for as it is, and nothing is read ahead or kept.
const AS_READ: u32 = 1;
/// The kernel may believe what it was told for so long, seconds.
const FOR_EVER: u64 = 1 << 28;

/// The device: see above.
#[derive(Debug)]
pub(super) struct Device(OwnedFd);

/// A read that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    unique: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// What is read from the device.
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer(vec![0; BUFFER_BYTES])
    }
}

impl Device {
    /// A new file system with its device, which answers for a file of that size from now on.
    ///
    /// # Errors
    ///
    /// If the device cannot be opened, or the kernel cannot mount it or cannot ask again.
    pub(super) fn mount(size_bytes: u64) -> Result<(Device, Mount), MountError> {
        let device = open_device().map_err(MountError::path(DEVICE, "cannot be opened"))?;
        rustix::io::ioctl_fionbio(&device, true).map_err(|error| MountError::path(DEVICE, "is odd")(error.into()))?;
        let mount = mount_device(device.as_fd())?;
        let device = Device(device.into());
        device.greet(size_bytes).map_err(MountError::lazy("the kernel cannot ask for what is to be filled"))?;
        Ok((device, mount))
    }

    /// A device that another process opened and passed.
    pub(super) fn passed(device: OwnedFd) -> Device {
        Device(device)
    }

    /// The path of the file of a file system of this kind, as long as the mount is open.
    pub(super) fn file(root: BorrowedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{NAME}", root.as_raw_fd()))
    }

    /// The kernel's first question.
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
                return Err(io::Error::other("Linux 6.9 is needed, which asks again"));
            }
            let mut said = [0; 64];
            put(&mut said, 0, MAJOR);
            put(&mut said, 4, MINOR);
            put(&mut said, 12, FEATURES);
            // The largest write, of which there are none; the unit of times, nanoseconds.
            put(&mut said, 20, 4096);
            put(&mut said, 24, 1);
            said[28..30].copy_from_slice(&PAGES_MAX.to_ne_bytes());
            put(&mut said, 32, ASKS_AGAIN);
            return self.answer(unique, &said);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The next read that waits, if there is one. Other questions are answered.
    ///
    /// # Errors
    ///
    /// If the file system is gone, or nothing is to be answered any more.
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

    /// Answer a read with its bytes, all of them.
    pub(super) fn fill(&self, read: Read, bytes: &[u8]) -> io::Result<()> {
        self.answer(read.unique, bytes)
    }

    /// Have a read fail with EIO.
    pub(super) fn fail(&self, read: Read) -> io::Result<()> {
        self.fail_number(read.unique, Errno::IO)
    }

    /// Have the kernel ask again what a process took and did not answer.
    pub(super) fn ask_again(&self) -> io::Result<()> {
        self.write(&header(ANSWER, ASK_AGAIN, 0), &[])
    }

    fn receive(&self, buffer: &mut Buffer) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, buffer.0.as_mut_slice()) {
                Ok(count) if count >= HEADER => return Ok(Some(count)),
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(Errno::AGAIN) => return Ok(None),
                // A request was taken back just then.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answer what is not a read.
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
            // Whoever read was killed meanwhile, or the kernel asks again.
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

/// Wait until there is something to be read from one of these, or it is closed at its other end. Returns for each whether.
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

/// `struct fuse_attr`: the root, or the file, which only the superuser may open.
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
