//! Looks for the time of the run in outputs. Archivers write it into archives, and linkers and
//! assemblers into programs and objects for Windows (PE and COFF). That such a program read the
//! clock proves nothing, because every compiler and linker does so.
//!
//! Unaware of: which program wrote an output.

use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;

use larder_model::{Change, Unrecorded};
use larder_sys::Opening;

use super::archive_times::Archive;
use super::not_recorded::NotRecorded;

const SECOND_NS: i64 = 1_000_000_000;

/// Returns an error if a new file holds the time of this run where files of its kind hold a time:
///
/// - in the header of an archive's member. Unless an archiver is deterministic, the symbol table
///   has the time of the run, and each member an mtime. `strip -U` gives the time of the run to all
///   members.
/// - in the header of a program or object for Windows. `ld` and `lld` write it unless they are told
///   not to, and clang does so for targets whose linker is incremental.
pub(super) fn no_output_is_dated(changed: &[(Vec<u8>, Change)], started_ns: i64) -> Result<(), NotRecorded> {
    let run = started_ns.div_euclid(SECOND_NS)..=larder_sys::now_coarse_ns().div_euclid(SECOND_NS);
    let files = changed.iter().filter(|(_, change)| matches!(change, Change::File { .. }));
    match files.map(|(path, _)| path).find(|path| is_dated(path, &run).unwrap_or(false)) {
        Some(path) => Err(NotRecorded::Because(Unrecorded::Clock, path.clone())),
        None => Ok(()),
    }
}

fn is_dated(path: &[u8], run: &RangeInclusive<i64>) -> io::Result<bool> {
    let file = larder_sys::open(path, Opening::Read)?;
    let is_then = |time_s: Option<i64>| time_s.is_some_and(|time_s| run.contains(&time_s));
    if is_then(coff_time_s(&file, 0)) {
        return Ok(true);
    }
    let Some(mut archive) = Archive::of(file)? else { return Ok(false) };
    while let Some((time_s, at)) = archive.next_member()? {
        if is_then(time_s) || is_then(coff_time_s(&archive.file, at)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the time in the header of a PE or COFF file that begins at this position, in seconds
/// since 1970 (Microsoft's "PE Format"). Returns `None` if there is no such file.
fn coff_time_s(file: &impl FileExt, at: u64) -> Option<i64> {
    const DOS_OFFSET_AT: u64 = 0x3c;
    /// The numbers of x86, x86-64, Arm, Thumb and Arm64.
    const MACHINES: [u16; 5] = [0x14c, 0x8664, 0x1c0, 0x1c4, 0xaa64];
    let mut start = [0; 4];
    file.read_exact_at(&mut start, at).ok()?;
    let time_at = match start {
        // A program begins with one for DOS, which says where the other begins: with `PE`, then
        // the header.
        [b'M', b'Z', ..] => {
            let pe_at = at + u64::from(number(file, at + DOS_OFFSET_AT)?);
            (number(file, pe_at)? == u32::from_le_bytes(*b"PE\0\0")).then_some(pe_at + 8)?
        }
        // An object with many sections (`/bigobj`).
        [0, 0, 0xff, 0xff] => at + 8,
        [low, high, ..] if MACHINES.contains(&u16::from_le_bytes([low, high])) => at + 4,
        _ => return None,
    };
    number(file, time_at).map(i64::from)
}

fn number(file: &impl FileExt, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(u32::from_le_bytes(bytes))
}
