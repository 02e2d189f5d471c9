//! The row type of the flag tables, and the search for the row that matches an argument.
//!
//! Unaware of: how the parser reacts to a meaning.

use crate::{Family, clang, gcc};

/// Where a flag takes its argument from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// The flag has no argument.
    None,
    /// The next word: `-include x.h`.
    Separate,
    /// The rest of the same word, as in `-march=native`. Also used for families of flags such as
    /// `-print-…`.
    Joined,
    /// The rest of the same word or the next word: `-ofile`, `-o file`.
    Either,
    /// The next word, or the rest after `=`: `--output file`, `--output=file`.
    Equals,
}

/// What a flag means to larder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Makes LLVM bitcode instead of an object file.
    Bitcode,
    /// Compiles to an object file.
    Compile,
    /// Requests a depfile that lists all headers.
    DepfileAll,
    /// Gives the path of the depfile.
    DepfileName,
    /// Requests a depfile without system headers.
    DepfileUser,
    /// Changes the default names of further outputs, by rules that larder does not model.
    DumpName,
    /// Ends the flags: only files follow.
    EndOfFlags,
    /// Passes its argument to clang's front end or to LLVM.
    FrontEnd,
    /// Sets the language of the files that follow.
    Language,
    /// Gives the path of the output.
    Output,
    /// Has no effect on parsing. The flag is in the key, and whatever files it makes the tool read
    /// or write are observed.
    PassOn,
    /// A list of preprocessor arguments, separated by commas.
    PreprocessorList,
    /// Loads code or flags from a file, which may query the processor's features.
    Processor,
    /// Stops before an object file is made, or does something other than compiling.
    StopsEarly,
    /// Has an effect that cannot be repeated from a record, so the command is bypassed.
    TooHard,
}

/// A row of a table: the spelling, where the argument is, and the meaning.
pub(crate) type Flag = (&'static str, Argument, Meaning);

/// The result of looking up an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) meaning: Meaning,
    pub(crate) value: Value<'a>,
}

/// Where the argument of the flag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// The flag has none.
    None,
    /// In the same word, with this text.
    Here(&'a [u8]),
    /// In the next word.
    Next,
}

/// Returns the row for an argument that begins with `-`, or `None` if no table has one.
///
/// Each family knows the other family's flags as well, because `cc` may be clang. A flag that
/// neither knows is an error of the command, and a failed run is a result like any other.
pub(crate) fn find(family: Family, argument: &[u8]) -> Option<Found<'_>> {
    let tables = match family {
        Family::Clang => [clang::flags::FLAGS, gcc::flags::FLAGS],
        _ => [gcc::flags::FLAGS, clang::flags::FLAGS],
    };
    let exact = tables.iter().find_map(|table| whole_word(table, argument));
    exact.or_else(|| longest_start(&tables, argument))
}

/// Returns the row whose spelling equals the argument.
fn whole_word<'a>(table: &[Flag], argument: &'a [u8]) -> Option<Found<'a>> {
    let &(_, kind, meaning) = row(table, argument)?;
    let value = match kind {
        Argument::None => Value::None,
        Argument::Joined => Value::Here(b""),
        Argument::Separate | Argument::Either | Argument::Equals => Value::Next,
    };
    Some(Found { meaning, value })
}

/// Returns the row with the longest spelling that is a prefix of the argument and may be followed
/// by more text.
fn longest_start<'a>(tables: &[&[Flag]], argument: &'a [u8]) -> Option<Found<'a>> {
    let longest = argument.len().min(SPELLING_BYTES_MAX + 1);
    (1..longest).rev().find_map(|length| {
        let (start, rest) = argument.split_at(length);
        tables.iter().find_map(|table| {
            let &(_, kind, meaning) = row(table, start)?;
            let value = match kind {
                Argument::None | Argument::Separate => return None,
                Argument::Joined | Argument::Either => rest,
                Argument::Equals => rest.strip_prefix(b"=")?,
            };
            Some(Found { meaning, value: Value::Here(value) })
        })
    })
}

fn row<'t>(table: &'t [Flag], spelling: &[u8]) -> Option<&'t Flag> {
    table.binary_search_by(|(name, ..)| name.as_bytes().cmp(spelling)).ok().map(|at| &table[at])
}

/// The longest spelling allowed in a table, in bytes. A test checks the tables.
const SPELLING_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_short() {
        for table in [gcc::flags::FLAGS, clang::flags::FLAGS] {
            for pair in table.windows(2) {
                assert!(pair[0].0.as_bytes() < pair[1].0.as_bytes(), "{} {}", pair[0].0, pair[1].0);
            }
            for (name, ..) in table {
                assert!(name.len() <= SPELLING_BYTES_MAX && name.starts_with('-'), "{name}");
            }
        }
    }

    #[test]
    fn each_row_finds_itself() {
        for (family, table) in [(Family::Gcc, gcc::flags::FLAGS), (Family::Clang, clang::flags::FLAGS)] {
            for (name, _, meaning) in table {
                assert_eq!(find(family, name.as_bytes()).map(|f| f.meaning), Some(*meaning), "{name}");
            }
        }
    }

    #[test]
    fn the_longest_spelling_wins() {
        let value = |argument: &'static str| find(Family::Gcc, argument.as_bytes()).map(|f| (f.meaning, f.value));
        assert_eq!(value("-ofile"), Some((Meaning::Output, Value::Here(b"file"))));
        assert_eq!(value("--output=x"), Some((Meaning::Output, Value::Here(b"x"))));
        assert_eq!(value("--outputx"), None);
        assert_eq!(value("-dumpbase"), Some((Meaning::DumpName, Value::Next)));
        assert_eq!(value("-dumpmachine"), Some((Meaning::StopsEarly, Value::None)));
        assert_eq!(value("-object-file-name=x"), Some((Meaning::PassOn, Value::Here(b"x"))));
        assert_eq!(value("-O2"), None);
    }
}
