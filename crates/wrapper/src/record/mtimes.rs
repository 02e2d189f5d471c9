//! The mtimes of outputs, if the command set them itself. Two cases are told apart:
//!
//! - It copied the mtime of another file (`cp -p`, `install -p`, `touch -r`). On a hit the output
//!   gets the present mtime of that file.
//! - It set a time of its own (`tar`, `touch -d`). On a hit the output gets that time.
//!
//! Unaware of: which programs compare these times, how outputs are put in place.

use std::collections::HashMap;

use larder_model::path::file_name;
use larder_model::{Change, Looked, Modified, Roots, Seen, Times, Unrecorded};

use super::not_recorded::NotRecorded;

const SECOND_NS: i64 = 1_000_000_000;

/// The mtime of an output.
pub(crate) type Mtime = Modified<Vec<u8>>;

/// The mtimes, by path. An output without an entry has the time at which it was written.
pub(crate) struct Mtimes(HashMap<Vec<u8>, Mtime>);

impl Mtimes {
    /// Finds out the mtimes of the outputs. If programs compared such times, the mtimes of the
    /// files they came from become observations, to the nanosecond. Returns an error if a hit could
    /// not reproduce a time.
    pub(crate) fn of(seen: &mut Seen, roots: &Roots, started_ns: i64) -> Result<Mtimes, NotRecorded> {
        let mut dates = HashMap::new();
        let dated = |(path, change): &(Vec<u8>, Change)| {
            matches!(change, Change::File { dated: true, .. }).then(|| path.clone())
        };
        let paths: Vec<_> = seen.changed.iter().filter_map(dated).collect();
        let origins = if paths.is_empty() { Origins::default() } else { Origins::of(&seen.looked) };
        for path in paths {
            let stat = larder_sys::stat(&path);
            let lost = |_| NotRecorded::Because(Unrecorded::OutputLost, path.clone());
            let modified_ns = stat.map_err(lost)?.modified_ns;
            let date = match origins.origin(&seen.looked, file_name(&path), modified_ns) {
                Some(at) => {
                    let (source, looked) = &mut seen.looked[at];
                    if seen.dates_count {
                        looked.times = looked.times.max(Times::Files);
                    }
                    Mtime::As(roots.encoded_path(source))
                }
                None if modified_ns >= started_ns && !seen.dates_count && !is_to_come(modified_ns) => Mtime::Written,
                None if (0..started_ns).contains(&modified_ns) => Mtime::At(modified_ns as u64),
                None => return Err(NotRecorded::Because(Unrecorded::ComparesTimes, path)),
            };
            dates.insert(path, date);
        }
        Ok(Mtimes(dates))
    }

    /// Returns the mtime of one output.
    pub(crate) fn take(&mut self, path: &[u8]) -> Mtime {
        self.0.remove(path).unwrap_or(Mtime::Written)
    }
}

fn is_to_come(modified_ns: i64) -> bool {
    modified_ns > larder_sys::now_coarse_ns()
}

/// Indices of the files that the command read, by the second of their mtime. The index makes this
/// fast for a command that unpacks or copies thousands of files.
#[derive(Default)]
struct Origins(HashMap<i64, Vec<usize>>);

impl Origins {
    fn of(looked: &[(Vec<u8>, Looked)]) -> Origins {
        let mut by_second: HashMap<i64, Vec<usize>> = HashMap::new();
        for (at, (_, looked)) in looked.iter().enumerate().filter(|(_, (_, looked))| !looked.absent) {
            if let Some(identity) = looked.identity {
                by_second.entry(identity.modified_ns.div_euclid(SECOND_NS)).or_default().push(at);
            }
        }
        Origins(by_second)
    }

    /// Returns the index of a file with this mtime. A file with the name `name` is preferred.
    fn origin(&self, looked: &[(Vec<u8>, Looked)], name: &[u8], modified_ns: i64) -> Option<usize> {
        let second = modified_ns.div_euclid(SECOND_NS);
        let near = (second - 1..=second + 1).filter_map(|second| self.0.get(&second)).flatten().copied();
        let is_then =
            |at: &usize| looked[*at].1.identity.is_some_and(|identity| is_the_same(identity.modified_ns, modified_ns));
        near.filter(is_then).min_by_key(|at| (file_name(&looked[*at].0) != name, *at))
    }
}

/// Returns true if a copied time is equal up to what copying loses: the part below a microsecond
/// (`utimes`, a time as a floating-point number) or below a second (`utime`).
fn is_the_same(from_ns: i64, to_ns: i64) -> bool {
    const MICROSECOND_NS: i64 = 1000;
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
            let found = Origins::of(&files).origin(&files, name, modified_ns).map(|at| files[at].0.as_slice());
            assert_eq!(found, expect, "{modified_ns}");
        };
        check(b"x", second + 123_456_789, Some(b"/w/a"));
        check(b"b", second + 123_456_789, Some(b"/w/b"));
        check(b"b", second + 123_456_000, Some(b"/w/b"));
        check(b"b", second, Some(b"/w/b"));
        check(b"b", second + 123_457_789, None);
        check(b"b", second + 1_000_000_000, None);
        // The difference is less than a microsecond, but the seconds differ.
        let edge = [looked(b"/w/a", second - 200)];
        assert_eq!(Origins::of(&edge).origin(&edge, b"a", second + 100), Some(0));
    }
}
