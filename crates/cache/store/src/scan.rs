//! Searches the bytes of inputs for what could bring the path of this place into a result: the path
//! itself, and words that a compiler replaces by the path of a file. A stamp keeps the answer, so
//! that each file is read only once for this.
//!
//! Unaware of: which words these are, what follows from the answer.
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use larder_model::{Digest, PLACEHOLDER, Roots, contains, contains_any};
use larder_sys::{FileType, Opening, Stat};

use crate::StatCache;

/// The largest file that is searched, in bytes. A larger one is assumed to contain everything.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Returns the form that a file has in every place, given its bytes in this place. `None` means
/// that exactly these bytes are required.
pub type Anywhere<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// Returns the text of a file with broken strings joined, given its path and its bytes. `None`
/// means that nothing is broken.
pub type Uncut<'a> = &'a dyn Fn(&[u8], &[u8]) -> Option<Vec<u8>>;

/// How files are compared between places if their bytes differ for other reasons than a root in
/// plain text.
#[derive(Clone, Copy)]
pub struct Forms<'a> {
    /// The form of object files, if only that form counts.
    pub object: Option<Anywhere<'a>>,
    /// The text in which every path is whole, for known files that break long lines. For example,
    /// autoconf's `config.status` breaks strings at a column, which can split a path.
    pub uncut: Uncut<'a>,
    /// The words that matter in a text.
    pub words: Words,
}

/// The words that are searched for in texts. The answers are kept in stamps, so these must be the
/// same functions in all processes.
#[derive(Clone, Copy)]
pub struct Words {
    /// Returns true if a text contains a word that becomes the path of a file.
    pub names_files: fn(&[u8]) -> bool,
    /// Returns true if a text may make a compiler compare the mtimes of files.
    pub compares_dates: fn(&[u8]) -> bool,
}

impl Forms<'_> {
    /// Returns the forms if no file has a special form: all bytes count.
    pub const fn plain(words: Words) -> Forms<'static> {
        Forms { object: None, uncut: &|_, _| None, words }
    }
}

/// What one input contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// If it is a text that contains a root: the digest of its bytes with roots replaced.
    pub(crate) rooted: Option<Digest>,
    /// It contains a root in a way that cannot be replaced.
    pub(crate) fixed: bool,
    /// It contains a root outside of a preprocessor line, so that columns after it depend on the
    /// root's length.
    pub(crate) loose: bool,
    /// If it is an object file that contains a root: the digest of the form that it has in every
    /// place.
    pub(crate) object: Option<Digest>,
    /// It may contain a word that becomes the path of a file ([`Words::names_files`]).
    pub(crate) names_files: bool,
    /// It may make a compiler compare mtimes ([`Words::compares_dates`]). No stamp says that, so
    /// such a file is read each time.
    pub(crate) compares_dates: bool,
    /// It contains a name by chance, which is not replaced.
    pub(crate) names_runs: bool,
}

impl Held {
    /// The answer for a file that is not searched.
    pub(crate) const ANYTHING: Held = Held {
        rooted: None,
        object: None,
        fixed: true,
        loose: true,
        names_files: true,
        compares_dates: true,
        names_runs: true,
    };
}

