//! Reading standard input without consuming it. Whatever the command does not consume stays for the
//! next reader.
//!
//! Unaware of: what the bytes mean.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek};
use rustix::io::{ioctl_fionread, pread, read};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, tee};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::isatty;

/// A file with more bytes left than this is not read.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The largest size of a pipe for unprivileged users, by default (`/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// How long to wait for a pipe's writers to close it, if nothing says that the tool reads it. A
/// process may keep a pipe open without ever writing to it.
const PATIENCE: Duration = Duration::from_millis(50);
/// The pause between two checks of a pipe that still has writers.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The content of standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing will ever come. It is `/dev/null`, or a pipe that is empty and closed.
    Nothing,
    /// These bytes, and then the end.
    Bytes(Vec<u8>),
    /// It cannot be read completely. For example, it is a terminal, a socket, or a pipe that still
    /// has writers.
    Open,
}

/// Reads all of standard input without consuming it.
///
/// If `wait` is true, a pipe is waited for until it has no writers or is full. Otherwise, a pipe
/// that holds something is waited for 50 ms.
pub fn standard_input(wait: bool) -> io::Result<Input> {
    let stat = fstat(stdin())?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    // If it is open for writing as well, the tool may do more than read.
    let only_read = fcntl_getfl(stdin())? & OFlags::RWMODE == OFlags::RDONLY;
    Ok(match kind {
        FileType::RegularFile | FileType::Fifo if !only_read => Input::Open,
        FileType::RegularFile => file(stat.st_size as u64)?,
        FileType::Fifo => piped(wait)?,
        FileType::CharacterDevice if (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3) => {
            Input::Nothing
        }
        _ => Input::Open,
    })
}

/// Returns true if standard input is a terminal.
pub fn standard_input_is_terminal() -> bool {
    isatty(stdin())
}

/// Returns the mtime of the file on standard input, in nanoseconds since 1970. Returns `None` if it
/// is not a regular file.
pub fn standard_input_modified() -> Option<i64> {
    let stat = fstat(stdin()).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)?;
    Some(stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(i64::try_from(stat.st_mtime_nsec).ok()?))
}

/// Replaces standard input by `/dev/null`, for this process and the ones that it starts.
pub fn end_standard_input() -> io::Result<()> {
    let nothing = open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(dup2_stdin(nothing)?)
}

/// Returns how many bytes are left on standard input: after the position of a file, or in a pipe.
/// It is 0 for anything else.
pub fn standard_input_left() -> io::Result<u64> {
    let stat = fstat(stdin())?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (stat.st_size as u64).saturating_sub(seek(stdin(), SeekFrom::Current(0))?),
        FileType::Fifo => ioctl_fionread(stdin())?,
        _ => 0,
    })
}

/// Consumes `count` bytes, as the command did whose recorded result is replayed.
pub fn take_standard_input(mut count: u64) -> io::Result<()> {
    let stat = fstat(stdin())?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        seek(stdin(), SeekFrom::Current(count as i64))?;
        return Ok(());
    }
    let mut buffer = vec![0; 64 << 10];
    while count > 0 {
        let step = (count as usize).min(buffer.len());
        match read(stdin(), &mut buffer[..step])? {
            0 => break,
            taken => count -= taken as u64,
        }
    }
    Ok(())
}

fn file(size_bytes: u64) -> io::Result<Input> {
    let from = seek(stdin(), SeekFrom::Current(0))?;
    let left = size_bytes.saturating_sub(from);
    if left > FILE_BYTES_MAX {
        return Ok(Input::Open);
    }
    let mut bytes = vec![0; left as usize];
    let mut at = 0;
    while at < bytes.len() {
        match pread(stdin(), &mut bytes[at..], from + at as u64)? {
            0 => return Ok(Input::Open),
            count => at += count,
        }
    }
    Ok(if bytes.is_empty() { Input::Nothing } else { Input::Bytes(bytes) })
}

/// Returns all that a pipe holds, once it has no writers. `tee` copies without consuming.
fn piped(wait: bool) -> io::Result<Input> {
    // The pipe is enlarged for what is still to be written. If the system refuses, its size stays.
    let _ = fcntl_setpipe_size(stdin(), PIPE_BYTES);
    let room = fcntl_getpipe_size(stdin())? as u64;
    let began = Instant::now();
    loop {
        let closed = super::poll::found_now(&stdin(), PollFlags::empty())?.contains(PollFlags::HUP);
        let held = ioctl_fionread(stdin())?;
        if closed {
            return copied(held as usize);
        }
        // Each page but the last is at least half full. So a full pipe holds more than half of its
        // size.
        if held > room / 2 || !wait && (held == 0 || began.elapsed() > PATIENCE) {
            return Ok(Input::Open);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn copied(held: usize) -> io::Result<Input> {
    if held == 0 {
        return Ok(Input::Nothing);
    }
    let (ours, theirs): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC)?;
    let _ = fcntl_setpipe_size(&theirs, PIPE_BYTES);
    if tee(stdin(), &theirs, held, SpliceFlags::NONBLOCK)? != held {
        return Ok(Input::Open);
    }
    drop(theirs);
    let mut bytes = vec![0; held];
    let mut at = 0;
    while at < held {
        match read(&ours, &mut bytes[at..])? {
            0 => return Ok(Input::Open),
            count => at += count,
        }
    }
    Ok(Input::Bytes(bytes))
}
