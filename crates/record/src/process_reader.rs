//! Examines a process that is stopped meanwhile: its program, working directory, arguments and peak
//! memory. It uses as few system calls as possible, and none twice.
//!
//! Unaware of: why the process is stopped.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};

use crate::Redact;

/// The limit for the arguments of a process, in bytes. Few command lines are longer; most long ones
/// use response files.
const ARGV_BYTES_MAX: usize = 1 << 16;
/// The largest number of arguments in the cache of redacted arguments. The arguments of a build
/// repeat a lot.
const KNOWN_MAX: usize = 1 << 14;
/// Longer arguments are not cached, because they rarely repeat.
const KNOWN_BYTES_MAX: usize = 512;

/// The program of a process.
pub(crate) struct Program {
    /// The path of the program; empty if it cannot be read.
    pub(crate) exe: Vec<u8>,
    /// The working directory; empty if it cannot be read.
    pub(crate) directory: Vec<u8>,
}

/// Examines processes, with a buffer and a cache that are reused.
pub(crate) struct ProcessReader<'a> {
    proc: OwnedFd,
    redact: &'a Redact,
    /// The contents that were read last, and their length.
    buffer: Vec<u8>,
    read_bytes: usize,
    /// Maps (previous argument, NUL, argument) to the argument without secrets.
    known: HashMap<Vec<u8>, String>,
}

impl<'a> ProcessReader<'a> {
    /// Opens `/proc`. Fails if it is not mounted.
    pub(crate) fn new(redact: &'a Redact) -> io::Result<ProcessReader<'a>> {
        let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(ProcessReader { proc, redact, buffer: vec![0; ARGV_BYTES_MAX + 1], read_bytes: 0, known: HashMap::new() })
    }

    /// Returns the program of a process. Also reads its arguments, which [`ProcessReader::arguments`]
    /// returns.
    pub(crate) fn program(&mut self, pid: i32) -> Program {
        let link = |name: &str| {
            let link = readlinkat(&self.proc, format!("{pid}/{name}"), Vec::with_capacity(256));
            link.map(|link| link.into_bytes()).unwrap_or_default()
        };
        let (exe, directory) = (link("exe"), link("cwd"));
        self.read(&format!("{pid}/cmdline"));
        Program { exe, directory }
    }

    /// Returns the peak memory of a process in bytes, since it executed its current program.
    pub(crate) fn peak_bytes(&mut self, pid: i32) -> Option<u64> {
        self.read(&format!("{pid}/status"));
        peak_of(&self.buffer[..self.read_bytes])
    }

    /// Returns the arguments of the last examined program, without secrets.
    pub(crate) fn arguments(&mut self) -> Vec<String> {
        let buffer = std::mem::take(&mut self.buffer);
        let argv = self.shown(&buffer[..self.read_bytes]);
        self.buffer = buffer;
        argv
    }

    /// Reads a file into the buffer, up to the buffer's size.
    fn read(&mut self, name: &str) {
        self.read_bytes = 0;
        let Ok(file) = openat(&self.proc, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
        // One call is enough: the kernel returns as much of both files as fits, so a buffer that is
        // not full has all of it.
        self.read_bytes = rustix::io::read(&file, &mut self.buffer[..]).unwrap_or(0);
    }

    /// Splits the contents of `/proc/PID/cmdline` and removes secrets.
    fn shown(&mut self, bytes: &[u8]) -> Vec<String> {
        let kept = &bytes[..bytes.len().min(ARGV_BYTES_MAX)];
        let ended = kept.strip_suffix(b"\0").unwrap_or(kept);
        let (mut argv, mut before) = (Vec::new(), &b""[..]);
        for argument in ended.split(|&b| b == 0) {
            argv.push(self.without_secrets(before, argument));
            before = argument;
        }
        if kept.len() < bytes.len() {
            argv.push(format!("… more than {ARGV_BYTES_MAX} bytes"));
        }
        argv
    }

    fn without_secrets(&mut self, before: &[u8], argument: &[u8]) -> String {
        if before.len() + argument.len() > KNOWN_BYTES_MAX {
            return (self.redact.argument)(before, argument);
        }
        let both = [before, b"\0", argument].concat();
        if let Some(shown) = self.known.get(&both) {
            return shown.clone();
        }
        let shown = (self.redact.argument)(before, argument);
        if self.known.len() < KNOWN_MAX {
            self.known.insert(both, shown.clone());
        }
        shown
    }
}

/// Parses a line such as `VmHWM: 1234 kB`, and returns bytes.
fn peak_of(status: &[u8]) -> Option<u64> {
    let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"VmHWM:"))?;
    let kib: u64 = std::str::from_utf8(line).ok()?.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_as_the_kernel_gives_them() {
        let redact = Redact::nothing();
        let mut looks = ProcessReader::new(&redact).expect("/proc");
        let mut check = |bytes: &[u8], expect: &[&str]| assert_eq!(looks.shown(bytes), expect);
        check(b"cc\0-c\0x y.c\0\0", &["cc", "-c", "x y.c", ""]);
        check(b"", &[""]);
        // A program that overwrote its arguments, as `setproctitle` does.
        check(b"worker: idle", &["worker: idle"]);
        check(b"\xffa\0", &["\u{fffd}a"]);
        let long = [b"x".repeat(ARGV_BYTES_MAX), b"y\0".to_vec()].concat();
        assert_eq!(looks.shown(&long)[1], "… more than 65536 bytes");
    }

    #[test]
    fn what_is_remembered_depends_on_the_argument_before() {
        let redact = Redact {
            argument: |before, value| format!("{}>{}", String::from_utf8_lossy(before), String::from_utf8_lossy(value)),
            ..Redact::nothing()
        };
        let mut looks = ProcessReader::new(&redact).expect("/proc");
        for _ in 0..2 {
            assert_eq!(looks.shown(b"a\0b\0a\0b\0"), [">a", "a>b", "b>a", "a>b"]);
        }
    }

    #[test]
    fn a_look_at_ourselves() {
        let redact = Redact::nothing();
        let mut looks = ProcessReader::new(&redact).expect("/proc");
        let own = larder_sys::process_id() as i32;
        let program = looks.program(own);
        let exe = std::env::current_exe().expect("is there");
        assert_eq!(program.exe, exe.as_os_str().as_encoded_bytes());
        assert_eq!(looks.arguments()[0], std::env::args().next().expect("has one"));
        assert!(looks.peak_bytes(own).is_some_and(|peak| peak > 1 << 20));
        let gone = looks.program(i32::MAX);
        assert!(gone.exe.is_empty() && gone.directory.is_empty() && looks.arguments() == [""]);
        assert_eq!(peak_of(b"Name:\tx\nVmHWM:\t   12 kB\n"), Some(12 * 1024));
    }
}
