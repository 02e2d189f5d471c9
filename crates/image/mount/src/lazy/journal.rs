//! The journal: a file with the units of a data file, in the order in which they were filled. Also
//! the trace, which is the list of what was read.
//!
//! ```text
//! "LRDRUNIT"  boot ID, 36 bytes  size of the file u64  size of a unit u64  |  unit u32 …
//! ```
//!
//! Numbers are little-endian. The journal is valid for one boot only: after a crash of the system,
//! the journal may be on the disk while the bytes are not.
//!
//! Unaware of: the data file itself.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::units::Units;

const MAGIC: &[u8; 8] = b"LRDRUNIT";
const BOOT_BYTES: usize = 36;
const HEADER_BYTES: usize = 8 + BOOT_BYTES + 16;
/// The limit for units, so for the length of a journal (256 MiB). With units of 4 KiB, that is a
/// file of 256 GiB.
const UNITS_MAX: u64 = 1 << 26;

/// A journal that is open for appending.
#[derive(Debug)]
pub(super) struct Journal(File);

impl Journal {
    /// Opens the journal at `path` and returns the units in it, each once. It is started anew if it
    /// is of another file size, unit size or boot.
    pub(super) fn open(path: &Path, size_bytes: u64, unit_bytes: u64) -> io::Result<(Journal, Vec<u64>)> {
        let header = header(size_bytes, unit_bytes)?;
        let file = File::options().read(true).append(true).create(true).open(path)?;
        let (journal, units) = (Journal(file), Units::none(size_bytes, unit_bytes));
        match journal.read() {
            Ok((found, entries)) if found == header => {
                // If a process was killed while it wrote an entry, the file ends with part of one.
                journal.0.set_len((HEADER_BYTES + entries.len() * 4) as u64)?;
                let mut seen = units;
                return Ok((journal, entries.into_iter().filter(|unit| seen.put(*unit)).collect()));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
        journal.0.set_len(0)?;
        (&journal.0).write_all(&header)?;
        Ok((journal, Vec::new()))
    }

    /// Returns the entries after the first `count` ones. Other processes may have added some.
    pub(super) fn units_from(&self, count: usize) -> io::Result<Vec<u64>> {
        entries(&self.0, HEADER_BYTES as u64 + count as u64 * 4)
    }

    pub(super) fn add(&self, units: impl Iterator<Item = u64>) -> io::Result<()> {
        let bytes: Vec<u8> = units.flat_map(|unit| (unit as u32).to_le_bytes()).collect();
        if bytes.is_empty() { Ok(()) } else { (&self.0).write_all(&bytes) }
    }

    fn read(&self) -> io::Result<(Vec<u8>, Vec<u64>)> {
        let mut header = vec![0; HEADER_BYTES];
        self.0.read_exact_at(&mut header, 0)?;
        Ok((header, entries(&self.0, HEADER_BYTES as u64)?))
    }
}

/// Reads all complete entries from a position on.
fn entries(file: &File, at: u64) -> io::Result<Vec<u64>> {
    let mut bytes = Vec::new();
    At { file, at }.take(UNITS_MAX * 4).read_to_end(&mut bytes)?;
    let unit = |four: &[u8]| four.try_into().map(u32::from_le_bytes).map(u64::from).unwrap_or(u64::MAX);
    Ok(bytes.chunks_exact(4).map(unit).collect())
}

/// A reader of a file from a position on. It does not move the offset that other users of the file
/// share.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

fn header(size_bytes: u64, unit_bytes: u64) -> io::Result<Vec<u8>> {
    if size_bytes.div_ceil(unit_bytes) > UNITS_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file has too many units"));
    }
    let mut boot = larder_sys::boot_id()?.into_bytes();
    boot.resize(BOOT_BYTES, 0);
    Ok([&MAGIC[..], &boot, &size_bytes.to_le_bytes(), &unit_bytes.to_le_bytes()].concat())
}

/// What was read, in the order of the first reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Ranges of bytes that do not overlap.
    pub ranges: Vec<Range<u64>>,
}

impl Trace {
    pub(super) fn of(entries: &[u64], units: &Units) -> Trace {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for unit in entries {
            let bytes = units.bytes(&(*unit..unit + 1));
            match ranges.last_mut() {
                Some(last) if last.end == bytes.start => last.end = bytes.end,
                _ => ranges.push(bytes),
            }
        }
        Trace { ranges }
    }

    /// Writes the text form: a line `OFFSET LENGTH` for each range.
    pub fn encode(&self) -> String {
        self.ranges.iter().map(|range| format!("{} {}\n", range.start, range.end - range.start)).collect()
    }

    /// Parses the text form. Returns `None` if a line is not a range.
    pub fn decode(text: &str) -> Option<Trace> {
        let range = |line: &str| {
            let (offset, length) = line.split_once(' ')?;
            let offset: u64 = offset.parse().ok()?;
            Some(offset..offset.checked_add(length.parse().ok()?)?)
        };
        Some(Trace { ranges: text.lines().map(range).collect::<Option<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_of_one_file_and_boot() {
        let directory = tempfile::tempdir().expect("makes");
        let path = directory.path().join("journal");
        let (journal, units) = Journal::open(&path, 1000, 100).expect("makes");
        assert_eq!(units, Vec::<u64>::new());
        journal.add([7, 2, 7, 3, 900].into_iter()).expect("writes");
        (&journal.0).write_all(&[1]).expect("writes a part of an entry");
        let (journal, units) = Journal::open(&path, 1000, 100).expect("opens");
        assert_eq!(units, [7, 2, 3]);
        assert_eq!(journal.units_from(0).expect("reads").len(), 5);
        assert_eq!(journal.units_from(3).expect("reads"), [3, 900]);
        assert_eq!(journal.units_from(9).expect("reads"), Vec::<u64>::new());
        assert_eq!(Journal::open(&path, 1001, 100).expect("opens").1, Vec::<u64>::new(), "of another file");
        assert_eq!(
            Journal::open(&path, 1000, 100).expect("opens").1,
            Vec::<u64>::new(),
            "the journal was started anew"
        );
        let bytes = std::fs::read(&path).expect("reads");
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert!(Journal::open(&path, u64::MAX, 1).is_err());
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let trace = Trace::of(&[7, 8, 2, 9], &Units::none(950, 100));
        assert_eq!(trace.ranges, [700..900, 200..300, 900..950]);
        assert_eq!(trace.encode(), "700 200\n200 100\n900 50\n");
        assert_eq!(Trace::decode(&trace.encode()), Some(trace));
        for odd in ["1", "1 2 3", "-1 2", "18446744073709551615 1", "a b"] {
            assert_eq!(Trace::decode(odd), None, "{odd}");
        }
    }
}
