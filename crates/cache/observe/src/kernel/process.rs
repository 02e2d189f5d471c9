//! Reads the memory, working directory and descriptors of another process.
//!
//! Unaware of: what a system call means.

use std::borrow::Cow;
use std::io;

use larder_sys::{Notification, Stat};

use super::calls::At;
use crate::event::{RANDOM_FOR_MEMORY, RANDOM_FOR_NAME};

/// The longest path that the kernel accepts, with its NUL.
const PATH_BYTES: usize = 4096;
const PAGE_BYTES: u64 = 4096;
/// How much of a string is read first. Most paths are shorter, and reading less is faster.
const FIRST_BYTES: u64 = 256;

/// Why an argument could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The address is not mapped, so the call will fail whatever the file system holds.
    Fault,
    /// We may not read the process, or its directory has no path any more.
    Unreadable,
}

/// A thread that waits for an answer to its system call, and its process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) thread: u32,
    pub(super) process: u32,
}

impl Caller {
    /// Returns what libc may use the random bytes at `address` for, as the `extra` of a
    /// [`EventKind::Random`](crate::EventKind::Random) event. libc guards its memory by a variable of its
    /// own, which lies neither on the first thread's stack nor in the heap. So an address there can
    /// only be for a name.
    pub(super) fn libc_draws(self, address: u64) -> u32 {
        // Indices of the fields after the name in `/proc/PID/stat`.
        const START_STACK: usize = 25;
        const START_HEAP: usize = 44;
        /// Nothing else is mapped so near below the start of the stack, or so near above the start
        /// of the heap.
        const STACK_BYTES: u64 = 100 << 20;
        const HEAP_BYTES: u64 = 16 << 30;
        let text = std::fs::read(format!("/proc/{}/stat", self.process)).unwrap_or_default();
        let after = text.iter().rposition(|&b| b == b')').map_or(&[][..], |at| &text[at + 1..]);
        let fields: Vec<&[u8]> = after.split(|&b| b == b' ').filter(|field| !field.is_empty()).collect();
        let number = |at: usize| fields.get(at).and_then(|field| std::str::from_utf8(field).ok()?.parse::<u64>().ok());
        let is_within = |start: u64, bytes: u64| (start..start.saturating_add(bytes)).contains(&address);
        let on_stack =
            number(START_STACK).is_some_and(|start| is_within(start.saturating_sub(STACK_BYTES), STACK_BYTES));
        let in_heap = number(START_HEAP).is_some_and(|start| start != 0 && is_within(start, HEAP_BYTES));
        if on_stack || in_heap { RANDOM_FOR_NAME } else { RANDOM_FOR_MEMORY }
    }

