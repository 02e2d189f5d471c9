//! The table of programs: what larder knows about each by its file name.
//!
//! To add a program, add one row. The row must have all columns, or the table does not compile. `_`
//! is the answer for a program that has no row, and says what is safe.
//!
//! Unaware of: what follows from an answer.

use larder_model::path::file_name;

use crate::names::base_name;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    name: &'static str,
    pub(super) rule: Rule,
    pub(super) proc: Proc,
    pub(super) archives: Archives,
}

/// Which of the rules of [`super::habit`] applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// `_`: nothing is known about what the program does in every run.
    Unknown,
    /// Writes the mtimes and owners of the files that it collects, unless told not to.
    Archiver,
    Awk,
    /// The result depends on contents and names of files alone.
    Blind,
    /// Decides by mtimes what to do. `make` sorts the result of `$(wildcard)` since 4.3.
    Build,
    /// `cargo locate-project` prints the path of a manifest. Some procedural macros run it.
    Cargo,
    CMake,
    /// A part of gcc that no user starts.
    CompilerPart,
    /// Compares mtimes only if told to.
    Copier,
    Date,
    Diff,
    Find,
    /// Its commands that only show something do not depend on the clock: see [`super::git`].
    Git,
    /// With `-n`, it names the libraries in a directory after what they contain.
    Ldconfig,
    Ls,
    Perl,
    Python,
    /// rustc, and clippy's driver, which is rustc with more lints. They run procedural macros. Also
    /// rustup, whose proxies choose a toolchain and become its rustc.
    Rustc,
    Shell,
    /// Can print what `stat` returns. This holds for `Find`, `Ls`, `Tar` and `Test` as well.
    Status,
    Tar,
    /// Random numbers only reach the names of temporary files.
    TemporaryNames,
    /// `test` and `[`.
    Test,
    Touch,
    Troff,
    /// Writes the time into a header, unless told to leave that out.
    Xgettext,
}

/// Whether the program reads files such as `/proc/self/maps` to manage its own memory only: to
/// handle a stack overflow (libsigsegv), or to choose sizes by the memory available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proc {
    /// `_`: what it reads may affect its result.
    Matters,
    /// It reads any of them in every run.
    Always,
    /// It reads `/proc/self/maps` once when it starts, as libsigsegv and gnulib's `c-stack` do.
    Stack,
    /// It reads the limits of its control group, and opens no other files than those in its
    /// arguments.
    Limits,
}

/// What the program does with archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Archives {
    /// `_`: it does not unpack them.
    Kept,
    /// It extracts files from them. Their content can usually not be read before.
    Unpacks,
}

/// Returns the row of the program with this file name. The name without target and version counts
/// if the name itself has no row. Both are needed, because `lto1` and `m4` end in a digit that is
/// not a version.
pub(super) fn find(program: &[u8]) -> Option<&'static Program> {
    let row = |name: &[u8]| PROGRAMS.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok();
    row(file_name(program)).or_else(|| row(base_name(program))).map(|at| &PROGRAMS[at])
}

/// Returns the rule for the program with this file name.
pub(super) fn rule(program: &[u8]) -> Rule {
    find(program).map_or(Rule::Unknown, |row| row.rule)
}

/// Builds the table from rows of four columns each.
macro_rules! programs {
    ($($name:literal $rule:tt $proc:tt $archives:tt;)*) => {
        &[$(Program {
            name: $name,
            rule: column!(Rule Unknown $rule),
            proc: column!(Proc Matters $proc),
            archives: column!(Archives Kept $archives),
        }),*]
    };
}

/// Returns the value of a column. `$unknown` stands for `_`.
macro_rules! column {
    ($column:ident $unknown:ident _) => {
        $column::$unknown
    };
    ($column:ident $unknown:ident $value:ident) => {
        $column::$value
    };
}

