//! Looks for the time of the run in outputs and messages. Archivers and `gzip` write it into
//! archives, and linkers and assemblers into programs and objects for Windows (PE and COFF). That
//! such a program read the clock proves nothing, because every compiler and linker does so. Any
//! program may print the mtime of a file that the command made, for example `diff -u`.
//!
//! Unaware of: which program wrote an output.

use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;

use larder_model::{Change, Unrecorded, contains};
use larder_sys::Opening;
use memchr::memmem;

use super::archive_times::Archive;
use super::mtimes::SECOND_NS;
use super::not_recorded::NotRecorded;

/// Time zones differ from UTC by a multiple of this.
const ZONE_STEP_S: i64 = 15 * 60;
const DAY_S: i64 = 24 * 60 * 60;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The seconds since 1970 in which the command ran.
pub(super) struct RunTime(RangeInclusive<i64>);

impl RunTime {
    /// Returns the time from `started_ns` until now.
    pub(super) fn until_now(started_ns: i64) -> RunTime {
        RunTime(started_ns.div_euclid(SECOND_NS)..=larder_sys::now_coarse_ns().div_euclid(SECOND_NS))
    }

    /// Returns true if a text has this time in it: as seconds since 1970, perhaps with a fraction,
    /// or as a date and a time of day in any time zone. For example `1795863123`,
    /// `2026-11-28 10:51:50`, `Sat Nov 28 10:51:50 2026` or `28 Nov 2026 10:51:50`.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        self.is_number_in(text) || self.is_date_in(text)
    }

    fn is_number_in(&self, text: &[u8]) -> bool {
        const DIGITS: usize = 10;
        let (first, last) = (self.0.start().to_string(), self.0.end().to_string());
        let common = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
        memmem::find_iter(text, &first.as_bytes()[..common]).any(|at| {
            let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            // Seconds, milliseconds, microseconds or nanoseconds.
            let is_time = matches!(digits, DIGITS | 13 | 16 | 19)
                && !at.checked_sub(1).is_some_and(|before| text[before].is_ascii_digit());
            is_time && decimal(&text[at..at + DIGITS]).is_some_and(|time_s| self.0.contains(&time_s))
        })
    }

    fn is_date_in(&self, text: &[u8]) -> bool {
        /// The day, the time of day and the zone are at most so far from the year.
        const NEAR: usize = 36;
        // In another time zone, it may be the day before or after.
        let days = (self.0.start() - DAY_S).div_euclid(DAY_S)..=(self.0.end() + DAY_S).div_euclid(DAY_S);
        days.map(date).any(|(year, month, day)| {
            let name = MONTHS[month - 1];
            let forms = [
                format!("-{month:02}-{day:02}"),
                format!("{name} {day:2}"),
                format!("{name} {day:02}"),
                format!("{day} {name}"),
            ];
            memmem::find_iter(text, year.to_string().as_bytes()).any(|at| {
                let near = &text[at.saturating_sub(NEAR)..text.len().min(at + 4 + NEAR)];
                forms.iter().any(|form| contains(near, form)) && self.is_time_of_day_in(near)
            })
        })
    }

    /// Returns true if the text has a time of day that was during the run: in the zone that follows,
    /// as in `10:51:50.3 +0100`, or else in any zone.
    fn is_time_of_day_in(&self, text: &[u8]) -> bool {
        const BYTES: usize = 8;
        let length = self.0.end() - self.0.start();
        text.windows(BYTES).enumerate().any(|(at, word)| {
            let parts = [&word[..2], &word[3..5], &word[6..]].map(decimal);
            let ([Some(hours), Some(minutes), Some(seconds)], b':', b':') = (parts, word[2], word[5]) else {
                return false;
            };
            let time_s = (hours * 60 + minutes) * 60 + seconds - self.0.start();
            match zone_s(&text[at + BYTES..]) {
                Some(zone_s) => (time_s - zone_s).rem_euclid(DAY_S) <= length,
                None => time_s.rem_euclid(ZONE_STEP_S) <= length,
            }
        })
    }
}

