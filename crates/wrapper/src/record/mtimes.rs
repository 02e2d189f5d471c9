//! The mtimes of outputs, if the command set them itself. Four cases are told apart:
//!
//! - It copied the mtime of another file (`cp -p`, `install -p`, `touch -r`). On a hit the output
//!   gets the present mtime of that file.
//! - It set a time of its own (`tar`, `touch -d`). On a hit the output gets that time.
//! - It copied the mtime of another output of this run. Equal mtimes of outputs are equal after a
//!   hit as well (`note_ticks`).
//! - It kept the mtime of a file that it rewrote (`strip -p`), or happened to set an equal one. The
//!   mtime from before becomes an observation.
//!
//! No event says from where a program has a time. So the first two cases are certain only for
//! programs that do nothing but copy mtimes, and only if one file is the most likely source.
//! Otherwise the mtimes of all files that the program may have copied become observations. Then
//! both cases give the same time.
//!
//! Unaware of: which programs compare these times, how outputs are put in place.

use std::collections::HashMap;

use larder_model::path::names;
use larder_model::{Change, DateSource, Looked, Modified, Roots, Seen, Times, Unrecorded};

use super::not_recorded::NotRecorded;

pub(super) const SECOND_NS: i64 = 1_000_000_000;

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
        let dated = |(path, change): &(Vec<u8>, Change)| match change {
            Change::File { dated: Some(source), .. } => Some((path.clone(), *source)),
            _ => None,
        };
        let paths: Vec<_> = seen.changed.iter().filter_map(dated).collect();
        let places = if paths.is_empty() { HashMap::new() } else { places(&seen.looked) };
        let sources: Vec<Origins> =
            seen.date_sources.iter().map(|source| Origins::of(source, &places, &seen.looked)).collect();
        for (path, source) in paths {
            let stat = larder_sys::stat(&path);
            let lost = |_| NotRecorded::Because(Unrecorded::OutputLost, path.clone());
            let modified_ns = stat.map_err(lost)?.modified_ns;
            let origins = sources.get(source).map(|source| source.origins(&seen.looked, &path, modified_ns));
            let Origin { copied_from, or_from } = origins.unwrap_or_default();
            let date = match copied_from {
                Some(at) => {
                    let certain = or_from.is_empty() && !seen.dates_count;
                    for at in or_from.into_iter().chain([at]).filter(|_| !certain) {
                        let (_, looked) = &mut seen.looked[at];
                        looked.times = looked.times.max(Times::Files);
                    }
                    Mtime::As(roots.encoded_path(&seen.looked[at].0))
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

/// Returns the index of each path that was accessed and is there.
fn places(looked: &[(Vec<u8>, Looked)]) -> HashMap<Vec<u8>, usize> {
    let is_there = |looked: &Looked| !looked.absent && looked.identity.is_some();
    let there = looked.iter().enumerate().filter(|(_, (_, looked))| is_there(looked));
    there.map(|(at, (path, _))| (path.clone(), at)).collect()
}

/// From which file an output has its mtime.
#[derive(Debug, Default, PartialEq)]
struct Origin {
    /// The most likely file, as an index.
    copied_from: Option<usize>,
    /// It may also be from one of these, or from none.
    or_from: Vec<usize>,
}

/// The files from which some processes may have copied an mtime: their indices by the second of
/// their mtime. This is fast for a command that unpacks or copies thousands of files.
#[derive(Default)]
struct Origins {
    only_copies: bool,
    by_second: HashMap<i64, Vec<usize>>,
    /// Files whose mtime may be the one that they had before.
    rewritten: HashMap<Vec<u8>, usize>,
}

impl Origins {
    fn of(source: &DateSource, places: &HashMap<Vec<u8>, usize>, looked: &[(Vec<u8>, Looked)]) -> Origins {
        let mut by_second: HashMap<i64, Vec<usize>> = HashMap::new();
        for at in source.accessed.iter().filter_map(|path| places.get(path)) {
            if let Some(identity) = looked[*at].1.identity {
                by_second.entry(identity.modified_ns.div_euclid(SECOND_NS)).or_default().push(*at);
            }
        }
        let rewritten = source.rewritten.iter().filter_map(|path| Some((path.clone(), *places.get(path)?))).collect();
        Origins { only_copies: source.only_copies, by_second, rewritten }
    }

    /// Returns the files with this mtime. The one whose path ends with most of the components of the
    /// output's path is the most likely source: `cp -a` keeps the names below a directory. The
    /// output itself, as it was before, is another only if its content or no other file was read.
    fn origins(&self, looked: &[(Vec<u8>, Looked)], output: &[u8], modified_ns: i64) -> Origin {
        let second = modified_ns.div_euclid(SECOND_NS);
        let near = (second - 1..=second + 1).filter_map(|second| self.by_second.get(&second)).flatten().copied();
        let is_then =
            |at: &usize| looked[*at].1.identity.is_some_and(|identity| is_the_same(identity.modified_ns, modified_ns));
        let mut found: Vec<(usize, usize)> =
            near.filter(is_then).map(|at| (shared_at_end(&looked[at].0, output), at)).collect();
        found.sort_unstable_by_key(|(shared, at)| (usize::MAX - shared, *at));
        let is_read = |at: &usize| found.is_empty() || looked[*at].1.content;
        let kept = self.rewritten.get(output).copied().filter(is_then).filter(is_read);
        let is_certain = self.only_copies && kept.is_none() && found.get(1).is_none_or(|second| second.0 < found[0].0);
        let all: Vec<usize> = found.into_iter().map(|(_, at)| at).chain(kept).collect();
        Origin { copied_from: all.first().copied(), or_from: if is_certain { Vec::new() } else { all } }
    }
}

/// Returns how many of the last components of two paths are equal.
fn shared_at_end(a: &[u8], b: &[u8]) -> usize {
    names(a).rev().zip(names(b).rev()).take_while(|(a, b)| a == b).count()
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

    const SECOND: i64 = 1_700_000_000_000_000_000;

    fn origin(files: &[(&str, i64)], only_copies: bool, output: &str, modified_ns: i64) -> (Option<usize>, usize) {
        let looked = |(path, after_ns): &(&str, i64)| {
            let identity =
                Identity { device: 1, inode: 1, size_bytes: 1, modified_ns: SECOND + after_ns, changed_ns: 9 };
            (path.as_bytes().to_vec(), Looked { content: true, identity: Some(identity), ..Looked::default() })
        };
        let looked: Vec<_> = files.iter().map(looked).collect();
        let accessed = looked.iter().map(|(path, _)| path.clone()).filter(|path| path != b"/w/old").collect();
        let rewritten = vec![b"/w/old".to_vec()];
        let origins = Origins::of(&DateSource { only_copies, accessed, rewritten }, &places(&looked), &looked);
        let found = origins.origins(&looked, output.as_bytes(), SECOND + modified_ns);
        (found.copied_from, found.or_from.len())
    }

    #[test]
    fn a_time_is_that_of_a_file_that_was_accessed() {
        let files = [("/w/a", 123_456_789), ("/w/c", 7_000_000_000)];
        let check = |modified_ns, expect| assert_eq!(origin(&files, true, "/o/x", modified_ns), (expect, 0));
        check(123_456_789, Some(0));
        check(123_456_000, Some(0));
        check(0, Some(0));
        check(123_457_789, None);
        check(1_000_000_000, None);
        // The difference is less than a microsecond, but the seconds differ.
        assert_eq!(origin(&[("/w/a", -200)], true, "/o/x", 100), (Some(0), 0));
    }

    #[test]
    fn a_file_that_is_rewritten_may_keep_its_time() {
        let files = [("/w/old", 5), ("/w/x", 5), ("/w/y", 6_000_000_000)];
        assert_eq!(origin(&files[..1], true, "/w/old", 5), (Some(0), 1));
        assert_eq!(origin(&files[..1], true, "/w/old", 3_000_000_000), (None, 0));
        // Another file has that time too.
        assert_eq!(origin(&files, true, "/w/old", 5), (Some(1), 2));
        // It is another output.
        assert_eq!(origin(&files, true, "/o/z", 5), (Some(1), 0));
    }

    #[test]
    fn which_of_several_files_has_given_its_time() {
        let files = [("/w/a/x", 5), ("/w/b/x", 5), ("/w/a/y", 5)];
        assert_eq!(origin(&files, true, "/o/b/x", 5), (Some(1), 0));
        assert_eq!(origin(&files, true, "/o/y", 5), (Some(2), 0));
        // Two files are as likely, or none is.
        assert_eq!(origin(&files, true, "/o/x", 5), (Some(0), 3));
        assert_eq!(origin(&files, true, "/o/z", 5), (Some(0), 3));
        // The program may have set a time of its own.
        assert_eq!(origin(&files, false, "/o/y", 5), (Some(2), 3));
    }
}
