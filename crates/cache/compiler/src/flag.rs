//! The columns of the flag tables. `gcc::flags` and `clang::flags` have one row for each flag.
//!
//! To add a flag, add one row to the table of its family. The row must have all nine columns, or
//! the table does not compile. `_` in a column is the answer for a flag that has no row: the enum
//! of the column says what that is. For example, this row says that `-fabi-version=11` reads and
//! writes no file, so that the depfile observer may be used with it. All else is as for an unknown
//! flag:
//!
//! ```text
//! // spelling         argument meaning role paths columns preprocess proof alters
//! "-fabi-version="    Joined   _       _    _     _       _          Value _;
//! ```
//!
//! All columns but `argument` and `meaning` also hold for longer flags that begin with the
//! spelling, unless a longer row matches. For example, `-fprofile` stands for `-fprofile-arcs` and
//! `-fprofile-use=x`, but not for `-fprofile-prefix-map=`, which has its own row. There is no
//! column for the cache key, because the key contains all arguments.
//!
//! Unaware of: which flags there are, and what a column's reader does with the answer.

/// A row of a flag table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    /// The flag with its dashes, or the common beginning of several flags.
    pub(crate) spelling: &'static str,
    pub(crate) argument: Argument,
    pub(crate) meaning: Meaning,
    pub(crate) role: Role,
    pub(crate) paths: Paths,
    pub(crate) columns: Columns,
    pub(crate) preprocess: Preprocess,
    pub(crate) proof: Proof,
    pub(crate) alters: Alters,
}

/// The place that a flag takes its argument from.
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
    /// The rest after `=`, if there is one: `-stats`, `-stats=x`.
    Optional,
}

/// The meaning of a flag for the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// `_`: has no effect on parsing. The flag is in the key, and whatever files it makes the tool
    /// read or write are observed.
    PassOn,
    /// Makes LLVM bitcode instead of an object file.
    Bitcode,
    /// Compiles to an object file.
    Compile,
    /// Writes what a depfile contains to the output, and compiles nothing.
    Dependencies,
    /// Requests a depfile.
    Depfile,
    /// Gives the path of the depfile.
    DepfileName,
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
    /// Only preprocesses.
    Preprocess,
    /// A list of preprocessor arguments, separated by commas.
    PreprocessorList,
    /// Loads code or flags from a file, which may query the processor's features.
    Processor,
    /// Makes the front end or LLVM print times or counts. The driver has no such flag.
    Statistics,
    /// Stops before an object file is made, or does something other than compiling.
    StopsEarly,
    /// Has an effect that cannot be repeated from a record, so the command is bypassed.
    TooHard,
}

/// The kind of a flag's argument, by which [`crate::naming`] sorts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `_`: not known. If it contains the path of the checkout, the result cannot be used
    /// elsewhere.
    Other,
    /// Defines or undefines a macro, or is a similar argument for the preprocessor.
    Definition,
    /// A header that is included before the source.
    Header,
    /// Arguments for the linker.
    Linker,
    /// `OLD=NEW`: replaces the prefix OLD of paths in the result.
    Map,
    /// Some other path, or something that only a link uses, such as the name of a library.
    Place,
    /// A directory that the linker puts into the program.
    RunPath,
    /// A linker script, or an address for one.
    Script,
    /// A directory that is searched for headers.
    Searched,
    /// A directory that is searched for system headers.
    SearchedSystem,
    /// Makes the compiler hash the path of a source as it is on the command line, for example for a
    /// part of a symbol's name.
    Seed,
    /// Another directory below which system headers lie. gcc writes the canonical path of files
    /// there, if that is shorter. This holds for `SearchedSystem` as well.
    System,
}

/// How paths get into the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paths {
    /// `_`: unchanged, if at all.
    Kept,
    /// The path of a file decides whether, or how, part of that file enters the result.
    Compared,
    /// They are counted, hashed or compressed, or put where they cannot be searched:
    /// - profiles and coverage, link-time optimisation,
    /// - types and debug information named by hash, modules, plugins, dumps,
    /// - flags for other programs, and messages that are wrapped at a width.
    Transformed,
}

