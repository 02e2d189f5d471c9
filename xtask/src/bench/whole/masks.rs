//! What two plain runs in one place write differently: times, process ids, temporary names. Masked in the logs and
//! caches that are known to hold such, and counted; all other files are compared as they are.

use std::collections::BTreeMap;
use std::path::Path;

/// Files that are masked, by name.
const FILES: &[&str] = &[
    "config.log",
    "configure.log",
    "CMakeError.log",
    "CMakeOutput.log",
    "CMakeConfigureLog.yaml",
    "cmake_trace.txt",
    "meson-log.txt",
    // Meson's pickles: temporary names in the compiler calls that it remembers, and random numbers for Visual Studio.
    "coredata.dat",
];

/// Meson's pickle with sets of objects, which Python writes in the order of their addresses: its words are compared,
/// without order.
const PICKLED_SETS: &str = "build.dat";
/// Shorter ones may be numbers that look like letters.
const WORD_BYTES_MIN: usize = 8;

/// Bytes of a class that follow a text.
struct Mask {
    after: &'static [u8],
    class: fn(u8) -> bool,
    /// How many follow, at least and at most.
    length: (usize, usize),
    what: &'static str,
}

const MASKS: &[Mask] = &[
    Mask { after: b"/tmp/cc", class: |b| b.is_ascii_alphanumeric(), length: (6, 6), what: "temporary files of gcc" },
    Mask { after: b"cmTC_", class: |b| b.is_ascii_hexdigit(), length: (5, 5), what: "targets of CMake's checks" },
    Mask {
        after: b"TryCompile-",
        class: |b| b.is_ascii_alphanumeric(),
        length: (6, 6),
        what: "directories of CMake's checks",
    },
    Mask {
        after: b"meson-private/tmp",
        class: |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_',
        length: (8, 8),
        what: "directories of Meson's checks",
    },
    Mask { after: b"ztest", class: |b| b.is_ascii_digit(), length: (1, 10), what: "process ids in zlib's checks" },
    Mask {
        after: b"\"time\":",
        class: |b| b.is_ascii_digit() || b == b'.',
        length: (1, 24),
        what: "times in CMake's traces",
    },
    Mask {
        // A string of 36 bytes in a pickle.
        after: b"\x94\x8c$",
        class: |b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b) || b == b'-',
        length: (36, 36),
        what: "Meson's random numbers",
    },
    Mask { after: b"Build started at ", class: |b| b != b'\n', length: (1, 64), what: "times in Meson's log" },
];

/// How `date` begins, on a line of its own in zlib's log.
const DAYS: &[&str] = &["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];
const DATE_BYTES_MAX: usize = 40;
const DATES: &str = "dates in zlib's log";
const NINJA: &str = "times in ninja's log";
const PYTHON: &str = "times of sources in Python's compiled code";

/// How often what was masked.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// The bytes of a file with everything masked that is to be masked in one of its name.
pub(super) fn masked(path: &Path, bytes: Vec<u8>, counts: &mut Counts) -> Vec<u8> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.as_ref() {
        ".ninja_log" => ninja_log(&bytes, counts),
        ".ninja_deps" => ninja_deps(&bytes, counts).unwrap_or(bytes),
        PICKLED_SETS => words(&text(&bytes, counts)),
        name if name.ends_with(".pyc") => python(bytes, counts),
        name if FILES.contains(&name) => text(&bytes, counts),
        _ => bytes,
    }
}

/// Messages, their lines in order: make's jobs and the two streams mix differently each time.
pub(super) fn messages(bytes: &[u8], counts: &mut Counts) -> Vec<u8> {
    let masked = text(bytes, counts);
    let mut lines: Vec<&[u8]> = masked.split(|&byte| byte == b'\n').map(without_progress).collect();
    lines.sort_unstable();
    lines.join(&b'\n')
}

/// Without ninja's `[3/17] `.
fn without_progress(line: &[u8]) -> &[u8] {
    let digits = |byte: &u8| byte.is_ascii_digit() || *byte == b'/';
    let Some(rest) = line.strip_prefix(b"[") else { return line };
    let end = rest.iter().position(|byte| !digits(byte)).unwrap_or(0);
    rest[end..].strip_prefix(b"] ").unwrap_or(line)
}

fn words(bytes: &[u8]) -> Vec<u8> {
    let parts = bytes.split(|&byte| !(b' '..=b'~').contains(&byte));
    let mut words: Vec<&[u8]> = parts.filter(|part| part.len() >= WORD_BYTES_MIN).collect();
    words.sort_unstable();
    words.join(&b'\n')
}

fn text(bytes: &[u8], counts: &mut Counts) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if let Some((mask, length)) = MASKS.iter().find_map(|mask| Some((mask, mask.applies(&bytes[at..])?))) {
            out.extend_from_slice(mask.after);
            out.push(b'#');
            at += mask.after.len() + length;
            *counts.entry(mask.what).or_default() += 1;
        } else if let Some(length) = date(bytes, at) {
            out.push(b'#');
            at += length;
            *counts.entry(DATES).or_default() += 1;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

impl Mask {
    /// How many bytes of the class follow, where it applies.
    fn applies(&self, bytes: &[u8]) -> Option<usize> {
        let rest = bytes.strip_prefix(self.after)?;
        let (least, most) = self.length;
        let length = rest.iter().take(most).take_while(|&&byte| (self.class)(byte)).count();
        (length >= least).then_some(length)
    }
}

/// The length of the line that begins there, where it is a date.
fn date(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if (at > 0 && bytes[at - 1] != b'\n') || !DAYS.iter().any(|day| rest.starts_with(day.as_bytes())) {
        return None;
    }
    let length = rest.iter().take(DATE_BYTES_MAX).position(|&byte| byte == b'\n')?;
    (rest[..length].iter().filter(|&&byte| byte == b':').count() == 2).then_some(length)
}

/// Python's compiled code: a magic number, flags, and where those are zero the time of its source, 4 bytes each (PEP
/// 552). That of a source that the build made is another in each run.
fn python(mut bytes: Vec<u8>, counts: &mut Counts) -> Vec<u8> {
    if let [_, _, _, _, 0, 0, 0, 0, time @ ..] = &mut bytes[..]
        && let Some(time) = time.first_chunk_mut::<4>()
    {
        *time = [0; 4];
        *counts.entry(PYTHON).or_default() += 1;
    }
    bytes
}

/// `START END MTIME OUTPUT HASH`, in the order in which commands ended.
fn ninja_log(bytes: &[u8], counts: &mut Counts) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b'\t').collect();
        let [_, _, _, output, hash] = fields[..] else {
            lines.push(line.to_vec());
            continue;
        };
        *counts.entry(NINJA).or_default() += 1;
        lines.push([output, hash].join(&b'\t'));
    }
    lines.sort_unstable();
    lines.join(&b'\n')
}

