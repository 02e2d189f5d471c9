//! What a row of a flag table is, and how an argument finds its row.
//!
//! Unaware of: what is done about a meaning.

use crate::{Family, clang, gcc};

/// How a flag's argument stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// It has none.
    None,
    /// It is the next word: `-include x.h`.
    Separate,
    /// It follows at once: `-march=native`, or is part of a family of names: `-print-…`.
    Joined,
    /// Either: `-ofile`, `-o file`.
    Either,
    /// The next word, or behind `=`: `--output file`, `--output=file`.
    Equals,
}

/// What a flag means for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Makes LLVM bitcode of what would be an object file.
    Bitcode,
    /// Compiles to an object file.
    Compile,
    /// Asks for a depfile that lists all headers.
    DepfileAll,
    /// Names the depfile.
    DepfileName,
    /// Asks for a depfile without system headers.
    DepfileUser,
    /// Changes the default names of further outputs by rules that are not ours to know.
    DumpName,
    /// Only files follow.
    EndOfFlags,
    /// Its argument goes to clang's own front end, or to LLVM.
    FrontEnd,
    /// Names the language of what follows.
    Language,
    /// Names the output.
    Output,
    /// Nothing: it is in the key, and what it leads to is observed.
    PassOn,
    /// Several arguments for the preprocessor, with commas.
    PreprocessorList,
    /// Brings code or flags of its own, which may ask the processor.
    Processor,
    /// Stops before an object file is made, or does something else.
    StopsEarly,
    /// What it does cannot be repeated from a record.
    TooHard,
}

/// A row: spelling, how its argument stands, meaning.
pub(crate) type Flag = (&'static str, Argument, Meaning);

/// What an argument turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) meaning: Meaning,
    pub(crate) value: Value<'a>,
}

/// Where a flag's argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// There is none.
    None,
    /// In the same word.
    Here(&'a [u8]),
    /// In the next one.
    Next,
}

/// The row for an argument that begins with `-`. Each family knows the other's flags as well: `cc` may be clang, and
/// what neither knows is an error of the command, whose result is as good as any.
pub(crate) fn find(family: Family, argument: &[u8]) -> Option<Found<'_>> {
    let tables = match family {
        Family::Clang => [clang::flags::FLAGS, gcc::flags::FLAGS],
        _ => [gcc::flags::FLAGS, clang::flags::FLAGS],
    };
    let exact = tables.iter().find_map(|table| whole_word(table, argument));
    exact.or_else(|| longest_start(&tables, argument))
}

/// The row whose spelling is all of the argument.
fn whole_word<'a>(table: &[Flag], argument: &'a [u8]) -> Option<Found<'a>> {
    let &(_, kind, meaning) = row(table, argument)?;
    let value = match kind {
        Argument::None => Value::None,
        Argument::Joined => Value::Here(b""),
        Argument::Separate | Argument::Either | Argument::Equals => Value::Next,
    };
    Some(Found { meaning, value })
}

/// The row with the longest spelling that the argument begins with and may continue.
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

/// No spelling is longer; a test holds the tables to it.
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
