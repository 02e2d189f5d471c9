//! Looks for times and owners in archives.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::Family;
use larder_model::{Change, Unrecorded};

use super::not_recorded::NotRecorded;

const MAGIC_BYTES: usize = 8;
/// The size of a member's header.
const HEADER_BYTES: usize = 60;

/// Returns true if the archive at `path` has no times and no owners. The headers of its members are
/// text: the time has 12 characters from offset 16, then come owner and group with 6 each (System
/// V's `ar.h`).
pub(super) fn archive_has_none(path: &[u8]) -> bool {
    members_have_none(path).unwrap_or(false)
}

/// Returns an error if a new archive holds the time of this run. Unless an archiver is
/// deterministic, it writes the time into the symbol table, which is the first member. Reading the
/// clock says nothing: libraries of archivers read it as well.
pub(super) fn no_symbols_are_dated(
    changed: &[(Vec<u8>, Change)],
    family: Family,
    started_ns: i64,
) -> Result<(), NotRecorded> {
    let may_be = |path: &[u8]| family == Family::Binutils || path.ends_with(b".a");
    let is_dated = |path: &[u8]| symbols_time_s(path).is_ok_and(|time_s| time_s >= started_ns / 1_000_000_000);
    let files = changed.iter().filter(|(_, change)| matches!(change, Change::File { .. }));
    match files.map(|(path, _)| path).find(|path| may_be(path) && is_dated(path)) {
        Some(path) => Err(NotRecorded::Because(Unrecorded::Clock, path.clone())),
        None => Ok(()),
    }
}

/// Returns the time in the header of the symbol table, in seconds since 1970.
fn symbols_time_s(path: &[u8]) -> io::Result<i64> {
    let mut start = [0; MAGIC_BYTES + HEADER_BYTES];
    File::open(Path::new(OsStr::from_bytes(path)))?.read_exact(&mut start)?;
    let (magic, header) = start.split_at(MAGIC_BYTES);
    let name = header[..16].trim_ascii_end();
    let is_table = [b"!<arch>\n", b"!<thin>\n"].contains(&&magic.try_into().unwrap_or_default())
        && (name == b"/" || name == b"/SYM64/" || name.starts_with(b"__.SYMDEF"));
    let time = std::str::from_utf8(&header[16..28]).unwrap_or_default().trim_end();
    time.parse().ok().filter(|_| is_table).ok_or(io::Error::from(io::ErrorKind::InvalidData))
}

fn members_have_none(path: &[u8]) -> io::Result<bool> {
    let mut file = File::open(Path::new(OsStr::from_bytes(path)))?;
    let mut magic = [0; MAGIC_BYTES];
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