/// A search of files for the roots of one place.
pub(crate) struct Scan<'a> {
    roots: &'a Roots,
    stat_cache: &'a StatCache,
    forms: Forms<'a>,
    /// Stands in a stamp for "contains no root of this place".
    rootless: Digest,
    /// Stands in a stamp for "neither uses the name of a file nor compares mtimes".
    nameless: Digest,
    /// Stands in a stamp for "uses the name of a file, and does not compare mtimes".
    naming: Digest,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(roots: &'a Roots, stat_cache: &'a StatCache, forms: Forms<'a>) -> Self {
        let mut all = b"no root:".to_vec();
        roots.paths().iter().for_each(|root| all.extend([root, &b"\0"[..]].concat()));
        Scan {
            roots,
            stat_cache,
            forms,
            rootless: Digest::of(&all),
            nameless: Digest::of(b"no name of a file, nor pieces of one, no dates"),
            naming: Digest::of(b"the name of a file, or pieces of one, no dates"),
        }
    }

    /// Returns what the file with this `stat` contains. `open` opens it. Names by chance are only
    /// searched in files below roots, because a file elsewhere is older than the name and cannot
    /// contain it.
    pub(crate) fn file(&self, path: &[u8], stat: &Stat, open: impl Fn() -> io::Result<File>) -> io::Result<Held> {
        let may_hold_names = !self.roots.names().is_empty() && !self.roots.is_outside(path);
        let is_object = is_object_name(path) || is_library_name(path) && !self.roots.is_outside(path);
        if let Some(objects) = self.forms.object.filter(|_| is_object)
            && let Some(held) = object(&mut open()?, stat, objects)?
        {
            return Ok(held);
        }
        if !may_hold_names && self.stat_cache.says(stat, &self.rootless) {
            if self.stat_cache.says(stat, &self.nameless) {
                return Ok(Held::default());
            } else if self.stat_cache.says(stat, &self.naming) {
                return Ok(Held { names_files: true, ..Held::default() });
            }
        }
        let now_ns = larder_sys::now_coarse_ns();
        let mut file = open()?;
        let mut start = [0; MAGIC_BYTES];
        let count = file.read_at(&mut start, 0)?;
        let held = if is_program(&start[..count]) {
            Held::default()
        } else if let Some(bytes) = read_text(&mut file)? {
            let held = match (self.forms.uncut)(path, &bytes) {
                Some(uncut) => self.bytes(&uncut, of_uncut),
                None => self.bytes(&bytes, Digest::of),
            };
            Held { names_runs: may_hold_names && contains_any(&bytes, self.roots.names()), ..held }
        } else {
            return Ok(Held::ANYTHING);
        };
        if larder_sys::fstat(&file)? != *stat {
            return Err(io::Error::other("changed while it was read"));
        }
        let names = if held.names_files { &self.naming } else { &self.nameless };
        let names = (!held.compares_dates).then_some(names);
        let is_rootless = held.rooted.is_none() && !held.fixed;
        for what in [names, is_rootless.then_some(&self.rootless)].into_iter().flatten() {
            self.stat_cache.keep_saying(stat, now_ns, what, &file);
        }
        let held = Held { fixed: held.fixed || held.names_runs, ..held };
        Ok(held)
    }

    fn bytes(&self, bytes: &[u8], digest: fn(&[u8]) -> Digest) -> Held {
        let holds_root = contains_any(bytes, self.roots.paths());
        let encoded = if holds_root { self.roots.encode_content(bytes) } else { None };
        let left = |encoded: &Vec<u8>| contains_any(encoded, self.roots.paths());
        Held {
            fixed: holds_root && encoded.as_ref().is_none_or(left),
            loose: encoded.as_ref().is_some_and(|encoded| stands_loose(encoded)),
            rooted: encoded.map(|encoded| digest(&encoded)),
            object: None,
            names_files: (self.forms.words.names_files)(bytes),
            compares_dates: (self.forms.words.compares_dates)(bytes),
            names_runs: false,
        }
    }
}

/// Returns the digest of a joined text with roots replaced. It never equals the digest of a file
/// with these bytes, because it begins with two zeros, and no root has the number zero.
pub(crate) fn of_uncut(encoded: &[u8]) -> Digest {
    Digest::of(&[&[PLACEHOLDER, PLACEHOLDER], encoded].concat())
}

