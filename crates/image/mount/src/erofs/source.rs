//! The bytes of an image's metadata, read at any position.
//!
//! Unaware of: what the bytes mean.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes of a window, and how many windows there are: 1 MiB in all. Inodes and the blocks of
/// directories are in two places, and each is read nearly in order.
const WINDOW_BYTES: usize = 16 << 10;
const WINDOWS: usize = 64;

/// Bytes with positions.
pub(crate) trait Source {
    /// Reads bytes at this position. Returns how many there were, which is fewer only at the end.
    fn read_some(&self, to: &mut [u8], at: u64) -> io::Result<usize>;

    /// Reads bytes at this position. Fails if there are fewer.
    fn read_exact(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        let is_all = self.read_some(to, at)? == to.len();
        if is_all { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Source for File {
    fn read_some(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        let mut count = 0;
        while count < to.len() {
            match self.read_at(&mut to[count..], at + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }
}

/// A file whose bytes are kept for a while in windows, for a reader that asks for nearly all of
/// them. A call of the kernel for each inode would take five times as long.
pub(crate) struct Windows {
    file: File,
    /// Window `n` of the file is kept in slot `n % WINDOWS`.
    slots: RefCell<Vec<Option<Window>>>,
}

struct Window {
    number: u64,
    bytes: Vec<u8>,
}

impl Windows {
    pub(crate) fn new(file: File) -> Windows {
        Windows { file, slots: RefCell::new((0..WINDOWS).map(|_| None).collect()) }
    }
}

impl Source for Windows {
    fn read_some(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        let (mut slots, mut count) = (self.slots.borrow_mut(), 0);
        while count < to.len() {
            let at = at.checked_add(count as u64).ok_or(io::ErrorKind::InvalidInput)?;
            let (number, within) = (at / WINDOW_BYTES as u64, (at % WINDOW_BYTES as u64) as usize);
            let slot = &mut slots[(number % WINDOWS as u64) as usize];
            let window = match slot.take() {
                Some(window) if window.number == number => slot.insert(window),
                old => {
                    let mut bytes = old.map(|old| old.bytes).unwrap_or_default();
                    bytes.resize(WINDOW_BYTES, 0);
                    let length = self.file.read_some(&mut bytes, number * WINDOW_BYTES as u64)?;
                    bytes.truncate(length);
                    slot.insert(Window { number, bytes })
                }
            };
            let found = window.bytes.get(within..).unwrap_or_default();
            let more = found.len().min(to.len() - count);
            if more == 0 {
                break;
            }
            to[count..count + more].copy_from_slice(&found[..more]);
            count += more;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_give_the_bytes_of_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let length = WINDOW_BYTES * (WINDOWS + 2) + 77;
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).expect("writes");
        let [file, windows] = [(), ()].map(|()| File::open(&path).expect("opens"));
        let windows = Windows::new(windows);
        let starts = [0, 5, WINDOW_BYTES - 3, WINDOW_BYTES * WINDOWS + 1, 9, length - 10, length, length * 2];
        for (at, wanted) in starts.iter().flat_map(|at| [1, 64, WINDOW_BYTES * 2 + 1].map(|wanted| (*at, wanted))) {
            let (mut expect, mut found) = (vec![0; wanted], vec![0; wanted]);
            let count = file.read_some(&mut expect, at as u64).expect("reads");
            assert_eq!(windows.read_some(&mut found, at as u64).expect("reads"), count, "{wanted} at {at}");
            assert_eq!(found[..count], expect[..count], "{wanted} at {at}");
            assert_eq!(windows.read_exact(&mut found, at as u64).is_ok(), count == wanted, "{wanted} at {at}");
        }
        assert!(windows.read_some(&mut [0; 2], u64::MAX).is_err());
    }
}
