//! The search for the row of a flag, and the questions about single arguments that other crates
//! ask.
//!
//! Each family knows the other family's flags as well, because `cc` may be clang. A flag that
//! neither knows is an error of the command, and a failed run is a result like any other.
//!
//! Unaware of: what follows from an answer.

use larder_model::contains_any;

use crate::flag::{Alters, Argument, Flag, Meaning, Role};
use crate::response::{self, ResponseFiles};
use crate::{clang, gcc};

/// No spelling is in both tables.
const TABLES: [&[Flag]; 2] = [gcc::flags::FLAGS, clang::flags::FLAGS];

/// The meaning of an argument, and where the argument of the flag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlagUse<'a> {
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

/// Parses an argument that begins with `-`. The longest row decides whose spelling the argument
/// begins with, and whose column `argument` allows what follows the spelling.
pub(crate) fn find(argument: &[u8]) -> Option<FlagUse<'_>> {
    let longest = |table| {
        prefixes(table, argument).find_map(|flag| Some((flag, value_of(flag, &argument[flag.spelling.len()..])?)))
    };
    let found = TABLES.into_iter().filter_map(longest).max_by_key(|(flag, _)| flag.spelling.len());
    found.map(|(flag, value)| FlagUse { meaning: flag.meaning, value })
}

/// Returns the longest row whose spelling `word` begins with, whatever follows.
pub(crate) fn row(word: &[u8]) -> Option<&'static Flag> {
    // This saves the search for the thousands of files that a linker can have as arguments.
    if !word.starts_with(b"-") {
        return None;
    }
    let longest = |table| prefixes(table, word).next();
    TABLES.into_iter().filter_map(longest).max_by_key(|flag| flag.spelling.len())
}

/// Returns the role of the argument of a flag.
pub(crate) fn role(word: &[u8]) -> Role {
    row(word).map_or(Role::Other, |flag| flag.role)
}

/// Returns the rows of a table whose spelling `word` begins with, the longest first.
fn prefixes<'w>(table: &'static [Flag], word: &'w [u8]) -> impl Iterator<Item = &'static Flag> + use<'w> {
    let mut start = word;
    std::iter::from_fn(move || {
        loop {
            // All rows between a prefix of `start` and `start` itself begin with that prefix. So no
            // prefix is longer than what `start` and the row before it have in common.
            let at = table.partition_point(|flag| flag.spelling.as_bytes() <= start);
            let flag = table[..at].last()?;
            let spelling = flag.spelling.as_bytes();
            let common = spelling.iter().zip(start).take_while(|(a, b)| a == b).count();
            if common == spelling.len() {
                start = &start[..common - 1];
                return Some(flag);
            }
            start = &start[..common];
        }
    })
}

/// Returns where the argument of a flag is if `rest` follows its spelling, or `None` if `rest` may
/// not follow.
fn value_of<'a>(flag: &Flag, rest: &'a [u8]) -> Option<Value<'a>> {
    match (flag.argument, rest.is_empty()) {
        (Argument::None | Argument::Optional, true) => Some(Value::None),
        (Argument::Separate | Argument::Either | Argument::Equals, true) => Some(Value::Next),
        (Argument::Joined, _) | (Argument::Either, false) => Some(Value::Here(rest)),
        (Argument::Equals | Argument::Optional, false) => rest.strip_prefix(b"=").map(Value::Here),
        (Argument::None | Argument::Separate, false) => None,
    }
}

/// Returns the directory of a flag such as `-Iinc`, in which headers are searched for.
pub fn searched_directory(word: &[u8]) -> Option<&[u8]> {
    let flag = row(word).filter(|flag| matches!(flag.role, Role::Searched | Role::SearchedSystem))?;
    Some(&word[flag.spelling.len()..])
}

/// Returns the argument of a flag that leads to headers: a directory, or a header. A header that is
/// found by it has a path that begins with this argument.
pub fn header_path(word: &[u8]) -> Option<&[u8]> {
    let flag = row(word).filter(|flag| matches!(flag.role, Role::Header | Role::Searched | Role::SearchedSystem))?;
    Some(&word[flag.spelling.len()..])
}

/// Returns true for a flag that passes something to the linker which may put a path into the
/// result.
pub fn is_for_linker(word: &[u8]) -> bool {
    matches!(role(word), Role::Linker | Role::RunPath | Role::Script) && !only_searches(word)
}

/// Returns true for `-Wl,-rpath-link,DIRECTORY` alone. The linker only searches that directory, as
/// with `-L`.
fn only_searches(word: &[u8]) -> bool {
    let names: [&[u8]; 4] = [b"-Wl,-rpath-link,", b"-Wl,--rpath-link,", b"-Wl,-rpath-link=", b"-Wl,--rpath-link="];
    names.iter().any(|name| word.strip_prefix(*name).is_some_and(|directory| !directory.contains(&b',')))
}

/// Returns true for a flag that makes a compiler run or load code that is not part of it.
pub fn runs_other_code(word: &[u8]) -> bool {
    row(word).is_some_and(|flag| matches!(flag.alters, Alters::Plugins | Alters::Programs))
}

/// Returns true for an argument that makes a compiler load a plugin, or has a part that does so as
/// `-Wp,-load,x.so` and `-mllvm=-load=x.so`.
pub fn loads_plugin(word: &[u8]) -> bool {
    let is_flag = |word: &[u8]| row(word).is_some_and(|flag| flag.alters == Alters::Plugins);
    // LLVM takes `--load` for `-load`.
    let is_one = |part: &[u8]| is_flag(part) || part.strip_prefix(b"-").is_some_and(is_flag);
    word.split(|byte| matches!(byte, b',' | b'=')).any(is_one)
}

