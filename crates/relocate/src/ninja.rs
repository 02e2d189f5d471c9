//! What ninja keeps of the dependencies that compilers reported, `.ninja_deps`.
//!
//! Layout: ninja's `deps_log.h`, version 4, here of little-endian machines. A line, the version, then records, each
//! behind its size: a path, filled up with zeros to four bytes, and the complement of its number, which counts paths;
//! or, with the highest bit of the size set, the number of an output, when it was modified in nanoseconds, and the
//! numbers of what it was made of. The last record of an output is the one that counts.
//!
//! Unaware of: what becomes of times, which are those of the run that wrote them.

use std::collections::BTreeMap;

const HEADER: &[u8] = b"# ninjadeps\n\x04\0\0\0";
/// Set in the size of a record of dependencies.
const DEPENDENCIES: u32 = 1 << 31;
/// ninja takes no larger record.
const RECORD_BYTES_MAX: u32 = (1 << 19) - 1;
const WORD: usize = 4;

/// One record.
enum Record<'a> {
    Path(&'a [u8]),
    Dependencies { output: u32, modified: &'a [u8], inputs: &'a [u8] },
}

/// All records, in order. `None` where anything else stands in between.
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

/// The same with other paths, in the order in which they stand.
pub(crate) fn relocate(bytes: &[u8], again: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let (mut there, mut paths) = (HEADER.to_vec(), 0_u32);
    for record in records(bytes)? {
        match record {
            Record::Path(path) => {
                let mut path = again(path).filter(|path| !path.is_empty())?;
                path.resize(path.len().next_multiple_of(WORD), 0);
                there.extend(
                    u32::try_from(path.len() + WORD).ok().filter(|size| *size <= RECORD_BYTES_MAX)?.to_le_bytes(),
                );
                there.extend_from_slice(&path);
                there.extend((!paths).to_le_bytes());
                paths += 1;
            }
            Record::Dependencies { output, modified, inputs } => {
                let size = u32::try_from(WORD + modified.len() + inputs.len()).ok()? | DEPENDENCIES;
                there.extend(size.to_le_bytes().into_iter().chain(output.to_le_bytes()));
                there.extend_from_slice(modified);
                there.extend_from_slice(inputs);
            }
        }
    }
    Some(there)
}

/// Outputs with what each was made of, and whether it was there.
pub type NinjaDependencies<'a> = BTreeMap<&'a [u8], (bool, Vec<&'a [u8]>)>;

/// What ninja takes from it, but for times. `None` where it is no such file.
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

    /// As ninja 1.11 writes it for `a.o` of `/w/a/a.c` and `h`, made at 1 s.
    const WRITTEN: &[u8] = b"# ninjadeps\n\x04\0\0\0\
        \x08\0\0\0a.o\0\xff\xff\xff\xff\
        \x0c\0\0\0/w/a/a.c\xfe\xff\xff\xff\
        \x08\0\0\0h\0\0\0\xfd\xff\xff\xff\
        \x14\0\0\x80\0\0\0\0\0\xca\x9a\x3b\0\0\0\0\x01\0\0\0\x02\0\0\0";

    fn to(bytes: &[u8], there: &[u8]) -> Option<Vec<u8>> {
        relocate(Rule::NinjaDependencies, bytes, &Places { from: &[b"/w/a"], to: &[there] })
    }

    #[test]
    fn paths_and_their_sizes_change() {
        let there = to(WRITTEN, b"/else").expect("can be");
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
        let found = ninja_dependencies(WRITTEN).expect("is one");
        assert_eq!(Some(&found), ninja_dependencies(other).as_ref());
        assert_eq!(found[&b"a.o"[..]], (true, vec![&b"/w/a/a.c"[..], b"h"]));
        let inputs = [&WRITTEN[..WRITTEN.len() - 4], b"\x01\0\0\0"].concat();
        assert_ne!(Some(&found), ninja_dependencies(&inputs).as_ref());
        assert_eq!(ninja_dependencies(&WRITTEN[..16]), Some(BTreeMap::new()));
    }

    #[test]
    fn what_is_none_is_refused() {
        for cut in (0..WRITTEN.len()).filter(|cut| ![16, 28, 44, 56].contains(cut)) {
            assert!(to(&WRITTEN[..cut], b"/b").is_none(), "cut at {cut}");
        }
        let with = |at: usize, byte: u8| [&WRITTEN[..at], &[byte], &WRITTEN[at + 1..]].concat();
        // Another version, a checksum, an input that there is not.
        for (at, byte) in [(12, 3), (24, 0), (WRITTEN.len() - 4, 3)] {
            assert!(to(&with(at, byte), b"/b").is_none(), "{byte} at {at}");
        }
        assert!(to(b"/w/a is text", b"/b").is_none());
    }
}
