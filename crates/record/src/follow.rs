//! From the tracer's steps to lines of a record, as they come.
//!
//! Unaware of: what is made of the lines.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use larder_sys::{ChildEnd, Step, Tracer};

use crate::Redact;
use crate::form::Event;

/// Arguments of one process that are kept, in bytes: a link with response files aside, few are longer.
const ARGV_BYTES_MAX: usize = 1 << 16;
/// What was seen is in the file at the latest after this.
const FLUSH_AFTER: Duration = Duration::from_millis(250);

/// Follow the program to its end, and return how it ended and the most memory that one of its processes held, in bytes.
/// `count` is told how many processes there were so far.
pub(crate) fn follow(
    tracer: &mut Tracer,
    lines: File,
    began: Instant,
    redact: &Redact,
    count: &mut dyn FnMut(u64),
) -> io::Result<(ChildEnd, u64)> {
    let mut follower = Follower {
        lines: BufWriter::with_capacity(1 << 16, lines),
        flushed: Instant::now(),
        began,
        redact,
        directories: HashMap::new(),
        peaks: HashMap::new(),
    };
    follower.executed(tracer.pid)?;
    let mut processes = 1;
    while let Some(step) = tracer.step()? {
        match step {
            Step::Forked { parent, child } => {
                processes += 1;
                count(processes);
                follower.forked(parent, child)?;
            }
            Step::Executed { pid } => follower.executed(pid)?,
            Step::Ending { pid } => follower.ending(pid),
            Step::Ended { pid, end, usage, threads } => {
                follower.ended(pid, end, usage, threads)?;
                if pid == tracer.pid {
                    follower.lines.flush()?;
                    return Ok((end, usage.peak_bytes));
                }
            }
        }
    }
    follower.lines.flush()?;
    Err(io::Error::other("the end of the command was not seen"))
}

struct Follower<'a> {
    lines: BufWriter<File>,
    flushed: Instant,
    began: Instant,
    redact: &'a Redact,
    /// Of each process, as far as it is known.
    directories: HashMap<i32, Vec<u8>>,
    /// The most memory that a process which is about to end held itself.
    peaks: HashMap<i32, u64>,
}

impl Follower<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        serde_json::to_writer(&mut self.lines, event)?;
        self.lines.write_all(b"\n")?;
        if self.flushed.elapsed() > FLUSH_AFTER {
            self.lines.flush()?;
            self.flushed = Instant::now();
        }
        Ok(())
    }

    fn forked(&mut self, parent: i32, pid: i32) -> io::Result<()> {
        if let Some(directory) = self.directories.get(&parent).cloned() {
            self.directories.insert(pid, directory);
        }
        self.write(&Event::Fork { t: self.now(), parent, pid })
    }

    fn executed(&mut self, pid: i32) -> io::Result<()> {
        let t = self.now();
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default().as_os_str().as_bytes().to_vec();
        let is_new = self.directories.get(&pid) != Some(&directory);
        let cwd = is_new.then(|| String::from_utf8_lossy(&directory).into_owned());
        self.directories.insert(pid, directory);
        let argv = arguments(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default(), self.redact);
        self.write(&Event::Exec { t, pid, exe: exe.to_string_lossy().into_owned(), argv, cwd })
    }

    /// `VmHWM: 1234 kB`, of the program that it runs now.
    fn ending(&mut self, pid: i32) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        if let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()) {
            self.peaks.insert(pid, kib * 1024);
        }
    }

    fn ended(&mut self, pid: i32, end: ChildEnd, usage: larder_sys::Usage, threads: u32) -> io::Result<()> {
        self.directories.remove(&pid);
        let peak = self.peaks.remove(&pid);
        self.write(&Event::Exit { t: self.now(), pid, code: exit_code(end), usage: usage.into(), peak, threads })
    }
}

/// As a shell says it.
pub(crate) fn exit_code(end: ChildEnd) -> i32 {
    match end {
        ChildEnd::Exited(code) => i32::from(code),
        ChildEnd::Signalled(signal) => 128 + signal,
    }
}

/// As in `/proc/PID/cmdline`, secrets taken out.
fn arguments(bytes: &[u8], redact: &Redact) -> Vec<String> {
    let kept = &bytes[..bytes.len().min(ARGV_BYTES_MAX)];
    let mut argv: Vec<&[u8]> = kept.split(|&b| b == 0).collect();
    if kept.ends_with(b"\0") {
        argv.pop();
    }
    let mut shown = redact.arguments(&argv);
    if kept.len() < bytes.len() {
        shown.push(format!("… {} bytes more", bytes.len() - kept.len()));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_as_the_kernel_gives_them() {
        let redact = Redact::nothing();
        assert_eq!(arguments(b"cc\0-c\0x y.c\0\0", &redact), ["cc", "-c", "x y.c", ""]);
        assert_eq!(arguments(b"", &redact), [""]);
        let long = [b"x".repeat(ARGV_BYTES_MAX), b"yz\0".to_vec()].concat();
        assert_eq!(arguments(&long, &redact)[1], "… 3 bytes more");
    }

    #[test]
    fn ends() {
        assert_eq!([exit_code(ChildEnd::Exited(3)), exit_code(ChildEnd::Signalled(15))], [3, 143]);
    }
}
