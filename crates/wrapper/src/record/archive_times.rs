//! Looks for times and owners in archives.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns true if the archive at `path` has no times and no owners. The headers of its members are
/// text: the time has 12 characters from offset 16, then come owner and group with 6 each (System
/// V's `ar.h`).
pub(super) fn archive_has_none(path: &[u8]) -> bool {
    members_have_none(path).unwrap_or(false)
}

fn members_have_none(path: &[u8]) -> io::Result<bool> {
    const HEADER_BYTES: usize = 60;
    let mut file = File::open(Path::new(OsStr::from_bytes(path)))?;
    let mut magic = [0; 8];
    file.read_exact(&mut magic)?;
    let thin = &magic == b"!<thin>\n";
    if &magic != b"!<arch>\n" && !thin {
        return Ok(false);
    }
    let mut header = [0; HEADER_BYTES];
    loop {
        match file.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
        let field = |from: usize, to: usize| std::str::from_utf8(&header[from..to]).unwrap_or("?").trim_end();
        if ![field(16, 28), field(28, 34), field(34, 40)].iter().all(|number| matches!(*number, "" | "0")) {
            return Ok(false);
        }
        let own_bytes = !thin || header[0] == b'/' && !header[1].is_ascii_digit();
        let size = field(48, 58).parse::<u32>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if own_bytes {
            file.seek(SeekFrom::Current(i64::from(size) + i64::from(size % 2)))?;
        }
    }
}
