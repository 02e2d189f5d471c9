//! What the bytes of an input hold that could carry the path of this place into a result: the path itself, and words by
//! which a compiler asks for the name of a file. Each file is read once for this, and its stamp remembers that it holds
//! neither.
//!
//! Unaware of: what follows from it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_model::{Digest, PLACEHOLDER, Roots};
use larder_sys::{Kind, Look};
use memchr::memmem;

use crate::Stamps;

/// A larger file is not read for this: it is taken to hold everything.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// What a file is in any place, from its bytes in this one; `None` where it is to be these bytes.
pub type Anywhere<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// The text of a file uncut, from its path and its bytes; `None` where it is as it is.
pub type Uncut<'a> = &'a dyn Fn(&[u8], &[u8]) -> Option<Vec<u8>>;

/// What files are in any place whose bytes are others in each, beyond texts that hold a path as it is.
#[derive(Clone, Copy)]
pub struct Forms<'a> {
    /// For objects, where they count only for that.
    pub object: Option<Anywhere<'a>>,
    /// The text in which all paths stand as they are, of files of which that is known: their own may be cut at a column.
    pub uncut: Uncut<'a>,
}

impl Forms<'_> {
    /// Where every file is its bytes.
    pub const NONE: Forms<'static> = Forms { object: None, uncut: &|_, _| None };
}

/// What one input holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// It is a text that holds a root: the digest of its bytes with roots replaced.
    pub(crate) rooted: Option<Digest>,
    /// A root is in it in a way that cannot be replaced.
    pub(crate) fixed: bool,
    /// A root stands elsewhere than in a line for the preprocessor: columns behind it depend on its length.
    pub(crate) loose: bool,
    /// It is an object that holds a root: the digest of what it is in any place.
    pub(crate) object: Option<Digest>,
    /// It may ask for the name of a file.
    pub(crate) names_files: bool,
    /// A name by chance is in it, which is not replaced.
    pub(crate) names_runs: bool,
}

impl Held {
    /// Of a file that is not looked into.
    pub(crate) const ANYTHING: Held =
        Held { rooted: None, object: None, fixed: true, loose: true, names_files: true, names_runs: true };
}

/// Looks into files for one place.
pub(crate) struct Scan<'a> {
    roots: &'a Roots,
    stamps: &'a Stamps,
    forms: Forms<'a>,
    /// Stands for "no root of this place is in it".
    rootless: Digest,
    /// Stands for "it asks for no file's name".
    nameless: Digest,
    /// Stands for "it does ask for one".
    naming: Digest,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(roots: &'a Roots, stamps: &'a Stamps) -> Self {
        let mut all = b"no root:".to_vec();
        roots.paths().iter().for_each(|root| all.extend([root, &b"\0"[..]].concat()));
        Scan {
            roots,
            stamps,
            forms: Forms::NONE,
            rootless: Digest::of(&all),
            nameless: Digest::of(b"no name of a file, nor pieces of one"),
            naming: Digest::of(b"the name of a file, or pieces of one"),
        }
    }

    /// The same, where files of these forms count for what they are in any place.
    pub(crate) fn with(self, forms: Forms<'a>) -> Self {
        Scan { forms, ..self }
    }

    /// What a file holds that has this look; `open` opens it.
    ///
    /// Names by chance are looked for below roots only: a file that was there before cannot hold one.
    pub(crate) fn file(&self, path: &[u8], look: &Look, open: impl Fn() -> io::Result<File>) -> io::Result<Held> {
        let may_hold_names = !self.roots.names().is_empty() && !self.roots.is_outside(path);
        if let Some(objects) = self.forms.object.filter(|_| is_object_name(path))
            && let Some(held) = object(&mut open()?, look, objects)?
        {
            return Ok(held);
        }
        if !may_hold_names && self.stamps.says(look, &self.rootless) {
            if self.stamps.says(look, &self.nameless) {
                return Ok(Held::default());
            } else if self.stamps.says(look, &self.naming) {
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
            let holds = |name: &Vec<u8>| memmem::find(&bytes, name).is_some();
            let held = match (self.forms.uncut)(path, &bytes) {
                Some(uncut) => self.bytes(&uncut, of_uncut),
                None => self.bytes(&bytes, Digest::of),
            };
            Held { names_runs: may_hold_names && self.roots.names().iter().any(holds), ..held }
        } else {
            return Ok(Held::ANYTHING);
        };
        if larder_sys::file_look(&file)? != *look {
            return Err(io::Error::other("changed while it was read"));
        }
        let names = if held.names_files { &self.naming } else { &self.nameless };
        let is_rootless = held.rooted.is_none() && !held.fixed;
        for what in [Some(names), is_rootless.then_some(&self.rootless)].into_iter().flatten() {
            self.stamps.keep_saying(look, now_ns, what, &file);
        }
        let held = Held { fixed: held.fixed || held.names_runs, ..held };
        Ok(held)
    }

    fn bytes(&self, bytes: &[u8], digest: fn(&[u8]) -> Digest) -> Held {
        let holds_root = self.roots.paths().iter().any(|root| memmem::find(bytes, root).is_some());
        let encoded = if holds_root { self.roots.encode_content(bytes) } else { None };
        let left = |encoded: &Vec<u8>| self.roots.paths().iter().any(|root| memmem::find(encoded, root).is_some());
        Held {
            fixed: holds_root && encoded.as_ref().is_none_or(left),
            loose: encoded.as_ref().is_some_and(|encoded| stands_loose(encoded)),
            rooted: encoded.map(|encoded| digest(&encoded)),
            object: None,
            names_files: names_files(bytes),
            names_runs: false,
        }
    }
}

