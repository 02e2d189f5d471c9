//! Closing ranges of descriptors, also on Linux before 5.9 and in sandboxes that refuse
//! `close_range`.
//!
//! It only makes system calls and never allocates, so a process that was forked from one with
//! threads may use it.
//!
//! Unaware of: what the descriptors are.

use std::os::fd::RawFd;

/// The size of the buffer for directory entries. It has room for some thirty of them.
const ENTRIES_BYTES: usize = 1024;
/// The offset of the name in an entry (`struct linux_dirent64`), and the offset of the entry's
/// length.
const NAME_AT: usize = 19;
const LENGTH_AT: usize = 16;
/// The highest descriptor that is closed without `close_range` and `/proc`. Descriptors above it
/// stay open. In containers whose engine sets no limit, there can be 10^9 of them, and closing each
/// would take minutes.
const TRIED_MAX: RawFd = 1 << 16;

/// A buffer for entries as the kernel writes them.
#[repr(C, align(8))]
struct Entries([u8; ENTRIES_BYTES]);

/// Closes the descriptors from `first` to `last`.
///
/// # Safety
/// No code of this process uses one of them afterwards.
pub(super) unsafe fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: only numbers are passed, and the caller no longer uses the descriptors.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) != 0 && !close_listed(first, last) {
            for fd in first..=last.min(TRIED_MAX) {
                libc::close(fd);
            }
        }
    }
}

/// Closes the descriptors in the range that `/proc/self/fd` lists. Returns false if there is no
/// `/proc`.
unsafe fn close_listed(first: RawFd, last: RawFd) -> bool {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is null-terminated.
    let list = unsafe { libc::open(c"/proc/self/fd".as_ptr(), flags) };
    if list < 0 {
        return false;
    }
    let mut entries = Entries([0; ENTRIES_BYTES]);
    let done = loop {
        // SAFETY: the buffer is ours, and its length is passed.
        let count = unsafe { libc::syscall(libc::SYS_getdents64, list, entries.0.as_mut_ptr(), ENTRIES_BYTES) };
        let Some(mut left) = usize::try_from(count).ok().and_then(|count| entries.0.get(..count)) else { break false };
        if left.is_empty() {
            break true;
        }
        while let Some((fd, length)) = entry(left) {
            // The kernel lists descriptors in the order of their numbers, so closing one while
            // reading the list does not hide others.
            if let Some(fd) = fd.filter(|fd| (first..=last).contains(fd) && *fd != list) {
                // SAFETY: the caller no longer uses the descriptor.
                unsafe { libc::close(fd) };
            }
            left = &left[length..];
        }
    };
    // SAFETY: the descriptor was opened above.
    unsafe { libc::close(list) };
    done
}

/// Parses the first entry. Returns its name as a number, if it is one, and the entry's length.
fn entry(bytes: &[u8]) -> Option<(Option<RawFd>, usize)> {
    let length = usize::from(u16::from_ne_bytes([*bytes.get(LENGTH_AT)?, *bytes.get(LENGTH_AT + 1)?]));
    let name = bytes.get(NAME_AT..length)?.split(|byte| *byte == 0).next()?;
    let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    Some((number, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::IntoRawFd;

    /// The test runs in a process of its own, because other tests have descriptors open.
    #[test]
    fn closes_what_the_list_has() {
        const FIRST: RawFd = 100;
        // SAFETY: the child only makes system calls, and ends here.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: only a number is passed.
                let is_open = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
                // SAFETY: none of these descriptors is open before.
                let copied = |fd: &RawFd| unsafe { libc::dup2(2, *fd) } == *fd;
                let high: Vec<RawFd> = (FIRST..FIRST + 80).filter(copied).collect();
                // SAFETY: these descriptors were made above.
                let closed = unsafe { close_listed(FIRST, FIRST + 69) };
                let right = closed && high.len() == 80 && high.iter().all(|fd| is_open(*fd) == (*fd >= FIRST + 70));
                crate::end_process(u8::from(!right))
            }
            pid => assert_eq!(super::super::Child { pid }.wait().expect("ends"), crate::ChildEnd::Exited(0)),
        }
    }

    #[test]
    fn reads_entries() {
        let of = |name: &[u8]| {
            let mut bytes = vec![0; NAME_AT];
            bytes.extend_from_slice(name);
            bytes.resize(bytes.len().next_multiple_of(8) + 8, 0);
            let length = bytes.len() as u16;
            bytes[LENGTH_AT..LENGTH_AT + 2].copy_from_slice(&length.to_ne_bytes());
            (entry(&bytes).map(|(number, _)| number), bytes.len())
        };
        assert_eq!(of(b"17").0, Some(Some(17)));
        assert_eq!(of(b"..").0, Some(None));
        assert_eq!(entry(&[0; 30]), None);
        assert_eq!(entry(b""), None);
        let file = File::open("/dev/null").expect("opens").into_raw_fd();
        // SAFETY: the descriptor is ours, and nothing else uses it.
        unsafe { close_range(file, file) };
    }
}