/// The rows, sorted by name, byte by byte.
const PROGRAMS: &[Program] = programs! {
    // name                rule           proc   archives
    "7z"                  _              _      Unpacks;
    "7za"                 _              _      Unpacks;
    "7zr"                 _              _      Unpacks;
    "["                   Test           _      _;
    "ar"                  Archiver       _      _;
    "ash"                 Shell          _      _;
    "awk"                 Awk            Stack  _;
    "basename"            Blind          _      _;
    "bash"                Shell          _      _;
    "bison"               Blind          _      _;
    "bsdtar"              _              _      Unpacks;
    "bzip2"               _              _      Unpacks;
    "cargo"               Cargo          Always _;
    "cat"                 Blind          _      _;
    "cc1"                 CompilerPart   _      _;
    "cc1obj"              CompilerPart   _      _;
    "cc1objplus"          CompilerPart   _      _;
    "cc1plus"             CompilerPart   _      _;
    "chmod"               Blind          _      _;
    "clippy-driver"       Rustc          Always _;
    "cmake"               CMake          _      _;
    "cmp"                 Blind          Stack  _;
    "collect2"            CompilerPart   _      _;
    "comm"                Blind          _      _;
    "cp"                  Copier         _      _;
    "cpack"               CMake          _      _;
    "cpio"                Status         _      Unpacks;
    "cpp"                 CompilerPart   _      _;
    "ctest"               CMake          _      _;
    "cut"                 Blind          _      _;
    "dash"                Shell          _      _;
    "date"                Date           _      _;
    "diff"                Diff           Stack  _;
    "dirname"             Blind          _      _;
    "du"                  Status         _      _;
    "echo"                Blind          _      _;
    "egrep"               Blind          Stack  _;
    "env"                 Blind          _      _;
    "expand"              Blind          _      _;
    "expr"                Blind          _      _;
    "f951"                CompilerPart   _      _;
    "false"               Blind          _      _;
    "fgrep"               Blind          Stack  _;
    "file"                Blind          _      _;
    "find"                Find           _      _;
    "flex"                Blind          _      _;
    "fmt"                 Blind          _      _;
    "fold"                Blind          _      _;
    "g++-mapper-server"   CompilerPart   _      _;
    "gawk"                Awk            Stack  _;
    "gcc-ar"              Archiver       _      _;
    "gcc-ranlib"          Archiver       _      _;
    "ginstall"            Copier         _      _;
    "git"                 Git            _      _;
    "gmake"               Build          _      _;
    "gperf"               Blind          _      _;
    "grep"                Blind          Stack  _;
    "gtar"                _              _      Unpacks;
    "gzip"                _              _      Unpacks;
    "head"                Blind          _      _;
    "hostname"            Blind          _      _;
    "install"             Copier         _      _;
    "java"                _              Always _;
    "join"                Blind          _      _;
    "ksh"                 Shell          _      _;
    "ldconfig"            Ldconfig       _      _;
    "lex"                 Blind          _      _;
    "llvm-ar"             Archiver       _      _;
    "llvm-ranlib"         Archiver       _      _;
    "ln"                  Copier         _      _;
    "ls"                  Ls             _      _;
    "lto-wrapper"         CompilerPart   _      _;
    "lto1"                CompilerPart   _      _;
    "m4"                  Blind          Stack  _;
    "make"                Build          _      _;
    "mawk"                Awk            _      _;
    "md5sum"              Blind          _      _;
    "mkdir"               Blind          _      _;
    "mksh"                Shell          _      _;
    "mktemp"              TemporaryNames _      _;
    "mv"                  Copier         _      _;
    "nasm"                Blind          _      _;
    "nawk"                Awk            Stack  _;
    "ninja"               Build          Always _;
    "nl"                  Blind          _      _;
    "node"                _              Always _;
    "od"                  Blind          _      _;
    "original-awk"        Awk            _      _;
    "paste"               Blind          _      _;
    "pathchk"             Blind          _      _;
    "pax"                 _              _      Unpacks;
    "perl"                Perl           _      _;
    "pkg-config"          Blind          _      _;
    "pkgconf"             Blind          _      _;
    "printenv"            Blind          _      _;
    "printf"              Blind          _      _;
    "protoc"              Blind          _      _;
    "pwd"                 Blind          _      _;
    "pypy"                Python         _      _;
    "python"              Python         _      _;
    "ranlib"              Archiver       _      _;
    "re2c"                Blind          _      _;
    "readlink"            Blind          _      _;
    "realpath"            Blind          _      _;
    "rm"                  Blind          _      _;
    "rmdir"               Blind          _      _;
    "rsync"               Status         _      _;
    "rustc"               Rustc          Always _;
    "rustup"              Rustc          Always _;
    "samu"                Build          _      _;
    "sed"                 Copier         _      _;
    "seq"                 Blind          _      _;
    "sh"                  Shell          _      _;
    "sha1sum"             Blind          _      _;
    "sha256sum"           Blind          _      _;
    "sleep"               Blind          _      _;
    "sort"                Blind          Limits _;
    "split"               Blind          _      _;
    "stat"                Status         _      _;
    "tac"                 Blind          _      _;
    "tail"                Blind          _      _;
    "tar"                 Tar            _      Unpacks;
    "tee"                 Blind          _      _;
    "tempfile"            TemporaryNames _      _;
    "test"                Test           _      _;
    "touch"               Touch          _      _;
    "tr"                  Blind          _      _;
    "troff"               Troff          _      _;
    "true"                Blind          _      _;
    "tsort"               Blind          _      _;
    "tty"                 Blind          _      _;
    "uname"               Blind          _      _;
    "unexpand"            Blind          _      _;
    "uniq"                Blind          _      _;
    "unzip"               _              _      Unpacks;
    "wc"                  Blind          _      _;
    "which"               Blind          _      _;
    "xgettext"            Xgettext       _      _;
    "xxd"                 Blind          _      _;
    "xz"                  _              _      Unpacks;
    "yacc"                Blind          _      _;
    "yasm"                Blind          _      _;
    "zip"                 Status         _      _;
    "zsh"                 Shell          _      _;
    "zstd"                _              _      Unpacks;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        for pair in PROGRAMS.windows(2) {
            assert!(pair[0].name.as_bytes() < pair[1].name.as_bytes(), "{}", pair[1].name);
        }
    }

    #[test]
    fn names_with_targets_and_versions() {
        for (name, expect) in [("m4", Rule::Blind), ("lto1", Rule::CompilerPart), ("python3.13", Rule::Python)] {
            assert_eq!(rule(name.as_bytes()), expect, "{name}");
        }
        assert_eq!(rule(b"/usr/bin/x86_64-linux-gnu-gcc-ar-12"), Rule::Archiver);
        assert_eq!(rule(b"lto"), Rule::Unknown);
    }
}
