//! Searches the texts that a compiler read for ways in which a root path may have reached the
//! result, without running the preprocessor.
//!
//! Unaware of: what is done with the answer.

use std::cell::OnceCell;
use std::path::PathBuf;

use crate::c_words::names_files;
use larder_compiler::{Family, Naming, alters_text, header_path};
use larder_model::{Looked, contains_any};

use crate::facts::{RunFacts, is_library, whole};
use crate::file_macro::{a_file_is_named, no_file_is_named};
use crate::inactive_regions::Names;
use crate::unused_macros::Macros;

/// A text: its path and its bytes.
type Read<'r> = (&'r [u8], Vec<u8>);

/// The texts that the compiler read, each read once from disk.
pub(crate) struct Sources<'r> {
    run: &'r RunFacts<'r>,
    naming: &'r Naming,
    /// Sources inside the roots, and texts outside. `None` if one cannot be read as the compiler read
    /// it.
    ours: OnceCell<Option<Vec<Read<'r>>>>,
    others: OnceCell<Option<Vec<Read<'r>>>>,
}

impl<'r> Sources<'r> {
    pub(crate) fn of(run: &'r RunFacts<'r>, naming: &'r Naming) -> Sources<'r> {
        Sources { run, naming, ours: OnceCell::new(), others: OnceCell::new() }
    }

    /// Returns true if root paths occur only in definitions of macros, and no text that was read
    /// can have used such a macro or `__FILE__`.
    pub(crate) fn only_unnamed_macros_hold_us(&self) -> bool {
        let Sources { run, naming, .. } = self;
        let is_usual = !naming.others.iter().any(|word| alters_text(word));
        let is_gccs = run.gcc_ran && run.command.family == Family::Gcc;
        let is_known = is_gccs && is_usual && run.command.roots.names().is_empty();
        if !is_known || run.carried.fixed.is_some() {
            return false;
        }
        if self.may_show_us() && self.may_name_files() && !self.no_file_is_named() {
            return false;
        }
        let Some(mut read) = self.read() else { return false };
        let is_rooted = |path: &[u8]| run.carried.rooted.iter().any(|rooted| rooted == path);
        let rooted: Option<Vec<_>> = run.carried.rooted.iter().map(|path| whole(path)).collect();
        let macros = rooted.and_then(|rooted| Macros::of(&naming.definitions, &rooted, &run.roots()));
        macros.is_some_and(|mut macros| {
            macros.is_empty()
                || macros.read(run.command.input)
                    && read.all(|(path, text)| is_rooted(path) || macros.read(text))
                    && macros.are_unnamed()
        })
    }

    /// Returns true if the preprocessed text certainly holds a root path, through `__FILE__`. If
    /// this returns false, only the preprocessor can tell.
    pub(crate) fn surely_name_us(&self) -> bool {
        let Sources { run, naming, .. } = self;
        let is_absolute = naming.mapped.is_empty() && naming.sources.iter().all(|source| run.names_us(source));
        if !is_absolute || !self.may_name_files() {
            return false;
        }
        // Headers that are found in these directories have relative paths.
        let relative =
            naming.places.iter().filter_map(|word| header_path(word)).filter(|directory| !directory.starts_with(b"/"));
        let relative: Vec<PathBuf> = relative.map(|named| run.directory(named)).collect();
        let is_called_whole = |path: &[u8]| {
            let path = larder_sys::as_path(path);
            !relative.iter().any(|directory| path.starts_with(directory))
        };
        self.ours().is_some_and(|ours| {
            let (whole, other): (Vec<_>, Vec<_>) = ours.iter().partition(|(path, _)| is_called_whole(path));
            let texts: Vec<&[u8]> = whole.iter().chain(&other).map(|(_, text)| text.as_slice()).collect();
            // `likely` may be wrong. The result is then used only in this checkout, which is safe.
            let names = Names::likely(&run.command.action.argv[1..], &naming.definitions, &texts);
            a_file_is_named(&names, &texts, whole.len())
        })
    }

    /// Returns true if the path by which a file is read may hold a root path.
    fn may_show_us(&self) -> bool {
        let Sources { run, naming, .. } = self;
        let told = naming.places.iter().chain(naming.mapped.iter().map(|(_, map)| map)).chain(&naming.others);
        let is_named = run.environment_names_us() || run.names_us(&run.command.action.tool_path);
        is_named || told.into_iter().any(|word| run.names_us(word))
    }

    /// Returns true if a word that expands to a file name occurs in any text or argument.
    fn may_name_files(&self) -> bool {
        self.naming.definitions.iter().any(|word| names_files(word)) || self.run.carried.names_files.is_some()
    }

    /// Returns true if no macro that expands to a file name with a root path was used in what the
    /// preprocessor read.
    fn no_file_is_named(&self) -> bool {
        let Sources { run, naming, .. } = self;
        // In assembler source, quotes do not delimit strings.
        let is_assembler = |source: &Vec<u8>| source.ends_with(b".S") || source.ends_with(b".sx");
        let Some(read) = self.read().filter(|_| !naming.sources.iter().any(is_assembler)) else { return false };
        // Files that may be read by a path with a root path in it come first, whatever links lead
        // to them.
        let may_be_called_as_we = |path: &[u8]| !naming.mapped.is_empty() || self.run.names_us(path);
        let (ours, others): (Vec<_>, Vec<_>) = read.partition(|(path, _)| may_be_called_as_we(path));
        let input = self.run.command.input;
        let read = ours.iter().chain(&others).map(|(_, text)| text.as_slice());
        let texts: Vec<&[u8]> = [input].into_iter().chain(read).collect();
        let names =
            Names::of(&run.command.action.tool_path, &run.command.action.argv[1..], &naming.definitions, &texts);
        names.is_some_and(|names| no_file_is_named(&names, &texts, 1 + ours.len(), &naming.definitions))
    }

    fn read(&self) -> Option<impl Iterator<Item = &Read<'r>>> {
        let others = self.others.get_or_init(|| self.read_where(|path| self.run.command.roots.is_outside(path)));
        Some(self.ours()?.iter().chain(others.as_deref()?))
    }

    fn ours(&self) -> Option<&[Read<'r>]> {
        let read = || self.read_where(|path| !self.run.command.roots.is_outside(path));
        self.ours.get_or_init(read).as_deref()
    }

    /// Returns what the compiler read of the paths for which `is_wanted` is true.
    fn read_where(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<Read<'r>>> {
        let is_read = |(path, looked): &&(Vec<u8>, Looked)| {
            looked.content && !looked.executed && is_wanted(path) && !is_library(path)
        };
        let text = |(path, looked): &'r (Vec<u8>, Looked)| match whole(path).filter(|_| looked.prior.is_none()) {
            Some(text) if self.is_libcs_table(path, &text) => None,
            Some(text) => Some(Some((path.as_slice(), text))),
            None => Some(None),
        };
        self.run.looked.iter().filter(is_read).filter_map(text).collect()
    }

    /// Returns true for a file that libc reads in any program: locales, character sets, the cache
    /// of libraries.
    fn is_libcs_table(&self, path: &[u8], bytes: &[u8]) -> bool {
        let is_named = contains_any(path, &["/locale/", "/gconv/", "/ld.so.cache"]);
        let is_table = bytes.contains(&0) || path.ends_with(b"/locale.alias");
        is_named && is_table && self.run.command.roots.is_outside(path)
    }
}
