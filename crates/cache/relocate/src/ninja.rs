//! ninja's files: the log `.ninja_log` (when each output was made), and the database `.ninja_deps`
//! (the dependencies that compilers reported).
//!
//! Layout of the log: a line `# ninja log v5`, then one line per output with fields separated by
//! tabs. They are the start and the end of its command, the mtime of the output, its path, and a
//! hash of the command. Since ninja 1.9 the mtime is in nanoseconds since 1970.
//!
//! Layout of the database: ninja's `deps_log.h`, version 4, on little-endian machines. After a
//! header line and the version come records, each after its size. There are two kinds:
//! - A path, padded with zeros to a multiple of four bytes, and the bitwise complement of its
//!   number. Paths are numbered in their order.
//! - With the highest bit of the size set: the number of an output, its mtime in nanoseconds, and
//!   the numbers of its inputs. Only the last record of an output counts.
//!
//! Unaware of: the mtimes of outputs in another place.

use std::collections::BTreeMap;

const HEADER: &[u8] = b"# ninjadeps\n\x04\0\0\0";
/// The bit in a record's size that marks a record of dependencies.
const DEPENDENCIES: u32 = 1 << 31;
/// The limit of ninja for the size of a record, in bytes.
const RECORD_BYTES_MAX: u32 = (1 << 19) - 1;
const WORD: usize = 4;

/// A record of `.ninja_deps`.
enum Record<'a> {
    Path(&'a [u8]),
    Dependencies { output: u32, modified: &'a [u8], inputs: &'a [u8] },
}

/// Returns all records in order, or `None` if there is anything else between them.
fn records(bytes: &[u8]) -> Option<Vec<Record<'_>>> {
    let mut rest = bytes.strip_prefix(HEADER)?;
    let (mut found, mut paths) = (Vec::new(), 0);
    while !rest.is_empty() {
        let (size, after) = word(rest)?;
        let length = size & !DEPENDENCIES;
        if length > RECORD_BYTES_MAX || !(length as usize).is_multiple_of(WORD) {
            return None;
        }
        let (body, after) = after.split_at_checked(length as usize)?;
        found.push(match size & DEPENDENCIES {
            0 => path(body, paths).inspect(|_| paths += 1)?,
            _ => dependencies(body, paths)?,
        });
        rest = after;
    }
    Some(found)
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk::<WORD>()?;
    Some((u32::from_le_bytes(*word), rest))
}

fn path(body: &[u8], number: u32) -> Option<Record<'_>> {
    let (padded, checksum) = body.split_at_checked(body.len().checked_sub(WORD)?)?;
    let length = padded.iter().rposition(|byte| *byte != 0)? + 1;
    let is_right = word(checksum)?.0 == !number && padded.len() - length < WORD && !padded[..length].contains(&0);
    is_right.then_some(Record::Path(&padded[..length]))
}

fn dependencies(body: &[u8], paths: u32) -> Option<Record<'_>> {
    let (output, rest) = word(body)?;
    let (modified, inputs) = rest.split_at_checked(2 * WORD)?;
    let mut all = numbers(inputs).chain([output]);
    all.all(|number| number < paths).then_some(Record::Dependencies { output, modified, inputs })
}

fn numbers(inputs: &[u8]) -> impl Iterator<Item = u32> {
    inputs.chunks_exact(WORD).filter_map(|chunk| word(chunk).map(|(number, _)| number))
}

/// Returns the file with each path replaced by what `again` returns for it. The order stays.
pub(crate) fn relocate(bytes: &[u8], again: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let (mut there, mut paths) = (HEADER.to_vec(), 0_u32);
    for record in records(bytes)? {
        match record {
            Record::Path(path) => {
                let path = again(path).filter(|path| !path.is_empty())?;
                put_path(&mut there, path, paths)?;
                paths += 1;
            }
            Record::Dependencies { output, modified, inputs } => {
                put_dependencies(&mut there, output, modified, inputs)?;
            }
        }
    }
    Some(there)
}

fn put_path(to: &mut Vec<u8>, mut path: Vec<u8>, number: u32) -> Option<()> {
    path.resize(path.len().next_multiple_of(WORD), 0);
    let size = u32::try_from(path.len() + WORD).ok().filter(|size| *size <= RECORD_BYTES_MAX)?;
    to.extend(size.to_le_bytes());
    to.extend(path);
    to.extend((!number).to_le_bytes());
    Some(())
}

fn put_dependencies(to: &mut Vec<u8>, output: u32, modified: &[u8], inputs: &[u8]) -> Option<()> {
    let size = u32::try_from(WORD + modified.len() + inputs.len()).ok()? | DEPENDENCIES;
    to.extend(size.to_le_bytes().into_iter().chain(output.to_le_bytes()));
    to.extend_from_slice(modified);
    to.extend_from_slice(inputs);
    Some(())
}

