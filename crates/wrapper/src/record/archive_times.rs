//! Reads the times and owners of members in `ar` archives. A deterministic archiver (`ar D`) writes
//! zeros; any other writes mtimes, owners, and the time of the run.
//!
//! Unaware of: the content of members.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use larder_sys::Opening;

/// The size of a member's header. Headers are text: the name has 16 characters, the time 12, owner
/// and group 6 each, the mode 8, and the size 10 (System V's `ar.h`).
const HEADER_BYTES: usize = 60;

/// Returns true if all members of the archive at `path` have no time and no owner.
pub(super) fn archive_has_none(path: &[u8]) -> bool {
    members_have_none(path).unwrap_or(false)
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

/// An archive, and the position of the next header in it.
pub(super) struct Archive {
    pub(super) file: File,
    /// The archive names its members, and does not contain them.
    is_thin: bool,
}

impl Archive {
    /// Returns `None` if the file is no archive.
    fn open(path: &[u8]) -> io::Result<Option<Archive>> {
        Archive::of(larder_sys::open(path, Opening::Read)?)
    }

    /// Returns `None` if the file is no archive. The file must not have been read.
    pub(super) fn of(mut file: File) -> io::Result<Option<Archive>> {
        let mut magic = [0; 8];
        file.read_exact(&mut magic)?;
        let is_thin = &magic == b"!<thin>\n";
        Ok((is_thin || &magic == b"!<arch>\n").then_some(Archive { file, is_thin }))
    }

    /// Goes on to the next member, and returns its time in seconds since 1970 and the position of
    /// its content. Returns `None` at the end.
    pub(super) fn next_member(&mut self) -> io::Result<Option<(Option<i64>, u64)>> {
        let Some(header) = self.header()? else { return Ok(None) };
        let at = self.file.stream_position()?;
        self.skip(&header)?;
        Ok(Some((field(&header, 16, 28).parse().ok(), at)))
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
