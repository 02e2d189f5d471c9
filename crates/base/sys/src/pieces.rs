//! Copying a file by reading and writing, for systems that have no better way.
//!
//! Unaware of: why it is copied.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The buffer size, in bytes. On Linux, 64 kB was best for files of 1 MB. For larger files, a
/// larger buffer was better, because its page faults no longer matter then (docs/performance.md,
/// "Putting an output in place"). It was not measured on other systems.
const PIECE_BYTES: u64 = 256 << 10;

/// Copies the bytes of `from` between `start` and `end` to the same offset in `to`. Returns how
/// many bytes there were.
pub(crate) fn copy_pieces(mut from: &File, mut to: &File, start: u64, end: u64) -> io::Result<u64> {
    from.seek(SeekFrom::Start(start))?;
    to.seek(SeekFrom::Start(start))?;
    let mut left = end.saturating_sub(start);
    let mut buffer = vec![0; left.min(PIECE_BYTES) as usize];
    while left > 0 {
        let room = left.min(PIECE_BYTES) as usize;
        match from.read(&mut buffer[..room]) {
            Ok(0) => break,
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                left -= count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(end.saturating_sub(start) - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_between_two_places_and_no_more() {
        let size = 2 * PIECE_BYTES + 1000;
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("larder-pieces-{}", std::process::id()));
        for (start, end, expect) in
            [(0, size, size), (0, 10, 10), (PIECE_BYTES, size + 5, PIECE_BYTES + 1000), (9, 3, 0)]
        {
            std::fs::write(&path, &bytes).expect("writes");
            let from = File::open(&path).expect("opens");
            let target = path.with_extension("made");
            let mut to =
                File::options().read(true).write(true).create(true).truncate(true).open(&target).expect("makes");
            assert_eq!(copy_pieces(&from, &to, start, end).expect("copies"), expect);
            let mut found = Vec::new();
            to.seek(SeekFrom::Start(start)).expect("goes there");
            to.read_to_end(&mut found).expect("reads");
            assert!(found == bytes[start as usize..(start + expect) as usize], "{start} to {end}");
            std::fs::remove_file(&target).expect("removes");
        }
        std::fs::remove_file(&path).expect("removes");
    }
}