/// Returns the mtime of an output in nanoseconds since 1970, given its path as ninja writes it and
/// the recorded mtime.
pub type Modified<'a> = &'a dyn Fn(&[u8], u64) -> u64;

/// Returns `.ninja_deps` with new mtimes, or `None` if the bytes are not such a file.
pub fn ninja_dependencies_at(bytes: &[u8], times: Modified<'_>) -> Option<Vec<u8>> {
    let (mut there, mut paths) = (HEADER.to_vec(), Vec::new());
    for record in records(bytes)? {
        match record {
            Record::Path(path) => {
                put_path(&mut there, path.to_vec(), u32::try_from(paths.len()).ok()?)?;
                paths.push(path);
            }
            Record::Dependencies { output, modified, inputs } => {
                // Zero means that the output was not made.
                let recorded = modified.try_into().map(u64::from_le_bytes).ok()?;
                let time = if recorded == 0 { 0 } else { times(paths.get(output as usize)?, recorded) };
                put_dependencies(&mut there, output, &time.to_le_bytes(), inputs)?;
            }
        }
    }
    Some(there)
}

/// Returns `.ninja_log` with new mtimes, or `None` if the bytes are not such a file or its mtimes
/// are in seconds.
pub fn ninja_log_at(bytes: &[u8], times: Modified<'_>) -> Option<Vec<u8>> {
    const NANOSECONDS_MIN: u64 = 1 << 40;
    let mut there = Vec::with_capacity(bytes.len());
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    there.extend(lines.next().filter(|line| line.starts_with(b"# ninja log v"))?);
    for line in lines {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let [start, end, modified, path, hash] = fields[..] else { return None };
        let recorded: u64 = std::str::from_utf8(modified).ok()?.parse().ok()?;
        let time = match recorded {
            0 => 0,
            1..NANOSECONDS_MIN => return None,
            _ => times(path, recorded),
        };
        there.extend([start, end, time.to_string().as_bytes(), path, hash].join(&b'\t'));
    }
    Some(there)
}

/// Returns the hash of the command of each output in `.ninja_log`, or `None` if the bytes are not such
/// a file. The last line of an output counts.
pub fn ninja_log_commands(bytes: &[u8]) -> Option<BTreeMap<&[u8], &[u8]>> {
    let mut lines = bytes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    lines.next().filter(|line| line.starts_with(b"# ninja log v"))?;
    lines
        .map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
            let [_, _, _, path, hash] = fields[..] else { return None };
            Some((path, hash))
        })
        .collect()
}