/// ninja's log of depfiles: records of a length and then a path, or where its highest bit is set the numbers of an
/// output, its time in two halves, and its inputs' numbers. `None` where it is not that.
fn ninja_deps(bytes: &[u8], counts: &mut Counts) -> Option<Vec<u8>> {
    const DEPS: u32 = 1 << 31;
    let mut rest = bytes.strip_prefix(b"# ninjadeps\n")?.get(4..)?;
    let (mut paths, mut lines) = (Vec::<&[u8]>::new(), Vec::<Vec<u8>>::new());
    let number = |four: &[u8]| four.try_into().ok().map(u32::from_le_bytes);
    while !rest.is_empty() {
        let head = number(rest.get(..4)?)?;
        let length = usize::try_from(head & !DEPS).ok()?;
        let record = rest.get(4..4 + length)?;
        rest = &rest[4 + length..];
        if head & DEPS == 0 {
            let path = record.get(..length.checked_sub(4)?)?;
            let padding = path.iter().rev().take_while(|&&byte| byte == 0).count();
            paths.push(&path[..path.len() - padding]);
            continue;
        }
        let ids = record.chunks_exact(4).map(number).collect::<Option<Vec<u32>>>()?;
        let of = |id: &u32| paths.get(usize::try_from(*id).ok()?).copied();
        let mut line = vec![of(ids.first()?)?];
        line.extend(ids.get(3..)?.iter().map(of).collect::<Option<Vec<_>>>()?);
        *counts.entry(NINJA).or_default() += 1;
        lines.push(line.join(&b' '));
    }
    lines.sort_unstable();
    Some(lines.join(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, before: &[u8], after: &[u8], count: u64) {
        let mut counts = Counts::new();
        let found = masked(Path::new(name), before.to_vec(), &mut counts);
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(after));
        assert_eq!(counts.values().sum::<u64>(), count, "{name}");
    }

    #[test]
    fn only_what_differs_by_itself_is_masked() {
        check("config.log", b"ld: /tmp/ccAb3xY9.o: main\n", b"ld: /tmp/cc#.o: main\n", 1);
        check("config.log", b"/tmp/ccache\n", b"/tmp/ccache\n", 0);
        check("config.h", b"/tmp/ccAb3xY9.o", b"/tmp/ccAb3xY9.o", 0);
        check("configure.log", b"a\nSun Nov 22 06:40:59 UTC 2026\nztest17.c", b"a\n#\nztest#.c", 2);
        check("cmake_trace.txt", b"{\"line\":2,\"time\":17.5}", b"{\"line\":2,\"time\":#}", 1);
        let guid = b"_guid\x94\x8c$2150E333-8FDC-42A3-9474-1A3956D46DE8\x94";
        check("coredata.dat", guid, b"_guid\x94\x8c$#\x94", 1);
        check("build.dat", b"\x01libglib-2\x94j\x01a\x8csources.c\x94", b"libglib-2\nsources.c", 0);
        check("CMakeOutput.log", b"TryCompile-aB3x9z/cmTC_0a1b2.dir", b"TryCompile-#/cmTC_#.dir", 2);
    }

    #[test]
    fn pythons_code_is_compared_without_the_time_of_its_source() {
        check("x.pyc", b"\xa7\r\r\n\0\0\0\0\x1e\x5ckXrest", b"\xa7\r\r\n\0\0\0\0\0\0\0\0rest", 1);
        check("x.pyc", b"\xa7\r\r\n\x01\0\0\0hash", b"\xa7\r\r\n\x01\0\0\0hash", 0);
    }

    #[test]
    fn ninjas_logs_are_compared_without_times_and_order() {
        check(".ninja_log", b"# v5\n1\t2\t3\tb.o\tff\n4\t5\t6\ta.o\tee\n", b"\n# v5\na.o\tee\nb.o\tff", 2);
        let mut deps = b"# ninjadeps\n\x04\0\0\0".to_vec();
        deps.extend(b"\x08\0\0\0a.o\0\xff\xff\xff\xff\x08\0\0\0a.c\0\xfe\xff\xff\xff");
        deps.extend(b"\x10\0\0\x80\0\0\0\0\x07\0\0\0\x08\0\0\0\x01\0\0\0");
        check(".ninja_deps", &deps, b"a.o a.c", 1);
        check(".ninja_deps", b"other", b"other", 0);
    }

    #[test]
    fn messages_are_compared_without_order() {
        let mut counts = Counts::new();
        assert_eq!(messages(b"[2/9] b\n[1/9] a\n[x] c", &mut counts), b"[x] c\na\nb");
    }
}