/// The digest of a text that is uncut, roots replaced: never that of a file that holds the same as it is, since no root's
/// number is zero.
pub(crate) fn of_uncut(encoded: &[u8]) -> Digest {
    Digest::of(&[&[PLACEHOLDER, PLACEHOLDER], encoded].concat())
}

/// What an object holds. Its stamp would say nothing of that.
fn object(file: &mut File, look: &Look, objects: Anywhere<'_>) -> io::Result<Option<Held>> {
    let Some(bytes) = read_text(file)?.filter(|bytes| is_program(bytes)) else { return Ok(None) };
    let object = objects(&bytes).map(|bytes| Digest::of(&bytes));
    if larder_sys::file_look(file)? != *look {
        return Err(io::Error::other("changed while it was read"));
    }
    Ok(Some(Held { object, ..Held::default() }))
}

fn is_object_name(path: &[u8]) -> bool {
    [&b".o"[..], b".lo", b".obj"].iter().any(|ending| path.ends_with(ending))
}

const MAGIC_BYTES: usize = 8;

/// The digest of a file's content, roots replaced: the same in every place of a build. `None` where it is no file that
/// can be read.
pub fn content_anywhere(path: &[u8], roots: &Roots, stamps: &Stamps) -> Option<Digest> {
    let scan = Scan::new(roots, stamps);
    let look = larder_sys::look_through(path).ok().filter(|look| look.kind == Kind::File)?;
    if let Some(digest) = stamps.content(&look)
        && stamps.says(&look, &scan.rootless)
    {
        return Some(digest);
    }
    let open = || File::open(Path::new(OsStr::from_bytes(path)));
    let (digest, look) = stamps.hash_of(&mut open().ok()?).ok()?;
    Some(scan.file(path, &look, open).ok()?.rooted.unwrap_or(digest))
}

/// Whether a root, which stands as a zero here, is in a line that is not all the preprocessor's. One that is continued
/// from the line before counts as such.
fn stands_loose(encoded: &[u8]) -> bool {
    let is_directive = |line: &[u8]| line.trim_ascii_start().starts_with(b"#") && memmem::find(line, b"*/").is_none();
    encoded.split(|&b| b == b'\n').any(|line| line.contains(&PLACEHOLDER) && !is_directive(line))
}

/// Objects, archives, programs: what they hold reaches a result as it is, where it does.
fn is_program(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"!<arch>\n") || bytes.starts_with(b"!<thin>\n")
}

/// All of a file; `None` where it is too large.
pub(crate) fn read_text(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    larder_sys::read_rest_at_most(file, TEXT_BYTES_MAX)
}

/// What becomes the name of a file, where it stands for itself.
pub const FILE_WORDS: [&[u8]; 2] = [b"__BASE_FILE__", b"__FILE__"];

/// What gives the name of a file, or may hold one.
pub const FILE_FUNCTIONS: [&[u8]; 4] =
    [b"__builtin_FILE", b"__builtin_source_location", b"__builtin_dump_struct", b"__PRETTY_FUNCTION__"];

/// Whether a text holds a word that becomes the name of a file, or a piece of one: it may be pasted together.
pub fn names_files(text: &[u8]) -> bool {
    /// How the first piece of one begins.
    const STARTS: [&[u8]; 3] = [b"__B", b"__F", b"__builtin_"];
    // This is asked of single lines too, most of which have none.
    if !text.contains(&b'_') {
        return false;
    }
    let text = &*without_splices(text);
    let begins = |word: &[u8]| {
        let is_piece = |name: &&[u8]| name.len() > word.len() && name.starts_with(word);
        FILE_WORDS.iter().chain(&FILE_FUNCTIONS[..3]).any(is_piece)
    };
    let is_start = |at: usize| (at == 0 || !is_in_word(text[at - 1])) && begins(word_around(text, at));
    let is_end = |at: usize| {
        text.get(at + 3).is_none_or(|b| !is_in_word(*b)) && {
            let word = word_around(text, at);
            FILE_WORDS.iter().any(|name| name.ends_with(word))
        }
    };
    FILE_FUNCTIONS.iter().any(|word| memmem::find(text, word).is_some())
        || memmem::find_iter(text, b"E__").any(is_end)
        || STARTS.iter().any(|start| memmem::find_iter(text, start).any(is_start))
        || memmem::find_iter(text, b"FILE").any(|at| is_beside_underscores(text, at))
        || memmem::find_iter(text, b"__").any(|at| is_only_underscores(text, at) && has_another(text, at))
}

