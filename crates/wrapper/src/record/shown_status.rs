//! Looks in what a run left for what `stat` said about inputs, and for the directory of temporary
//! files.
//!
//! clang makes names of a device and inode number in hexadecimal:
//!
//! - `__omp_offloading_fe00_6a41bc_f_l3` for the code of `#pragma omp target`, on the host as well,
//! - `v_6a41bc_decl_tgt_ref_ptr` for a static variable of `#pragma omp declare target`,
//! - `_ZL1v.static.6a41bcfe00_…` or `_ZL1v__static__6a41bcfe00_…` for a static variable of CUDA or
//!   HIP, if no identifier of the compile is given.
//!
//! An equal file with another inode number then gives another result. A linker for macOS writes the
//! mtimes of objects into a program, so that a debugger can tell whether they are still the same.
//!
//! Maps of linkers and messages of `-v` hold names of temporary files. These are random, but their
//! directory is not.
//!
//! Unaware of: which program made an output.

use std::collections::BTreeSet;

use larder_model::{Change, Looked, Seen, Times};
use larder_portability::SEARCHED_BYTES_MAX;
use larder_spawn::Written;
use memchr::memmem;

use super::mtimes::SECOND_NS;

/// The variables that name the directory of temporary files.
const TEMPORARY: [&[u8]; 4] = [b"TMPDIR", b"TMP", b"TEMP", b"TEMPDIR"];

/// Makes the status or mtime of each input an observation that is in an output or a message, and
/// the variables for the directory of temporary files if a path of one is there. `value` returns
/// the value of a variable; it is `None` if all variables are in the key.
pub(super) fn note_shown_status(seen: &mut Seen, written: &Written, value: Option<Value>) {
    let named = TEMPORARY.iter().filter_map(|name| value?(name)).filter(|path| path.starts_with(b"/"));
    let mut shown = Shown::default();
    if value.is_some() {
        shown.directories = named.chain([b"/tmp".to_vec()]).collect();
    }
    for (path, _) in seen.changed.iter().filter(|(_, change)| matches!(change, Change::File { .. })) {
        if let Ok(Some(bytes)) = larder_sys::read_at_most(path, SEARCHED_BYTES_MAX) {
            shown.search(&bytes);
            if let Some(number_bytes) = bytes_of_number(&bytes) {
                let mtimes = seen.looked.iter().filter_map(|(_, looked)| mtime_s(looked));
                let is_in = |time_s: &i64| memmem::find(&bytes, &time_s.to_le_bytes()[..number_bytes]).is_some();
                shown.mtimes_s.extend(mtimes.filter(is_in));
            }
        }
    }
    match written {
        Written::Apart { stdout, stderr } => [stdout, stderr].into_iter().for_each(|text| shown.search(text)),
        Written::Together(text) => shown.search(text),
    }
    if let Some(value) = value.filter(|_| shown.is_temporary) {
        seen.environment.extend(TEMPORARY.iter().map(|name| (name.to_vec(), value(name))));
    }
    if shown.numbers.is_empty() && shown.mtimes_s.is_empty() {
        return;
    }
    for (_, looked) in &mut seen.looked {
        let is_meant = |(device, inode): (String, String)| shown.numbers.iter().any(|it| it.is(&device, &inode));
        if hexadecimal(looked).is_some_and(is_meant) {
            looked.times = looked.times.max(Times::Status);
        }
        if mtime_s(looked).is_some_and(|time_s| shown.mtimes_s.contains(&time_s)) {
            looked.times = looked.times.max(Times::Inputs);
        }
    }
}

/// Returns the value of a variable.
pub(super) type Value<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// Holds what outputs and messages show.
#[derive(Default)]
struct Shown {
    numbers: Vec<Number>,
    /// Seconds since 1970.
    mtimes_s: BTreeSet<i64>,
    /// The directories in which temporary files may be.
    directories: BTreeSet<Vec<u8>>,
    /// The path of a temporary file.
    is_temporary: bool,
}

impl Shown {
    fn search(&mut self, text: &[u8]) {
        self.numbers.extend(numbers(text));
        self.is_temporary |= self.directories.iter().any(|directory| names_temporary_file(text, directory));
    }
}

/// Returns true if the text has the path of a temporary file of gcc (`ccq3hT0a.o`) or clang
/// (`x-1b2c3d.o`) in this directory.
fn names_temporary_file(text: &[u8], directory: &[u8]) -> bool {
    const RANDOM_BYTES: usize = 6;
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let is_hexadecimal = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_random = |rest: &[u8], is_digit: &dyn Fn(&u8) -> bool| {
        rest.iter().take_while(|byte| is_digit(byte)).count() == RANDOM_BYTES
            && rest.get(RANDOM_BYTES).is_none_or(|byte| *byte == b'.')
    };
    let is_temporary = |name: &[u8]| {
        name.strip_prefix(b"cc").is_some_and(|rest| is_random(rest, &u8::is_ascii_alphanumeric))
            || memmem::find_iter(name, b"-").any(|at| is_random(&name[at + 1..], &is_hexadecimal))
    };
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(byte);
    memmem::find_iter(text, directory).filter_map(|at| text[at + directory.len()..].strip_prefix(b"/")).any(|rest| {
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        rest.get(length) != Some(&b'/') && is_temporary(&rest[..length])
    })
}

