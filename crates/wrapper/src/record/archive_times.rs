//! Reads the times and owners of members in `ar` archives. A deterministic archiver (`ar D`) writes
//! zeros; any other writes mtimes, owners, and the time of the run.
//!
//! Unaware of: the content of members.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use larder_compiler::Family;
use larder_model::{Change, Unrecorded};
use larder_sys::Opening;

use super::not_recorded::NotRecorded;

/// The size of a member's header. Headers are text: the name has 16 characters, the time 12, owner
/// and group 6 each, the mode 8, and the size 10 (System V's `ar.h`).
const HEADER_BYTES: usize = 60;

/// Returns true if all members of the archive at `path` have no time and no owner.
pub(super) fn archive_has_none(path: &[u8]) -> bool {
    members_have_none(path).unwrap_or(false)
}

/// Returns an error if a new archive holds the time of this run. Unless an archiver is
/// deterministic, it writes the time into the symbol table, which is the first member. That the
/// archiver read the clock proves nothing, because its libraries read it as well.
pub(super) fn no_symbols_are_dated(
    changed: &[(Vec<u8>, Change)],
    family: Family,
    started_ns: i64,
) -> Result<(), NotRecorded> {
    let may_be = |path: &[u8]| family == Family::Binutils || path.ends_with(b".a");
    let is_dated = |path: &[u8]| symbols_time_s(path).is_some_and(|time_s| time_s >= started_ns / 1_000_000_000);
    let files = changed.iter().filter(|(_, change)| matches!(change, Change::File { .. }));
    match files.map(|(path, _)| path).find(|path| may_be(path) && is_dated(path)) {
        Some(path) => Err(NotRecorded::Because(Unrecorded::Clock, path.clone())),
        None => Ok(()),
    }
}

/// Returns the time in the header of the symbol table, in seconds since 1970. Returns `None` if the
/// file has no such table.
fn symbols_time_s(path: &[u8]) -> Option<i64> {
    let header = Archive::open(path).ok()??.header().ok()??;
    let name = field(&header, 0, 16);
    let is_table = name == "/" || name == "/SYM64/" || name.starts_with("__.SYMDEF");
    field(&header, 16, 28).parse().ok().filter(|_| is_table)
}

fn members_have_none(path: &[u8]) -> io::Result<bool> {
    let Some(mut archive) = Archive::open(path)? else { return Ok(false) };
    while let Some(header) = archive.header()? {
        let told = [(16, 28), (28, 34), (34, 40)].map(|(from, to)| field(&header, from, to));
        if !told.iter().all(|number| matches!(*number, "" | "0")) {
            return Ok(false);
        }
        archive.skip(&header)?;
    }
    Ok(true)
}

fn field(header: &[u8; HEADER_BYTES], from: usize, to: usize) -> &str {
    std::str::from_utf8(&header[from..to]).unwrap_or("?").trim_end()
}

struct Archive {
    file: File,
    /// The archive names its members, and does not contain them.
    is_thin: bool,
}

impl Archive {
    /// Returns `None` if the file is no archive.
    fn open(path: &[u8]) -> io::Result<Option<Archive>> {
        let mut file = larder_sys::open(path, Opening::Read)?;
        let mut magic = [0; 8];
        file.read_exact(&mut magic)?;
        let is_thin = &magic == b"!<thin>\n";
        Ok((is_thin || &magic == b"!<arch>\n").then_some(Archive { file, is_thin }))
    }

    /// Reads the header of the next member, or returns `None` at the end.
    fn header(&mut self) -> io::Result<Option<[u8; HEADER_BYTES]>> {
        let mut header = [0; HEADER_BYTES];
        match self.file.read_exact(&mut header) {
            Ok(()) => Ok(Some(header)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Goes on behind the member with this header.
    fn skip(&mut self, header: &[u8; HEADER_BYTES]) -> io::Result<()> {
        let has_bytes = !self.is_thin || header[0] == b'/' && !header[1].is_ascii_digit();
        let size = field(header, 48, 58).parse::<u32>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if has_bytes {
            self.file.seek(SeekFrom::Current(i64::from(size) + i64::from(size % 2)))?;
        }
        Ok(())
    }
}