/// For each output: whether it was made, and its inputs.
pub type NinjaDependencies<'a> = BTreeMap<&'a [u8], (bool, Vec<&'a [u8]>)>;

/// Returns the content of `.ninja_deps` without mtimes and order, or `None` if the bytes are not
/// such a file.
pub fn ninja_dependencies(bytes: &[u8]) -> Option<NinjaDependencies<'_>> {
    let (mut paths, mut found) = (Vec::new(), BTreeMap::new());
    for record in records(bytes)? {
        match record {
            Record::Path(path) => paths.push(path),
            Record::Dependencies { output, modified, inputs } => {
                let of = |number: u32| paths.get(number as usize).copied();
                let inputs: Option<Vec<&[u8]>> = numbers(inputs).map(of).collect();
                found.insert(of(output)?, (modified.iter().any(|byte| *byte != 0), inputs?));
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Places, Rule, can_be_relocated, relocate};

    /// The file that ninja 1.11 writes for `a.o` with the inputs `/w/a/a.c` and `h`, made one
    /// second after 1970 began.
    const WRITTEN: &[u8] = b"# ninjadeps\n\x04\0\0\0\
        \x08\0\0\0a.o\0\xff\xff\xff\xff\
        \x0c\0\0\0/w/a/a.c\xfe\xff\xff\xff\
        \x08\0\0\0h\0\0\0\xfd\xff\xff\xff\
        \x14\0\0\x80\0\0\0\0\0\xca\x9a\x3b\0\0\0\0\x01\0\0\0\x02\0\0\0";

    fn to(bytes: &[u8], there: &[u8]) -> Option<Vec<u8>> {
        relocate(Rule::NinjaDependencies, bytes, &Places { from: &[b"/w/a"], to: &[there] })
    }

    #[test]
    fn commands_in_the_log() {
        let log = b"# ninja log v5\n0\t1\t2\ta.o\tff\n3\t4\t5\tb.o\tee\n6\t7\t8\ta.o\tdd\n";
        let commands = ninja_log_commands(log).expect("is a log");
        assert_eq!(commands.into_iter().collect::<Vec<_>>(), [(&b"a.o"[..], &b"dd"[..]), (b"b.o", b"ee")]);
        for text in [&b"# ninja log v5\n0\t1\t2\ta.o\n"[..], b"0\t1\t2\ta.o\tff\n", b"# ninja log v5\n0\t1", b""] {
            assert_eq!(ninja_log_commands(text), None, "{text:?}");
        }
    }

    #[test]
    fn paths_and_their_sizes_change() {
        let there = to(WRITTEN, b"/else").expect("is valid");
        assert!(there.windows(20).any(|w| w == b"\x10\0\0\0/else/a.c\0\0\0\xfe\xff\xff\xff"), "{there:?}");
        let back = relocate(Rule::NinjaDependencies, &there, &Places { from: &[b"/else"], to: &[b"/w/a"] });
        assert_eq!(back.as_deref(), Some(WRITTEN));
        assert!(can_be_relocated(Rule::NinjaDependencies, WRITTEN, &[b"/w/a"]));
    }

    #[test]
    fn order_and_times_do_not_count() {
        let other = b"# ninjadeps\n\x04\0\0\0\
            \x0c\0\0\0/w/a/a.c\xff\xff\xff\xff\
            \x08\0\0\0h\0\0\0\xfe\xff\xff\xff\
            \x08\0\0\0a.o\0\xfd\xff\xff\xff\
            \x10\0\0\x80\x02\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\
            \x14\0\0\x80\x02\0\0\0\x01\x02\x03\x04\x05\0\0\0\0\0\0\0\x01\0\0\0";
        let found = ninja_dependencies(WRITTEN).expect("is valid");
        assert_eq!(Some(&found), ninja_dependencies(other).as_ref());
        assert_eq!(found[&b"a.o"[..]], (true, vec![&b"/w/a/a.c"[..], b"h"]));
        let inputs = [&WRITTEN[..WRITTEN.len() - 4], b"\x01\0\0\0"].concat();
        assert_ne!(Some(&found), ninja_dependencies(&inputs).as_ref());
        assert_eq!(ninja_dependencies(&WRITTEN[..16]), Some(BTreeMap::new()));
    }

    #[test]
    fn times_change_alone() {
        let later = |path: &[u8], recorded: u64| recorded + if path == b"a.o" { 7 } else { 0 };
        let there = ninja_dependencies_at(WRITTEN, &later).expect("is valid");
        let same = there.iter().zip(WRITTEN).filter(|(new, old)| new == old).count();
        assert_eq!((there.len(), same), (WRITTEN.len(), WRITTEN.len() - 1));
        assert_eq!(ninja_dependencies_at(&there, &|_, recorded| recorded - 7).as_deref(), Some(WRITTEN));
        assert!(ninja_dependencies_at(b"x", &later).is_none());
        let log = b"# ninja log v5\n1\t20\t1700000000000000000\ta.o\tdead\n0\t3\t1700000000000000000\tb\tbeef\n0\t3\t0\ta.o\t1\n";
        let there = ninja_log_at(log, &later).expect("is valid");
        let expect = b"# ninja log v5\n1\t20\t1700000000000000007\ta.o\tdead\n0\t3\t1700000000000000000\tb\tbeef\n0\t3\t0\ta.o\t1\n";
        assert_eq!(there, expect);
        for other in [&b""[..], b"log", b"# ninja log v5\n1\t2\t3\n", b"# ninja log v5\n0\t0\t1700000000\ta.o\t1\n"] {
            assert!(ninja_log_at(other, &later).is_none());
        }
        assert_eq!(ninja_log_at(b"# ninja log v5\n", &later).as_deref(), Some(&b"# ninja log v5\n"[..]));
    }

    #[test]
    fn what_is_none_is_refused() {
        for cut in (0..WRITTEN.len()).filter(|cut| ![16, 28, 44, 56].contains(cut)) {
            assert!(to(&WRITTEN[..cut], b"/b").is_none(), "cut at {cut}");
        }
        let with = |at: usize, byte: u8| [&WRITTEN[..at], &[byte], &WRITTEN[at + 1..]].concat();
        // Another version, a wrong checksum, an input that does not exist.
        for (at, byte) in [(12, 3), (24, 0), (WRITTEN.len() - 4, 3)] {
            assert!(to(&with(at, byte), b"/b").is_none(), "{byte} at {at}");
        }
        assert!(to(b"/w/a is text", b"/b").is_none());
    }
}
