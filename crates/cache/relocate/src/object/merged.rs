//! How GNU ld merges the strings of several objects into one section. Each string is written once,
//! in the order in which ld meets them. A string that is the end of another is not written again.
//!
//! In ld (`_bfd_merge_sections`) the strings are sorted by their reversed text. From the last to
//! the first, each string that is the end of the last kept string becomes a part of that.
//!
//! Unaware of: what the strings are, and what refers to them.

use std::cmp::Ordering;
use std::collections::HashMap;

/// A section of strings as ld writes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) bytes: Vec<u8>,
    /// The offset of each input string.
    pub(super) offsets: Vec<usize>,
    /// For each input string, whether it has bytes of its own: it is met for the first time, and is
    /// not the end of another.
    pub(super) is_kept: Vec<bool>,
}

impl Merged {
    /// Merges strings, which are in the order in which ld meets them.
    pub(super) fn of(strings: &[&[u8]]) -> Option<Merged> {
        let mut known = HashMap::new();
        let mut unique: Vec<&[u8]> = Vec::new();
        let mut numbers = Vec::with_capacity(strings.len());
        let mut is_kept = Vec::with_capacity(strings.len());
        for string in strings {
            let number = *known.entry(*string).or_insert(unique.len());
            is_kept.push(number == unique.len());
            if number == unique.len() {
                unique.push(string);
            }
            numbers.push(number);
        }
        let hosts = hosts(&unique);
        let mut starts = vec![0; unique.len()];
        let mut bytes = Vec::new();
        for (number, string) in unique.iter().enumerate().filter(|(number, _)| hosts.get(*number) == Some(number)) {
            *starts.get_mut(number)? = bytes.len();
            bytes.extend_from_slice(string);
            bytes.push(0);
        }
        let start = |number: usize| -> Option<usize> {
            let host = *hosts.get(number)?;
            Some(starts.get(host)? + unique.get(host)?.len() - unique.get(number)?.len())
        };
        let offsets = numbers.iter().map(|&number| start(number)).collect::<Option<Vec<_>>>()?;
        for (is_kept, number) in is_kept.iter_mut().zip(&numbers) {
            *is_kept &= hosts.get(*number) == Some(number);
        }
        Some(Merged { bytes, offsets, is_kept })
    }
}

/// Returns, for each string, the index of the string that contains it: itself, or one that ends in
/// it.
fn hosts(strings: &[&[u8]]) -> Vec<usize> {
    let mut sorted: Vec<(usize, &[u8])> = strings.iter().copied().enumerate().collect();
    sorted.sort_unstable_by(|(_, a), (_, b)| by_end(b, a));
    let mut hosts: Vec<usize> = (0..strings.len()).collect();
    let mut kept: Option<(usize, &[u8])> = None;
    for (number, string) in sorted {
        match kept {
            Some((host, longer)) if longer.ends_with(string) => {
                if let Some(place) = hosts.get_mut(number) {
                    *place = host;
                }
            }
            _ => kept = Some((number, string)),
        }
    }
    hosts
}

fn by_end(a: &[u8], b: &[u8]) -> Ordering {
    a.iter().rev().cmp(b.iter().rev())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(strings: &[&str], bytes: &str, offsets: &[usize]) {
        let strings: Vec<&[u8]> = strings.iter().map(|string| string.as_bytes()).collect();
        let merged = Merged::of(&strings).expect("strings");
        assert_eq!(String::from_utf8_lossy(&merged.bytes), bytes);
        assert_eq!(merged.offsets, offsets);
    }

    /// The result that ld 2.40 wrote.
    #[test]
    fn as_ld_has_them() {
        check(&["/w", "x.c", "/w", "x.c", "/usr"], "/w\0x.c\0/usr\0", &[0, 3, 0, 3, 7]);
        check(&["x.c", "/w/x.c", "c"], "/w/x.c\0", &[3, 0, 5]);
        check(&["", "ab", "b"], "ab\0", &[2, 0, 1]);
    }

    #[test]
    fn what_is_kept() {
        let merged = Merged::of(&[b"x.c", b"/w/x.c", b"/w/x.c"]).expect("strings");
        assert_eq!(merged.is_kept, [false, true, false]);
    }
}