/// Whether the word there is all of such a name but for underscores, and others stand in its line.
fn is_beside_underscores(text: &[u8], at: usize) -> bool {
    let word = word_around(text, at);
    let start = word.iter().position(|b| *b != b'_').unwrap_or(0);
    let end = word.iter().rposition(|b| *b != b'_').map_or(0, |last| last + 1);
    [&b"FILE"[..], b"BASE_FILE"].contains(&&word[start..end]) && {
        let line = line_around(text, at);
        memchr::memchr_iter(b'_', line).any(|at| word_around(line, at).iter().all(|b| *b == b'_'))
    }
}

fn is_only_underscores(text: &[u8], at: usize) -> bool {
    word_around(text, at) == b"__"
}

fn has_another(text: &[u8], at: usize) -> bool {
    let line = line_around(text, at);
    memmem::find_iter(line, b"__").filter(|at| is_only_underscores(line, *at)).count() > 1
}

fn line_around(text: &[u8], at: usize) -> &[u8] {
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |last| last + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length);
    &text[start..end]
}

fn word_around(text: &[u8], at: usize) -> &[u8] {
    let start = text[..at].iter().rposition(|b| !is_in_word(*b)).map_or(0, |last| last + 1);
    let end = text[at..].iter().position(|b| !is_in_word(*b)).map_or(text.len(), |length| at + length);
    &text[start..end]
}

/// Whether it is part of a word, for a preprocessor.
pub fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a preprocessor lets it stand at the end of a line that goes on.
pub fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Where lines go on in the next one: from the backslash to behind the end of the line. gcc lets blanks stand between.
pub fn splices(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memchr::memchr_iter(b'\\', text).filter_map(move |at| {
        let end = at + 1 + text[at + 1..].iter().take_while(|byte| is_blank(**byte)).count();
        (text.get(end) == Some(&b'\n')).then_some(at..end + 1)
    })
}

/// The text in which no word goes on in the next line.
fn without_splices(text: &[u8]) -> Cow<'_, [u8]> {
    let is_next_to_word = |Range { start, end }: Range<usize>| {
        let before = start.checked_sub(1).map(|before| text[before]);
        before.is_some_and(|b| is_in_word(b) || b == b'\n')
            && text.get(end).is_some_and(|b| is_in_word(*b) || *b == b'\\')
    };
    if !splices(text).any(is_next_to_word) {
        return Cow::Borrowed(text);
    }
    let (mut whole, mut from) = (Vec::with_capacity(text.len()), 0);
    for splice in splices(text) {
        whole.extend_from_slice(&text[from..splice.start]);
        from = splice.end;
    }
    whole.extend_from_slice(&text[from..]);
    Cow::Owned(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_files() {
        let named = [
            &b"assert(__FILE__)"[..],
            b"X(__FI, LE__)",
            b"p(E__)",
            b"__BASE_FILE__",
            b"__builtin_FILE()",
            b"X(__FILE, __)",
            b"X(__BASE_F, a)",
            b"X(__builtin_, FILE)",
            b"X(__, FILE, __)",
            b"X(_, _FILE, __)",
            b"X(__, FI, LE, __)",
            b"__FI\\\nLE__",
            b"__FILE_\\ \t\n_",
            b"__FIL\\\n\\\nE__",
            b"__builtin_FI\\\r\nLE()",
        ];
        named.into_iter().for_each(|text| assert!(names_files(text), "{}", String::from_utf8_lossy(text)));
        let none = [
            &b"#ifndef X_INCLUDE__\n"[..],
            b"__FILE__x",
            b"E__x",
            b"FILE *f;",
            b"__TABLE__",
            b"__CONCAT(__, name)",
            b"FILE *f;\nx = _(\"y\");",
            b"_(\"y\"); _(\"z\");",
            b"__builtin_expect(x, 1) \\\n    __FILEx",
        ];
        none.into_iter().for_each(|text| assert!(!names_files(text), "{}", String::from_utf8_lossy(text)));
    }

    #[test]
    fn roots_that_can_be_replaced_and_others() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = crate::Store::open(dir.path()).expect("opens");
        let stamps = Stamps::open(&store, false);
        let roots = Roots::new([b"/some/where".to_vec()]);
        let held = |text: &[u8]| {
            let held = Scan::new(&roots, &stamps).bytes(text, Digest::of);
            (held.rooted.is_some(), held.fixed)
        };
        assert_eq!(held(b"\"/some/where/x\""), (true, false));
        assert_eq!(held(b"\"/some/wherever\""), (false, true));
        assert_eq!(held(b"/some/where \0"), (false, true));
        assert_eq!(held(b"x/some/where /some/where"), (true, true));
        assert_eq!(held(b"/some"), (false, false));
        let loose = |text: &[u8]| Scan::new(&roots, &stamps).bytes(text, Digest::of).loose;
        assert!(!loose(b"int x;\n # define X \"/some/where\"\n"));
        assert!(loose(b"/* /some/where */ int x;\n") && loose(b"#define X \\\n \"/some/where\"\n"));
        assert!(is_program(b"\x7fELF\x02\x01\x01\0") && is_program(b"!<arch>\n") && !is_program(b"int x;"));
    }
}