/// Tells whether column numbers of the sources can get into the result. For example, debug
/// information and sanitizers put them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    /// `_`: they may.
    Shown,
    /// The flag brings no positions into the result.
    Hidden,
}

/// The treatment of the flag if the command is run again only to preprocess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preprocess {
    /// `_`: it stays.
    Keep,
    /// It is left out, because it writes a further file, or changes the preprocessed text for debug
    /// information.
    Drop,
    /// It is left out if the word is nothing but the spelling, because it selects how far the
    /// command goes.
    DropExact,
}

/// Tells whether the depfile still lists all inputs if the command has this flag, and which value
/// [`crate::provable`] takes from it. The flag must be known to read and write no other file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// `_`: not known to be harmless, so the depfile is not enough.
    Refused,
    /// `-c`.
    Compile,
    /// `-D`.
    Definition,
    /// `-MD`.
    Dependencies,
    /// `-MF`.
    Depfile,
    /// A directory that is searched for headers.
    Directory,
    /// A header, in the next word.
    Header,
    /// Harmless, and without effect on the search for headers.
    Ignored,
    /// As harmless as `Ignored`, with an argument that is here or in the next word.
    IgnoredValue,
    /// `-x`.
    Language,
    /// `-o`.
    Output,
    /// Harmless if the word is nothing but the spelling.
    Exact,
    /// Harmless, whatever follows the spelling.
    Value,
    /// Harmless with gcc only, whatever follows the spelling.
    ValueOfGcc,
    /// `-g…`: harmless if it is one of a list.
    Debug,
    /// `-f…`: harmless if it has no value, and no part of its name shows otherwise.
    Feature,
    /// `-m…`: harmless if it consists of letters that a name or a number can have.
    Machine,
    /// `-O…`: harmless if a short level follows.
    Optimization,
    /// `-pedantic…`: harmless if it consists of letters.
    Pedantic,
    /// `-std=…`: harmless if `//` begins a comment and `import` is an ordinary identifier.
    Standard,
    /// `-W…`: harmless if it is a warning, and not a list for another program.
    Warning,
}

/// The part of the compiler's own behaviour that the flag changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alters {
    /// `_`: nothing that matters.
    Nothing,
    /// The compiler loads code that is not part of it into its own process.
    Plugins,
    /// The compiler runs code that is not part of it.
    Programs,
    /// Source text is read by other rules. A traditional preprocessor has other strings and
    /// comments, another input character set has other letters, and a part of a name can be
    /// `__USER_LABEL_PREFIX__` if that is not empty.
    Text,
}

/// Builds a flag table from rows of nine columns each.
macro_rules! flags {
    ($(
        $spelling:literal $argument:ident $meaning:tt $role:tt $paths:tt $columns:tt $preprocess:tt $proof:tt
        $alters:tt;
    )*) => {
        &[$($crate::flag::Flag {
            spelling: $spelling,
            argument: $crate::flag::Argument::$argument,
            meaning: $crate::flag::column!(Meaning PassOn $meaning),
            role: $crate::flag::column!(Role Other $role),
            paths: $crate::flag::column!(Paths Kept $paths),
            columns: $crate::flag::column!(Columns Shown $columns),
            preprocess: $crate::flag::column!(Preprocess Keep $preprocess),
            proof: $crate::flag::column!(Proof Refused $proof),
            alters: $crate::flag::column!(Alters Nothing $alters),
        }),*]
    };
}

/// Returns the value of a column. `$unknown` stands for `_`.
macro_rules! column {
    ($column:ident $unknown:ident _) => {
        $crate::flag::$column::$unknown
    };
    ($column:ident $unknown:ident $value:ident) => {
        $crate::flag::$column::$value
    };
}

pub(crate) use {column, flags};
