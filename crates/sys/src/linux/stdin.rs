//! Standard input, looked at without taking anything from it: what is not a command's own stays for whoever reads next.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom, fcntl_getfl, fstat, open, seek};
use rustix::io::{ioctl_fionread, pread, read};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, tee};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::termios::isatty;

/// More than this is not looked at.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// What a pipe may hold for everybody, by default (`/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// Nobody may ever write to a pipe that somebody holds: it is given so long, where nothing says that it is read.
const PATIENCE: Duration = Duration::from_millis(50);
/// Between two looks at a pipe whose writer is still there.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What stands on standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing will ever come: `/dev/null`, or a pipe that is empty and closed.
    Nothing,
    /// These bytes, and then the end.
    Bytes(Vec<u8>),
    /// A terminal, a socket, or a pipe that others may still write to.
    Open,
}

/// Look at all of standard input. With `wait`, a pipe is waited for until its writers are gone or it is full; without,
/// a moment if it holds something.
pub fn standard_input(wait: bool) -> io::Result<Input> {
    let stat = fstat(stdin())?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    // Who may write there may do more than read.
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

/// Whether somebody may type there.
pub fn standard_input_is_terminal() -> bool {
    isatty(stdin())
}

/// When the file on standard input was modified, in nanoseconds since 1970, where it is one.
pub fn standard_input_modified() -> Option<i64> {
    let stat = fstat(stdin()).ok().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)?;
    Some(stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(i64::try_from(stat.st_mtime_nsec).ok()?))
}

/// Have this process, and those that it starts, find nothing on standard input.
pub fn end_standard_input() -> io::Result<()> {
    let nothing = open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(dup2_stdin(nothing)?)
}

/// How much of `input` was taken since it was looked at, as far as its position or what is left tells.
pub fn standard_input_left() -> io::Result<u64> {
    let stat = fstat(stdin())?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (stat.st_size as u64).saturating_sub(seek(stdin(), SeekFrom::Current(0))?),
        FileType::Fifo => ioctl_fionread(stdin())?,
        _ => 0,
    })
}

/// Take `count` bytes, as the command did whose result is handed out.
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

/// All that a pipe holds, once nobody can add to it. `tee` copies without taking.
fn piped(wait: bool) -> io::Result<Input> {
    // Room for what is still to be written; where the system refuses, there is as much as there was.
    let _ = fcntl_setpipe_size(stdin(), PIPE_BYTES);
    let room = fcntl_getpipe_size(stdin())? as u64;
    let began = Instant::now();
    loop {
        let input = stdin();
        let mut watched = [PollFd::new(&input, PollFlags::empty())];
        poll(&mut watched, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let closed = watched[0].revents().contains(PollFlags::HUP);
        let held = ioctl_fionread(stdin())?;
        if closed {
            return copied(held as usize);
        }
        // Each page but the last is at least half full, so a full pipe holds more than half of what it has room for.
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