/// Returns true if one of the arguments, or of those in response files, makes a compiler load a
/// plugin.
pub fn load_plugins(arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> bool {
    let expanded = response::expand(arguments, files);
    expanded.as_deref().unwrap_or(arguments).iter().any(|word| loads_plugin(word))
}

/// Returns true for a flag that makes the compiler read source text by other rules.
pub fn alters_text(word: &[u8]) -> bool {
    row(word).is_some_and(|flag| flag.alters == Alters::Text)
}

/// Returns true if an argument of any kind may bring further arguments, or change where comments
/// and strings end. In contrast to [`alters_text`], it need not be a flag: it may be the argument
/// of one or a part of a list.
pub fn may_alter_text(argument: &[u8]) -> bool {
    const PARTS: [&str; 9] =
        ["__has_", "-specs", "ansi", "c89", "c90", "9899:199", "traditional", "preprocessed", "assembler"];
    contains_any(argument, &PARTS)
}

/// Returns true for a flag that writes the dependencies to the output, such as `-M`.
pub fn writes_dependencies(word: &[u8]) -> bool {
    find(word).is_some_and(|found| found.meaning == Meaning::Dependencies)
}

/// Returns true for `-E`.
pub fn only_preprocesses(word: &[u8]) -> bool {
    find(word).is_some_and(|found| found.meaning == Meaning::Preprocess)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_disjoint() {
        for table in TABLES {
            for pair in table.windows(2) {
                let [before, after] = [pair[0].spelling, pair[1].spelling];
                assert!(before.as_bytes() < after.as_bytes(), "{before} {after}");
            }
            assert!(table.iter().all(|flag| flag.spelling.starts_with('-')));
        }
        let [gcc, clang] = TABLES;
        let both: Vec<_> = gcc.iter().filter(|a| clang.iter().any(|b| a.spelling == b.spelling)).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn each_row_finds_itself() {
        for flag in TABLES.into_iter().flatten() {
            let spelling = flag.spelling.as_bytes();
            assert_eq!(find(spelling).map(|found| found.meaning), Some(flag.meaning), "{flag:?}");
            assert_eq!(row(spelling).map(|row| row.spelling), Some(flag.spelling));
        }
    }

    /// Compares with the obvious search: all rows, one after the other.
    #[test]
    fn the_longest_row_is_found() {
        for flag in TABLES.into_iter().flatten() {
            for word in ["", "=", "=x", "x", "-", "~"].map(|end| format!("{}{end}", flag.spelling)) {
                for length in 0..=word.len() {
                    let word = &word[..length];
                    let rows = TABLES.into_iter().flatten().filter(|flag| word.starts_with(flag.spelling));
                    let longest = rows.max_by_key(|flag| flag.spelling.len()).map(|flag| flag.spelling);
                    assert_eq!(row(word.as_bytes()).map(|flag| flag.spelling), longest, "{word}");
                }
            }
        }
    }

    #[test]
    fn the_longest_spelling_wins() {
        let value = |argument: &'static str| find(argument.as_bytes()).map(|f| (f.meaning, f.value));
        assert_eq!(value("-ofile"), Some((Meaning::Output, Value::Here(b"file"))));
        assert_eq!(value("--output=x"), Some((Meaning::Output, Value::Here(b"x"))));
        assert_eq!(value("--outputx"), None);
        assert_eq!(value("-dumpbase"), Some((Meaning::DumpName, Value::Next)));
        assert_eq!(value("-dumpmachine"), Some((Meaning::StopsEarly, Value::None)));
        assert_eq!(value("-object-file-name=x"), Some((Meaning::PassOn, Value::Here(b"x"))));
        assert_eq!(value("-time-passes=x"), Some((Meaning::Statistics, Value::Here(b"x"))));
        assert_eq!(value("-time-passesx"), None);
        assert_eq!(value("-no-such-flag"), None);
    }

    #[test]
    fn questions_about_words() {
        assert_eq!(searched_directory(b"-isystem/r/inc"), Some(&b"/r/inc"[..]));
        assert_eq!(searched_directory(b"-include/r/x.h"), None);
        assert_eq!(header_path(b"-include/r/x.h"), Some(&b"/r/x.h"[..]));
        assert!(is_for_linker(b"-Wl,-rpath,/r") && !is_for_linker(b"-L/r"));
        assert!(!is_for_linker(b"-Wl,-rpath-link,/r") && is_for_linker(b"-Wl,-rpath-link,/r,-rpath,/r"));
        assert!(runs_other_code(b"-fplugin-arg-x") && runs_other_code(b"-B/r") && !runs_other_code(b"/r/-B"));
        assert!(loads_plugin(b"-fplugin=x.so") && loads_plugin(b"-load") && loads_plugin(b"-Wp,-load,x.so"));
        assert!(loads_plugin(b"--load=x.so") && loads_plugin(b"-mllvm=-load=x.so"));
        assert!(!loads_plugin(b"-B/r") && !loads_plugin(b"-Wl,-plugin,x.so") && !loads_plugin(b"load"));
        assert!(alters_text(b"-traditional-cpp") && !alters_text(b"-Wall"));
        assert!(may_alter_text(b"-std=iso9899:1990") && !may_alter_text(b"-std=gnu89"));
        assert!(writes_dependencies(b"-MM") && !writes_dependencies(b"-MMD"));
        assert!(only_preprocesses(b"--preprocess") && !only_preprocesses(b"-Ex"));
    }
}
