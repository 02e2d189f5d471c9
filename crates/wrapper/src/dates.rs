//! When outputs were modified, where the command set that itself: as another file was (`cp -p`, `install -p`, `touch
//! -r`), or at a moment of its own (`tar`, `touch -d`). On a hit the first follows the file, as it would if the command
//! ran.
//!
//! Unaware of: who goes by it, how it is put in place.

use std::collections::HashMap;

use larder_model::{Change, Looked, Roots, Seen, Times, Unrecorded};

use crate::miss::NotRecorded;
use crate::typed::file_name;

/// When an output was modified: [`larder_model::Modified`] with bytes of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Date {
    Written,
    As(Vec<u8>),
    At(u64),
}

/// Of each output whose time the command set.
pub(crate) struct Dates(HashMap<Vec<u8>, Date>);

impl Dates {
    /// Look at the outputs. Where programs went by such times, those of all that they compared count to the nanosecond.
    pub(crate) fn of(seen: &mut Seen, roots: &Roots, started_ns: i64) -> Result<Dates, NotRecorded> {
        let mut dates = HashMap::new();
        let dated = |(path, change): &(Vec<u8>, Change)| {
            matches!(change, Change::File { dated: true, .. }).then(|| path.clone())
        };
        for path in seen.changed.iter().filter_map(dated).collect::<Vec<_>>() {
            let look = larder_sys::look_through(&path);
            let lost = |_| NotRecorded::Because(Unrecorded::OutputLost, path.clone());
            let modified_ns = look.map_err(lost)?.modified_ns;
            let date = match origin(&mut seen.looked, file_name(&path), modified_ns) {
                Some((source, looked)) => {
                    if seen.dates_count {
                        looked.times = looked.times.max(Times::Files);
                    }
                    let mut encoded = Vec::new();
                    roots.encode_path(source, &mut encoded);
                    Date::As(encoded)
                }
                None if modified_ns >= started_ns && !seen.dates_count && !is_to_come(modified_ns) => Date::Written,
                None if (0..started_ns).contains(&modified_ns) => Date::At(modified_ns as u64),
                None => return Err(NotRecorded::Because(Unrecorded::ComparesTimes, path)),
            };
            dates.insert(path, date);
        }
        Ok(Dates(dates))
    }

    /// That of one output.
    pub(crate) fn take(&mut self, path: &[u8]) -> Date {
        self.0.remove(path).unwrap_or(Date::Written)
    }
}

fn is_to_come(modified_ns: i64) -> bool {
    modified_ns > larder_sys::now_coarse_ns()
}

/// The file that the command has looked at and that was modified then, rather one of the same name.
fn origin<'s>(
    looked: &'s mut [(Vec<u8>, Looked)],
    name: &[u8],
    modified_ns: i64,
) -> Option<(&'s [u8], &'s mut Looked)> {
    let is_then =
        |looked: &Looked| looked.identity.is_some_and(|id| is_the_same(id.modified_ns, modified_ns)) && !looked.absent;
    let named = looked.iter().position(|(path, looked)| is_then(looked) && file_name(path) == name);
    let at = named.or_else(|| looked.iter().position(|(_, looked)| is_then(looked)))?;
    let (path, looked) = &mut looked[at];
    Some((path, looked))
}

/// What a program carries over may have lost what is below a microsecond (`utimes`, a time as a floating-point number),
/// or below a second (`utime`).
fn is_the_same(from_ns: i64, to_ns: i64) -> bool {
    const MICROSECOND_NS: i64 = 1000;
    const SECOND_NS: i64 = 1_000_000_000;
    from_ns.abs_diff(to_ns) < MICROSECOND_NS as u64 || to_ns % SECOND_NS == 0 && from_ns - from_ns % SECOND_NS == to_ns
}

#[cfg(test)]
mod tests {
    use larder_model::Identity;

    use super::*;

    #[test]
    fn a_time_is_that_of_a_file_that_was_looked_at() {
        let looked = |path: &[u8], modified_ns| {
            let identity = Some(Identity { device: 1, inode: 1, size_bytes: 1, modified_ns, changed_ns: 9 });
            (path.to_vec(), Looked { content: true, identity, ..Looked::default() })
        };
        let second = 1_700_000_000_000_000_000;
        let files = [looked(b"/w/a", second + 123_456_789), looked(b"/w/b", second + 123_456_789)];
        let check = |name: &[u8], modified_ns, expect: Option<&[u8]>| {
            let mut files = files.clone();
            let found = origin(&mut files, name, modified_ns).map(|(path, _)| path.to_vec());
            assert_eq!(found.as_deref(), expect, "{modified_ns}");
        };
        check(b"x", second + 123_456_789, Some(b"/w/a"));
        check(b"b", second + 123_456_789, Some(b"/w/b"));
        check(b"b", second + 123_456_000, Some(b"/w/b"));
        check(b"b", second, Some(b"/w/b"));
        check(b"b", second + 123_457_789, None);
        check(b"b", second + 1_000_000_000, None);
    }
}