/// Returns the mtime of a file that was read, in seconds.
fn mtime_s(looked: &Looked) -> Option<i64> {
    looked.identity.filter(|_| looked.content).map(|identity| identity.modified_ns.div_euclid(SECOND_NS))
}

/// Returns how many bytes an address has in a Mach-O file that is no object, or in a file with
/// several of these. Returns `None` for any other file.
fn bytes_of_number(bytes: &[u8]) -> Option<usize> {
    const TYPE_AT: usize = 12;
    const OBJECT: u8 = 1;
    let is_linked = || bytes.get(TYPE_AT).is_some_and(|kind| *kind != OBJECT);
    match bytes.get(..4)? {
        [0xca, 0xfe, 0xba, 0xbe] => Some(8),
        [0xcf, 0xfa, 0xed, 0xfe] if is_linked() => Some(8),
        [0xce, 0xfa, 0xed, 0xfe] if is_linked() => Some(4),
        _ => None,
    }
}

/// Returns device and inode number of a file that was read, as clang writes them: the lower 32 bits.
fn hexadecimal(looked: &Looked) -> Option<(String, String)> {
    let identity = looked.identity.filter(|_| looked.content)?;
    let (major, minor) = (identity.device >> 32, identity.device & 0xffff_ffff);
    // The C library's `dev_t`.
    let device = (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12;
    Some((format!("{:x}", device as u32), format!("{:x}", identity.inode as u32)))
}

/// Numbers in a name, in hexadecimal.
#[derive(Debug, PartialEq, Eq)]
enum Number {
    /// The device, and then the inode.
    Apart(String, String),
    /// The inode, and right behind it the device.
    Together(String),
    /// The inode.
    Alone(String),
}

impl Number {
    fn is(&self, device: &str, inode: &str) -> bool {
        match self {
            Number::Apart(first, second) => first == device && second == inode,
            Number::Together(both) => both.strip_prefix(inode) == Some(device),
            Number::Alone(number) => number == inode,
        }
    }
}

/// Returns the numbers in names such as those above.
fn numbers(text: &[u8]) -> Vec<Number> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = |text: &[u8]| {
        let length = text.iter().take_while(|byte| is_digit(byte)).count();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let behind = |mark: &'static str| memmem::find_iter(text, mark).map(move |at| &text[at + mark.len()..]);
    let apart = |rest: &[u8]| {
        let device = digits(rest);
        let inode = digits(rest[device.len()..].strip_prefix(b"_")?);
        Some(Number::Apart(device, inode))
    };
    let alone = |at: usize| {
        let before = text[..at].iter().rev().take_while(|byte| is_digit(byte)).count();
        Number::Alone(digits(&text[at - before..at]))
    };
    let together = behind(".static.").chain(behind("__static__")).map(|rest| Number::Together(digits(rest)));
    behind("__omp_offloading_")
        .filter_map(apart)
        .chain(together)
        .chain(memmem::find_iter(text, "_decl_tgt_ref_ptr").map(alone))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_temporary_files() {
        let check =
            |text: &str, expect| assert_eq!(names_temporary_file(text.as_bytes(), b"/var/tmp/"), expect, "{text}");
        check(" as -o x.o /var/tmp/ccq3hT0a.s", true);
        check("LOAD /var/tmp/ccq3hT0a.ltrans0.o", true);
        check("\"/var/tmp/x-1b2c3d.o\"", true);
        check("/var/tmp/place/src/x.c /var/tmp/x-1b2c3.o", false);
        check("/var/tmp/ccache/x", false);
        check("/var/tmpccq3hT0a", false);
        check("/var/tmp/pkg-20240101/src/x.c /var/tmp/x-abcdef/x.c", false);
    }

    #[test]
    fn programs_for_macos() {
        let check = |magic, kind, expect| {
            assert_eq!(bytes_of_number(&[magic, 0xfa, 0xed, 0xfe, 7, 0, 0, 1, 3, 0, 0, 0, kind]), expect)
        };
        check(0xcf, 2, Some(8));
        check(0xce, 2, Some(4));
        check(0xcf, 1, None);
        assert_eq!(bytes_of_number(b"\x7fELF"), None);
    }

    #[test]
    fn numbers_in_names() {
        let check = |text: &str, inode: &str, expect| {
            let found = numbers(text.as_bytes()).iter().any(|number| number.is("fe00", inode));
            assert_eq!(found, expect, "{text}");
        };
        check("\0__omp_offloading_fe00_6a41bc_f_l3\0", "6a41bc", true);
        check("\0__omp_offloading_fe01_6a41bc_f_l3\0", "6a41bc", false);
        check("__omp_offloading_fe00", "6a41bc", false);
        check("_ZL1v.static.6a41bcfe00_059a4aa7", "6a41bc", true);
        check("_ZL1v.static.6a41bcfe00", "41bc", false);
        check("_ZL1v__static__6a41bcfe00", "6a41bc", true);
        check("v_6a41bc_decl_tgt_ref_ptr", "6a41bc", true);
        check("_decl_tgt_ref_ptr", "6a41bc", false);
    }
}