/// Returns what an object file contains. No stamp is used, because none says that.
fn object(file: &mut File, stat: &Stat, objects: Anywhere<'_>) -> io::Result<Option<Held>> {
    let Some(bytes) = read_text(file)?.filter(|bytes| is_program(bytes)) else { return Ok(None) };
    let object = objects(&bytes).map(|bytes| Digest::of(&bytes));
    if larder_sys::fstat(file)? != *stat {
        return Err(io::Error::other("changed while it was read"));
    }
    Ok(Some(Held { object, ..Held::default() }))
}

fn is_object_name(path: &[u8]) -> bool {
    [&b".o"[..], b".lo", b".obj"].iter().any(|ending| path.ends_with(ending))
}

/// Returns true for archives and shared libraries. Those of a build hold objects with its paths.
fn is_library_name(path: &[u8]) -> bool {
    path.ends_with(b".a") || path.ends_with(b".so") || contains(path, ".so.")
}

const MAGIC_BYTES: usize = 8;

/// Returns the digest of a file's content with roots replaced, which is the same in every place.
/// Returns `None` if the path is not a readable regular file.
pub fn content_anywhere(path: &[u8], roots: &Roots, stat_cache: &StatCache, words: Words) -> Option<Digest> {
    let scan = Scan::new(roots, stat_cache, Forms::plain(words));
    let stat = larder_sys::stat(path).ok().filter(|stat| stat.kind == FileType::File)?;
    if let Some(digest) = stat_cache.content(&stat)
        && stat_cache.says(&stat, &scan.rootless)
    {
        return Some(digest);
    }
    let open = || larder_sys::open(path, Opening::Read);
    let (digest, stat) = stat_cache.hash_of(&mut open().ok()?).ok()?;
    Some(scan.file(path, &stat, open).ok()?.rooted.unwrap_or(digest))
}

/// Returns true if a line with a root (a zero byte here) is not completely a preprocessor line. A
/// line that continues the line before does not count as a preprocessor line.
fn stands_loose(encoded: &[u8]) -> bool {
    let is_directive = |line: &[u8]| line.trim_ascii_start().starts_with(b"#") && !contains(line, "*/");
    encoded.split(|&b| b == b'\n').any(|line| line.contains(&PLACEHOLDER) && !is_directive(line))
}

/// Returns true for object files, archives and programs. If their content gets into a result, it
/// does so unchanged.
fn is_program(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"!<arch>\n") || bytes.starts_with(b"!<thin>\n")
}

/// Reads all of a file. Returns `None` if it is larger than [`TEXT_BYTES_MAX`].
pub(crate) fn read_text(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    larder_sys::read_rest_at_most(file, TEXT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_that_can_be_replaced_and_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = crate::Store::open(dir.path()).expect("opens");
        let stat_cache = StatCache::open(&store, false);
        let roots = Roots::new([b"/some/where".to_vec()]);
        let words = Words { names_files: |_| false, compares_dates: |text| text == b"dates" };
        let scan = || Scan::new(&roots, &stat_cache, Forms::plain(words));
        let held = |text: &[u8]| {
            let held = scan().bytes(text, Digest::of);
            (held.rooted.is_some(), held.fixed)
        };
        assert_eq!(held(b"\"/some/where/x\""), (true, false));
        assert_eq!(held(b"\"/some/wherever\""), (false, true));
        assert_eq!(held(b"/some/where \0"), (false, true));
        assert_eq!(held(b"x/some/where /some/where"), (true, true));
        assert_eq!(held(b"/some"), (false, false));
        let loose = |text: &[u8]| scan().bytes(text, Digest::of).loose;
        assert!(!loose(b"int x;\n # define X \"/some/where\"\n"));
        assert!(loose(b"/* /some/where */ int x;\n") && loose(b"#define X \\\n \"/some/where\"\n"));
        assert!(
            scan().bytes(b"dates", Digest::of).compares_dates && !scan().bytes(b"int x;", Digest::of).compares_dates
        );
        assert!(is_program(b"\x7fELF\x02\x01\x01\0") && is_program(b"!<arch>\n") && !is_program(b"int x;"));
    }
}