/// Returns how far the zone after a time of day is from UTC: ` +0530`, `+05:30`, ` UTC` or `Z`,
/// perhaps after a fraction of a second or the year. Returns `None` if there is none.
fn zone_s(rest: &[u8]) -> Option<i64> {
    let rest = match rest.strip_prefix(b".") {
        Some(fraction) => &fraction[fraction.iter().take_while(|byte| byte.is_ascii_digit()).count()..],
        None => rest,
    };
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let year = rest.get(..5).filter(|year| year[4] == b' ' && decimal(&year[..4]).is_some());
    let rest = year.map_or(rest, |year| &rest[year.len()..]);
    if rest.starts_with(b"UTC") || rest.starts_with(b"GMT") {
        return Some(0);
    }
    let sign = match rest.first()? {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let minutes_at = if rest.get(3) == Some(&b':') { 4 } else { 3 };
    let (hours, minutes) = (decimal(rest.get(1..3)?)?, decimal(rest.get(minutes_at..minutes_at + 2)?)?);
    Some(sign * (hours * 60 + minutes) * 60)
}

/// Returns the number that the digits are, or `None` if they are no digits.
fn decimal(digits: &[u8]) -> Option<i64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    all.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// Returns the year, the month (1 to 12) and the day of the month of a day, by Howard Hinnant's
/// `civil_from_days`. `days` is the number of days since 1970.
fn date(days: i64) -> (i64, usize, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month as usize, day_of_year - (153 * from_march + 2) / 5 + 1)
}

/// Returns an error if a new file holds the time of this run where files of its kind hold a time:
///
/// - in the header of an archive's member. Unless an archiver is deterministic, the symbol table
///   has the time of the run, and each member an mtime. `strip -U` gives the time of the run to all
///   members.
/// - in the header of a file of `gzip`. It has the mtime of the file that was compressed, or 0 if
///   that was a pipe or `gzip` was told to leave it out (`-n`).
/// - in the header of a program or object for Windows. `ld` and `lld` write it unless they are told
///   not to, and clang does so for targets whose linker is incremental.
pub(super) fn no_output_is_dated(changed: &[(Vec<u8>, Change)], started_ns: i64) -> Result<(), NotRecorded> {
    let RunTime(run) = RunTime::until_now(started_ns);
    let files = changed.iter().filter(|(_, change)| matches!(change, Change::File { .. }));
    match files.map(|(path, _)| path).find(|path| is_dated(path, &run).unwrap_or(false)) {
        Some(path) => Err(NotRecorded::Because(Unrecorded::Clock, path.clone())),
        None => Ok(()),
    }
}

fn is_dated(path: &[u8], run: &RangeInclusive<i64>) -> io::Result<bool> {
    let file = larder_sys::open(path, Opening::Read)?;
    let is_then = |time_s: Option<i64>| time_s.is_some_and(|time_s| run.contains(&time_s));
    if is_then(gzip_time_s(&file)) || is_then(coff_time_s(&file, 0)) {
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

/// Returns the time in the header of a file of `gzip` (RFC 1952), in seconds since 1970. Returns
/// `None` if the file has another format.
fn gzip_time_s(file: &impl FileExt) -> Option<i64> {
    const DEFLATED: [u8; 3] = [0x1f, 0x8b, 8];
    let mut start = [0; 3];
    file.read_exact_at(&mut start, 0).ok()?;
    (start == DEFLATED).then(|| number(file, 4).map(i64::from))?
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let cases = [(0, (1970, 1, 1)), (11_016, (2000, 2, 29)), (11_017, (2000, 3, 1)), (20_785, (2026, 11, 28))];
        for (days, expect) in cases {
            assert_eq!(date(days), expect, "{days}");
        }
    }

    #[test]
    fn the_time_of_a_run() {
        let run = RunTime(1_795_863_110..=1_795_863_123);
        for text in [
            "1795863123",
            "t=1795863110.25\n",
            "1795863119123456789",
            "--- n\t2026-11-28 10:51:50.385232493 +0000",
            "2026-11-28T16:21:52+05:30",
            "2026-11-28T10:51:52Z",
            "2026-11-28 12:51:52",
            "Sat Nov 28 10:51:50 2026",
            "Sat, 28 Nov 2026 10:51:50 +0000",
            "Sat Nov 28 11:51:50 2026 +0100",
            "Sat Nov 28 10:51:50 UTC 2026",
        ] {
            assert!(run.is_in(text.as_bytes()), "{text}");
        }
        for text in [
            "1795863109",
            "1795863124",
            "17958631201",
            "01795863120",
            "2026-11-28 10:51:49",
            "2025-11-28 10:51:50",
            "Copyright 2026, 10:51:50",
            "2026-10-28 10:51:50",
            "2026-11-26 10:51:50",
            "2026-11-28 12:51:52.385232493 +0000",
            "2026-11-28 12:51:52Z",
            "Sat Nov 28 10:51:50 2026 +0100",
            "Sat Nov 28 12:51:52 UTC 2026",
            "Nov 20 10:51:50 2026",
            "",
        ] {
            assert!(!run.is_in(text.as_bytes()), "{text}");
        }
    }
}