    /// Returns true if an instruction is in the code that the kernel has mapped into the process
    /// (vDSO).
    pub(super) fn is_in_vdso(self, instruction: u64) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process)).unwrap_or_default();
        let range = maps.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| line.split(' ').next());
        let (Some(start), Some(end)) =
            range.and_then(|range| range.split_once('-')).map_or((None, None), |(start, end)| {
                (u64::from_str_radix(start, 16).ok(), u64::from_str_radix(end, 16).ok())
            })
        else {
            return false;
        };
        (start..=end).contains(&instruction)
    }

    /// Reads a NUL-terminated string of the process's memory, of at most 4096 bytes.
    pub(super) fn text(self, address: u64) -> Result<Vec<u8>, Trouble> {
        if address == 0 {
            return Err(Trouble::Fault);
        }
        let mut text = Vec::with_capacity(FIRST_BYTES as usize);
        let mut step = FIRST_BYTES;
        while text.len() < PATH_BYTES {
            let at = address + text.len() as u64;
            let count = step.min(PAGE_BYTES - at % PAGE_BYTES) as usize;
            let before = text.len();
            text.resize(before + count, 0);
            let read = larder_sys::read_memory(self.thread, at, &mut text[before..]).map_err(trouble)?;
            text.truncate(before + read);
            if let Some(end) = text[before..].iter().position(|&b| b == 0) {
                text.truncate(before + end);
                return Ok(text);
            }
            if read < count {
                return Err(Trouble::Fault);
            }
            step = PAGE_BYTES;
        }
        Err(Trouble::Fault)
    }

    /// Reads `N` 64-bit words of the process's memory.
    pub(super) fn numbers<const N: usize>(self, address: u64) -> Result<[u64; N], Trouble> {
        let mut bytes = vec![0; N * 8];
        match larder_sys::read_memory(self.thread, address, &mut bytes) {
            Ok(count) if count == bytes.len() => {}
            Ok(_) => return Err(Trouble::Fault),
            Err(error) => return Err(trouble(error)),
        }
        let mut numbers = [0; N];
        for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(numbers)
    }

    /// Reads up to `count` bytes of the process's memory.
    pub(super) fn bytes(self, address: u64, count: usize) -> Result<Vec<u8>, Trouble> {
        let mut bytes = vec![0; count];
        let read = larder_sys::read_memory(self.thread, address, &mut bytes).map_err(trouble)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Returns the path that the arguments of a call give. It is absolute but otherwise as the
    /// process uses it. Returns `None` if the text is empty.
    pub(super) fn path(self, call: &Notification, at: At) -> Result<Option<Vec<u8>>, Trouble> {
        let text = self.text(call.arguments[usize::from(at.path)])?;
        if text.is_empty() {
            return Ok(None);
        }
        if text[0] == b'/' {
            return Ok(Some(text));
        }
        let directory = match at.dir.map(|dir| call.arguments[usize::from(dir)] as i32) {
            None | Some(libc::AT_FDCWD) => self.directory()?,
            Some(fd) => self.descriptor(fd)?,
        };
        Ok(Some(joined(directory, &text)))
    }

    /// Returns a path absolute, relative to the process's working directory.
    pub(super) fn absolute(self, path: &[u8]) -> Result<Vec<u8>, Trouble> {
        if path.starts_with(b"/") { Ok(path.to_vec()) } else { Ok(joined(self.directory()?, path)) }
    }

    fn directory(self) -> Result<Vec<u8>, Trouble> {
        let path = larder_sys::link_target(format!("/proc/{}/cwd", self.thread).as_bytes());
        existing(path.map_err(|_| Trouble::Unreadable)?)
    }

    /// Returns the path of an open descriptor.
    pub(super) fn descriptor(self, fd: i32) -> Result<Vec<u8>, Trouble> {
        let path = larder_sys::link_target(&self.descriptor_link(fd)).map_err(|_| Trouble::Fault)?;
        // A pipe or a socket has no path, and nothing can be opened relative to it.
        if path.first() == Some(&b'/') { existing(path) } else { Err(Trouble::Fault) }
    }

    /// Returns the link below `/proc` that leads to a descriptor's file.
    pub(super) fn descriptor_link(self, fd: i32) -> Vec<u8> {
        format!("/proc/{}/fd/{fd}", self.thread).into_bytes()
    }

    /// Returns true if a descriptor was opened for writing.
    pub(super) fn writes(self, fd: i32) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.thread)).unwrap_or_default();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.and_then(|f| u32::from_str_radix(f.trim(), 8).ok()).is_some_and(|f| f & libc::O_ACCMODE as u32 != 0)
    }

    /// Returns the stat of the program that the process runs.
    pub(super) fn image(self) -> io::Result<Stat> {
        larder_sys::stat(format!("/proc/{}/exe", self.thread).as_bytes())
    }

    /// Returns the parent of the process, or the process that has adopted it.
    pub(super) fn parent(self) -> Option<u32> {
        larder_sys::process_state(self.process).map(|(_, parent)| parent)
    }

    /// Returns the path by which we find the file that the process finds by `path`. It differs for
    /// paths such as `/proc/self`, which mean another file for each process.
    pub(super) fn seen_from_here<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        if !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/") {
            return Cow::Borrowed(path);
        }
        let Caller { thread, process } = self;
        let names = [
            ("/proc/self", format!("/proc/{process}")),
            ("/proc/thread-self", format!("/proc/{process}/task/{thread}")),
            ("/dev/fd", format!("/proc/{process}/fd")),
            ("/dev/stdin", format!("/proc/{process}/fd/0")),
            ("/dev/stdout", format!("/proc/{process}/fd/1")),
            ("/dev/stderr", format!("/proc/{process}/fd/2")),
        ];
        for (name, here) in names {
            match path.strip_prefix(name.as_bytes()) {
                Some(rest) if rest.is_empty() || rest[0] == b'/' => {
                    return Cow::Owned([here.as_bytes(), rest].concat());
                }
                _ => {}
            }
        }
        Cow::Borrowed(path)
    }
}

fn joined(mut directory: Vec<u8>, path: &[u8]) -> Vec<u8> {
    // For `/` itself, only the slash in between is needed.
    if directory == b"/" {
        directory.clear();
    }
    directory.push(b'/');
    directory.extend_from_slice(path);
    directory
}

fn existing(path: Vec<u8>) -> Result<Vec<u8>, Trouble> {
    if path.ends_with(b" (deleted)") { Err(Trouble::Unreadable) } else { Ok(path) }
}

fn trouble(error: io::Error) -> Trouble {
    if error.raw_os_error() == Some(libc::EFAULT) { Trouble::Fault } else { Trouble::Unreadable }
}

/// Returns the process of a thread that is not the first thread of its process.
pub(super) fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_mean_the_caller() {
        let caller = Caller { thread: 8, process: 7 };
        let check = |path: &str, expect: &str| {
            assert_eq!(caller.seen_from_here(path.as_bytes()), expect.as_bytes());
        };
        check("/proc/self/fd/3", "/proc/7/fd/3");
        check("/proc/self", "/proc/7");
        check("/proc/selfish", "/proc/selfish");
        check("/proc/thread-self/comm", "/proc/7/task/8/comm");
        check("/dev/fd/1", "/proc/7/fd/1");
        check("/dev/stderr", "/proc/7/fd/2");
        check("/usr/include/x.h", "/usr/include/x.h");
    }

    #[test]
    fn strings_of_a_process() {
        let own = Caller { thread: std::process::id(), process: std::process::id() };
        for length in [0, 10, 300, 4000] {
            let mut text = vec![b'x'; length];
            text.push(0);
            assert_eq!(own.text(text.as_ptr() as u64), Ok(text[..length].to_vec()));
        }
        let endless = vec![b'x'; 3 * PATH_BYTES];
        assert_eq!(own.text(endless.as_ptr() as u64), Err(Trouble::Fault));
        assert_eq!(own.text(16), Err(Trouble::Fault));
    }
}
