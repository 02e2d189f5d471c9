//! Words that show that a script may use something that differs in each run: clocks, mtimes of
//! files, ids of other processes, orders of hash tables.
//!
//! Unaware of: which program reads the text, and what is decided from the answer.

use crate::environment::begins_name_of_job;
use larder_model::path::file_name;
use larder_model::{contains, contains_any, is_in_word, leading_word};
use memchr::memmem;

/// Words with which a script can use mtimes of files, its own start time, or random numbers that
/// are seeded in every run.
///
/// The words are searched in the texts that a command reads, and in its arguments. If one is found,
/// Python, Perl and unknown programs are treated as if they printed all that `stat` returns.
#[rustfmt::skip]
pub const TIME_WORDS: &[&str] = &[
    "-nt", "-ot", "-ef", "-newer", "-mtime", "-mmin", "-N ",
    "mtime", "st_ctime", "st_atime", "os.stat", "stat(", "stat $", "stat \"", "stat _", "\x04stat", "lstat", "fstat", "scandir", "newer",
    "make_archive", "zipfile", "tarfile", "filecmp", "File::stat", "samefile", "Archive::Tar", "Archive::Zip",
    "cp -u", "cp -au", "cp -vu", "cp -uv", "mv -u", "--update", "install -C", "--compare",
    ".owner(", ".group(", "$^T", "BASETIME", "-M $", "-M_", "-M$", "-M \"", "-M\"", "rand(", "rand;", "systime", "strftime", "RANDOM", "SECONDS", "EPOCH",
];

/// The words of [`TIME_WORDS`] that mean nothing in Perl, but occur in prose that Perl reads: "a
/// side-effect", "newer". What Perl has a shell or another program run is seen when that starts.
const NOT_PERL: &[&str] = &[
    "-nt",
    "-ot",
    "-ef",
    "-newer",
    "-mtime",
    "-mmin",
    "-N ",
    "newer",
    "os.stat",
    "scandir",
    "make_archive",
    "zipfile",
    "tarfile",
    "filecmp",
    "cp -u",
    "cp -au",
    "cp -vu",
    "cp -uv",
    "mv -u",
    "--update",
    "install -C",
    "--compare",
];

/// Returns true if a text that only Perl reads holds one of [`TIME_WORDS`] with a meaning in Perl.
pub fn names_times_in_perl(text: &[u8]) -> bool {
    let own = ["newer(", "newer (", "up_to_date"];
    let words = TIME_WORDS.iter().filter(|word| !NOT_PERL.contains(word)).chain(&own);
    words.into_iter().any(|word| contains(text, word))
}

/// Words with which a shell compares mtimes of files.
pub const SHELL_TIME_WORDS: &[&str] = &["-nt", "-ot"];

/// Returns true if a text makes a shell test more than the mtime, the kind and the permissions of a
/// file. That is its owner, a special bit of its mode, whether it was read since it was modified,
/// or whether two paths are the same file. For example, `[ -O x ]` or `test a -ef b`.
pub fn names_shell_status(text: &[u8]) -> bool {
    let asks = |letter: u8| {
        memmem::find_iter(text, &[b' ', b'-', letter, b' ']).any(|at| {
            let before = text[..at].trim_ascii_end();
            let before = before.strip_suffix(b"!").map_or(before, <[u8]>::trim_ascii_end);
            [&b"["[..], b"test", b"&&", b"||"].iter().any(|end| before.ends_with(end))
        })
    };
    let is_compared = |at: usize| {
        let before = &text[memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1)..at];
        contains_any(before, &["[", "test"])
    };
    b"GNOgku".iter().any(|letter| asks(*letter)) || memmem::find_iter(text, b" -ef ").any(is_compared)
}

/// Words with which a script asks for the size of a file without reading it.
const SIZE_WORDS: &[&str] = &[
    "getsize", "st_size", ".size", "-size", "-empty", "-s $", "-s \"", "-s '", "-s _", "-s(", "-z _", "(-z ", "stat(",
    "stat $", "stat \"", "stat '", "du -b",
];

/// Returns true if a text asks for the size of a file without reading it, as `[ -s x ]` does.
pub fn names_sizes(text: &[u8]) -> bool {
    let is_test = |at: usize| {
        let before = text[..at].trim_ascii_end();
        let before = before.strip_suffix(b"!").map_or(before, <[u8]>::trim_ascii_end);
        [&b"["[..], b"test", b"&&", b"||", b"-a", b"-o", b"("].iter().any(|end| before.ends_with(end))
    };
    contains_any(text, SIZE_WORDS) || memmem::find_iter(text, b" -s ").any(is_test)
}

/// Shell variables that return the time, or a number seeded from it.
const SHELL_CLOCKS: &[&str] = &["RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME"];

/// Uses of these variables in scripts of autoconf and libtool that cannot affect a result: names of
/// temporary files, and commands for other systems.
const SHELL_NAMES: &[&str] = &[
    "$$-$RANDOM",
    "${RANDOM-0}$$",
    "$RANDOM-$$",
    "try and use $RANDOM",
    "$RANDOM is bash specific and expands to empty",
    "test -n \"$RANDOM\"",
    "`expr ${RANDOM-$$} %",
];

/// Returns true if a text makes a shell read the clock or draw a random number, other than for the
/// name of a temporary file.
pub fn names_shell_clocks(text: &[u8]) -> bool {
    let is_clock = |name: &[u8]| SHELL_CLOCKS.iter().any(|clock| clock.as_bytes() == name);
    let names_one = |text: &[u8]| text.split(|byte| !is_in_word(*byte)).any(is_clock);
    if !names_one(text) && !contains(text, "printf") {
        return false;
    }
    // Escaped text belongs to another script, so backslashes are ignored.
    let mut plain: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\\').collect();
    SHELL_NAMES.iter().for_each(|name| take_out(&mut plain, name.as_bytes()));
    names_one(&plain) || contains_any(&plain, &["printf %(", "printf '%(", "printf \"%("])
}

/// Returns true if a shell script times commands (`time`), or asks how long it has been running
/// (`times`).
pub fn times_commands(script: &[u8]) -> bool {
    const BEFORE: [&[u8]; 7] = [b"!", b"do", b"else", b"if", b"then", b"until", b"while"];
    let takes = |command: &[u8]| {
        let words = command.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut words = words.skip_while(|word| BEFORE.contains(word));
        match (words.next(), words.next()) {
            (Some(b"time"), Some(_)) => true,
            (Some(b"times"), next) => next.is_none_or(|next| next.starts_with(b">")),
            _ => false,
        }
    };
    script.split(|byte| b"\n;&|({`".contains(byte)).any(takes)
}

/// Overwrites every occurrence of `word` with blanks, unless a longer name begins there.
fn take_out(text: &mut [u8], word: &[u8]) {
    let ends = |at: &usize| {
        let end = at + word.len();
        !is_in_word(word[word.len() - 1]) || text.get(end).is_none_or(|byte| !is_in_word(*byte))
    };
    let found: Vec<usize> = memmem::find_iter(text, word).filter(ends).collect();
    found.into_iter().for_each(|at| text[at..at + word.len()].fill(b' '));
}

/// Returns true if a text may put the name of a search path such as `PATH`, or of a variable of a CI
/// service, together. For example, shells do so with `eval`, and make with `$(PA$(x))`.
pub fn computes_search_paths(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 3] = [b"eval", b"ENVIRON", b"nameref"];
    const SIGNS: [&str; 4] = ["${!", ".VARIABLES", "declare -n", "local -n"];
    let is_nested = |at: usize| {
        let rest = text.get(at + 2..).unwrap_or_default();
        let rest = rest.strip_prefix(b"value").map_or(rest, <[u8]>::trim_ascii_start);
        let start = leading_word(rest);
        let rest = &rest[start.len()..];
        // `$($x)` runs a command of the name in `x`, if a shell reads it.
        let is_nested = match start {
            [] => rest.starts_with(b"$(") || rest.starts_with(b"${"),
            _ => rest.starts_with(b"$"),
        };
        is_nested && (crate::search_paths().any(|name| name.starts_with(start)) || begins_name_of_job(start))
    };
    text.split(|byte| !is_in_word(*byte)).any(|word| WORDS.contains(&word))
        || contains_any(text, &SIGNS)
        || [&b"$("[..], b"${"].iter().any(|open| memmem::find_iter(text, open).any(is_nested))
}

/// Returns true if a text may show which signals are ignored: it makes a shell list its traps, or
/// it sends signals, whose traps have no effect if the caller ignores them.
pub fn shows_ignored_signals(text: &[u8]) -> bool {
    let lists = |rest: &[u8]| {
        let next = rest.trim_ascii_start();
        let ends = next.first().is_none_or(|byte| b";|&>)`}".contains(byte));
        // The quote after `sh -c 'trap'`. After a blank, a quote begins an argument.
        ends || next.starts_with(b"-p") || rest.first().is_some_and(|byte| b"\"'".contains(byte))
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| {
        let traps = memmem::find_iter(line, b"trap");
        let is_word = |at: usize| at.checked_sub(1).is_none_or(|before| !is_in_word(line[before]));
        traps.into_iter().any(|at| is_word(at) && lists(&line[at + 4..]))
            || line.split(|byte| !is_in_word(*byte)).any(|word| word == b"kill")
    })
}

/// Registers of roff that contain the date and the time.
pub const ROFF_WORDS: &[&str] = &[
    "\\n(yr",
    "\\n(mo",
    "\\n(dy",
    "\\n(dw",
    "[year]",
    "[yr]",
    "[mo]",
    "[dy]",
    "[dw]",
    "[hours]",
    "[minutes]",
    "[seconds]",
    "[y2k]",
];

/// Words with which an awk script reads the clock or draws a number seeded from it, or loads code
/// that may do so.
pub const AWK_WORDS: &[&str] = &["rand(", "rand (", "rand;", "systime", "strftime", "@load", "@include \""];

/// The first arguments of CMake's `string` and `file` that return the time, mtimes of files, or
/// random numbers.
const CMAKE_CLOCKS: &[&str] = &["ARCHIVE_CREATE", "TIMESTAMP", "RANDOM", "UUID"];

/// Returns true if a text makes CMake read the clock or draw random numbers.
pub fn names_cmake_clocks(text: &[u8]) -> bool {
    let is_first = |at: usize| text[..at].trim_ascii_end().last().is_some_and(|byte| *byte == b'(');
    CMAKE_CLOCKS.iter().any(|word| {
        memmem::find_iter(text, word.as_bytes()).any(|at| {
            let end = text.get(at + word.len()).is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            end && is_first(at)
        })
    })
}

/// Words in the names of properties of the system by which CMake returns the size of the memory and
/// how much of it is free. For any other property it finds that out too, and returns none of it.
pub const CMAKE_MEMORY_WORDS: &[&str] = &["PHYSICAL_MEMORY", "VIRTUAL_MEMORY", "}_MEMORY"];

/// Words with which a script uses clocks that many programs read for other reasons, or asks how much
/// of the disk or of the memory is free. No event shows the latter.
#[rustfmt::skip]
pub const CLOCK_WORDS: &[&str] = &[
    "monotonic", "perf_counter", "process_time", "getrusage", "clock_gettime", "times()", "thread_time",
    "wait3(", "wait4(", "ru_utime", "ru_stime", "statvfs", "disk_usage", "AVPHYS",
];

/// Words with which a Perl script uses clocks.
pub const PERL_CLOCK_WORDS: &[&str] = &["HiRes", "clock(", "= times", "=times", "(times", "POSIX::times"];

/// Words with which a script gets an order or a number that depends on the seed of a hash function
/// or on a memory address. The list cannot be complete: no word reveals a set display (`{a, b}`).
#[rustfmt::skip]
pub const HASH_WORDS: &[&str] = &[
    "hash(", "hash (", " id(", "(id(", ",id(", "=id(", " set(", "(set(", "[set(", ",set(", "=set(", "frozenset", "object()",
    "ctypes", "builtins",
];

/// Words with which a Perl script gets an order that depends on the seed of a hash function.
pub const PERL_HASH_WORDS: &[&str] = &["keys %", "keys(%", "each %", "each(%", "values %", "values(%", "Data::Dumper"];

/// Words with which a script reads the memory map of a process.
pub const MEMORY_WORDS: &[&str] = &["/proc/", "proc/self"];

/// Words with which a script reads the memory map of a process, or how much memory it uses, by a
/// program that does so itself in every run.
pub const OWN_MEMORY_WORDS: &[&str] = &["self/maps", "self/statm"];

/// Words of the pragmas with which gcc and clang compare the mtimes of two files.
pub const DATE_WORDS: &[&str] = &["GCC dependency", "clang dependency"];

/// Words that list all variables in a shell, awk, Tcl, make, CMake, Python or Perl.
pub const LIST_OF_VARIABLES: &[&str] = &[
    "export -p",
    "declare -x",
    "declare -p",
    "typeset -x",
    "typeset -p",
    "compgen -e",
    "compgen -v",
    "in ENVIRON",
    "array names env",
    ".VARIABLES",
    "os.environ.items",
    "os.environ.keys",
    "os.environ.values",
    "(os.environ)",
    "in os.environ:",
    "in os.environ if ",
    "in os.environ)",
    "in os.environ]",
    "in os.environ}",
    "keys %ENV",
    "each %ENV",
    "%ENV)",
    "-E environment",
];

/// Returns true if a shell script lists its variables, which include its parent's process id.
///
/// The commands for that (`set`, `export`) are also ordinary words, so only a command without
/// arguments counts. In a manual page they do not count.
pub fn lists_shell_variables(text: &[u8]) -> bool {
    if is_formatted(text) {
        return false;
    }
    const COMMANDS: [&[u8]; 5] = [b"set", b"export", b"declare", b"typeset", b"readonly"];
    let is_end = |rest: &[u8]| rest.iter().find(|byte| **byte != b' ').is_none_or(|byte| b";>|&)`".contains(byte));
    let lists = |command: &[u8]| COMMANDS.iter().any(|word| command.strip_prefix(*word).is_some_and(is_end));
    let commands =
        |line: &[u8]| line.split(|byte| b";&|(`\"'".contains(byte)).any(|command| lists(command.trim_ascii()));
    // autoconf's scripts use this to test how a shell quotes, and keep only variables whose names
    // they know.
    const AUTOCONFS: &str = "set) 2>&1";
    text.split(|byte| *byte == b'\n').any(|line| commands(line) && !contains(line, AUTOCONFS))
}

/// Returns true if a text is input for troff, such as a manual page. Its first line is then a
/// comment or a title.
fn is_formatted(text: &[u8]) -> bool {
    [&b".\\\""[..], b"'\\\"", b".TH ", b".Dd "].iter().any(|begin| text.starts_with(begin))
}

/// Ways in which a shell uses the previous directory without the variable `OLDPWD`.
pub const DIRECTORY_BEFORE: &[&str] = &["cd -\n", "cd -;", "cd - ", "cd -&", "cd -)", "cd -`", "~-"];

/// Words with which a script can get a process id, including that of another process. If a text
/// contains one, and a result contains such a number, the result differs each time.
const PROCESS_WORDS: &[&str] = &[
    "${!}",
    "jobs -",
    "= fork",
    "=fork",
    "COPROC",
    "_PID",
    "$PID",
    "PROCESS_ID",
    "getpid",
    "getppid",
    "getpgrp",
    "getpgid",
    "getsid",
    "gettid",
    "native_id",
    "BASHPID",
    "PPID",
    "process.pid",
    "Process.pid",
    "getmypid",
    "PROCINFO",
    "[pid]",
];

/// Words with which a script gets the id of a process that it started or waited for. Compiled code
/// calls functions of these names for other reasons as well.
const CHILD_WORDS: &[&str] =
    &["os.fork", "os.wait", "os.spawn", "os.posix_spawn", "forkpty", "= wait", "=wait", "print wait", "maketemp"];

/// Ways in which a Python script starts a process whose id is then in the attribute `pid`.
const STARTS_WITH_ID: &[&str] = &["Popen", "create_subprocess", "Process("];

/// A shell's variable for the last background process. It is too short to search machine code or
/// compressed data for it.
const PROCESS_SIGN: &str = "$!";

/// Text written by automake that looks like one of the words above but does not put a process id
/// into a result. The first is for killing that process, the second is a command of sed.
const NO_PROCESS: &[&str] = &["am_sleep_pid=$!", "$!N;"];

/// Returns true if a text can get the id of a process other than the one that runs it.
pub fn names_other_processes(text: &[u8]) -> bool {
    let count = |words: &[&str]| words.iter().map(|word| count(text, word)).sum::<usize>();
    count(PROCESS_WORDS) + count(&[PROCESS_SIGN]) > count(NO_PROCESS)
        || contains_any(text, CHILD_WORDS)
        || contains_any(text, STARTS_WITH_ID) && reads_attribute(text, b".pid")
}

/// Returns true if a text reads this attribute of an object.
fn reads_attribute(text: &[u8], attribute: &[u8]) -> bool {
    memmem::find_iter(text, attribute).any(|at| text.get(at + attribute.len()).is_none_or(|byte| !is_in_word(*byte)))
}

/// Returns true if compiled code can get a process id. Object files and archives contain the names
/// of the functions that they call.
pub fn compiled_names_other_processes(code: &[u8]) -> bool {
    contains_any(code, PROCESS_WORDS)
}

fn count(text: &[u8], word: &str) -> usize {
    memmem::find_iter(text, word.as_bytes()).count()
}

/// Lines with which `configure` tests whether two paths are the same directory.
const SAME_DIRECTORY: &[&str] = &["ac_ls_di=`ls -di .`", "`cd \"$ac_pwd\" && ls -di .`"];

/// Returns `None` if a text does not ask `ls` for inode numbers. Otherwise returns true if it does
/// so only in lines written by autoconf.
pub fn names_inodes(text: &[u8]) -> Option<bool> {
    let (all, known) = (count(text, "ls -di"), SAME_DIRECTORY.iter().map(|known| count(text, known)).sum());
    (all > 0).then_some(all == known)
}

/// Returns true if a file with this name is a makefile or a template of one.
pub fn is_makefile(path: &[u8]) -> bool {
    let name = file_name(path);
    // Perl's `Makefile.PL` is a script that writes a makefile.
    let is_script = [&b".PL"[..], b".pl", b".py", b".sh"].iter().any(|end| name.ends_with(end));
    if is_script {
        return false;
    }
    let starts = [&b"Makefile"[..], b"makefile", b"GNUmakefile"].iter().any(|start| name.starts_with(start));
    starts || [&b".mk"[..], b".mk.in", b".mak"].iter().any(|end| name.ends_with(end))
}

/// Declares [`Named`], whose fields are all treated alike.
macro_rules! named {
    ($($(#[$doc:meta])* $group:ident)*) => {
        /// Which groups of words the texts of a command contain.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Named {
            $($(#[$doc])* pub $group: bool,)*
        }

        impl Named {
            /// All groups. Used for a text that cannot be searched.
            pub const ANYTHING: Named = Named { $($group: true),* };
        }

        impl std::ops::BitOr for Named {
            type Output = Named;

            fn bitor(self, other: Named) -> Named {
                Named { $($group: self.$group || other.$group),* }
            }
        }
    };
}

named! {
    /// A text contains one of [`TIME_WORDS`].
    times
    /// A text contains one of [`SHELL_TIME_WORDS`].
    shell_times
    /// [`names_shell_status`] returns true for a text.
    shell_status
    /// [`names_sizes`] returns true for a text.
    sizes
    /// [`names_shell_clocks`] returns true for a text.
    shell_clocks
    /// [`crate::names_zsh_clocks`] returns true for a text.
    zsh_clocks
    /// A text contains one of [`AWK_WORDS`].
    awk_clocks
    /// A text contains one of [`ROFF_WORDS`].
    roff_clocks
    /// [`names_cmake_clocks`] returns true for a text.
    cmake_clocks
    /// A text contains one of [`CMAKE_MEMORY_WORDS`].
    cmake_memory
    /// A text contains one of [`CLOCK_WORDS`].
    clocks
    /// A text contains one of [`PERL_CLOCK_WORDS`].
    perl_clocks
    /// A text contains one of [`HASH_WORDS`].
    hashes
    /// A text contains one of [`PERL_HASH_WORDS`].
    perl_hashes
    /// [`crate::draws_numbers`] returns true for a text.
    python_draws
    /// A text contains one of [`MEMORY_WORDS`].
    memory
    /// A text contains one of [`OWN_MEMORY_WORDS`].
    own_memory
    /// A text that a compiler reads contains one of [`DATE_WORDS`].
    dates_compared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_put_together() {
        for text in ["eval x", "echo ${!x}", "all: $(PA$(n))", "$($(x))", "${$(x)}", "print ENVIRON[x]"] {
            assert!(computes_search_paths(text.as_bytes()), "{text}");
        }
        for text in ["evaluate", "$(am__v_CC_$(V))", "echo $(cat $x)", "v=$($CC -v)", "$(PATHS)", "${x}"] {
            assert!(!computes_search_paths(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn ignored_signals() {
        for text in ["trap", "trap -p INT", "x; trap; y", "trap\nx", "$(trap)", "kill -HUP $$"] {
            assert!(shows_ignored_signals(text.as_bytes()), "{text}");
        }
        for text in ["trap '' HUP", "trap 'rm x' 0", "bootstrap\n", "trapped", "skill"] {
            assert!(!shows_ignored_signals(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn times_in_perl() {
        for text in ["a side-effect", "the newer one", "-newer"] {
            assert!(!names_times_in_perl(text.as_bytes()), "{text}");
        }
        for text in ["stat($f)", "-M $f", "lstat", "newer($a, $b)"] {
            assert!(names_times_in_perl(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_sub_command_of_cmakes_is_the_first_word() {
        for (text, expect) in [
            ("string(TIMESTAMP now)", true),
            ("STRING (\n  RANDOM LENGTH 8 x)", true),
            ("file(ARCHIVE_CREATE OUTPUT x.tar PATHS d)", true),
            ("find_file(RANDOM_FILE urandom /dev)", false),
            ("set(RANDOM 1)", true),
            ("mark_as_advanced(X RANDOM)", false),
        ] {
            assert_eq!(names_cmake_clocks(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn a_shell_asks_for_more_than_rights() {
        for text in
            ["[ -O x ]", "if test ! -k \"$d\"; then", "[[ ! -u x ]]", "[[ -e x && -g x ]]", "if [ a -ef b ]; then"]
        {
            assert!(names_shell_status(text.as_bytes()), "{text}");
        }
        for text in ["[ -r x ]", "sort -u x", "gcc -g -O x.c", "a -k b", "test -n -u", "ps -ef | grep [x]"] {
            assert!(!names_shell_status(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_script_asks_for_a_size() {
        for text in ["[ -s x ]", "if test ! -s \"$f\"; then", "os.path.getsize(f)", "print -s 'x'", "find . -empty"] {
            assert!(names_sizes(text.as_bytes()), "{text}");
        }
        for text in ["gcc -s x.o", "strip -s x", "[ -z x ]", "make -s all", "sizeof x"] {
            assert!(!names_sizes(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_script_gets_the_id_of_a_child() {
        for text in [
            "p = subprocess.Popen(['true']); print(p.pid)",
            "p = os.fork()\nif p: print(p)",
            "print(os.wait()[0])",
            "fork or exit; print wait",
            "maketemp(/tmp/xXXXXXX)",
        ] {
            assert!(names_other_processes(text.as_bytes()), "{text}");
        }
        for text in ["p = subprocess.Popen(['true']); p.wait()", "pidfile = /run/x.pid", "x.pids", "await f()"] {
            assert!(!names_other_processes(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn names_of_temporary_files_are_no_clocks() {
        for (text, expect) in [
            ("tmp=./conf$$-$RANDOM; mkdir $tmp", false),
            ("my_tmpdir=$my_template-${RANDOM-0}$$", false),
            ("TIMEOUT_SECONDS=3", false),
            (
                "# already exists.  $RANDOM is bash specific and expands to empty in shells\ntmp=/tmp/gt$$-$RANDOM",
                false,
            ),
            ("echo $RANDOM # not $$-$RANDOM", true),
            ("echo $((SECONDS - start))", true),
            ("tmp=/tmp/x$$-$RANDOM-$$; echo $RANDOM", true),
            ("printf '%(%Y)T' -1", true),
            ("t=/tmp/a$$-$RANDOM_1", false),
            ("echo $RANDOM; t=/tmp/a$$-$RANDOM_1", true),
        ] {
            assert_eq!(names_shell_clocks(text.as_bytes()), expect, "{text}");
        }
    }

    #[test]
    fn a_shell_takes_the_time() {
        for text in
            ["time make", "x; time -p make -j2", "if ! time sh x; then", "{ time ls; } 2> out", "times", "(times >x)"]
        {
            assert!(times_commands(text.as_bytes()), "{text}");
        }
        for text in [
            "time",
            "# time is up",
            "echo time it",
            "a time()",
            "x times y",
            "timeout 5 x",
            "times of files",
            "time_t x",
        ] {
            assert!(!times_commands(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_shell_lists_its_variables() {
        for text in ["set", "set > out", "(set) | sort", "x=`set`", "a; set; b", "export | cat", "declare\n", "'set'"] {
            assert!(lists_shell_variables(text.as_bytes()), "{text}");
        }
        for text in ["set -e", "set x y", "export A=1", "(ac_space=' '; set) 2>&1` in", "is set to", "unset", "reset;"]
        {
            assert!(!lists_shell_variables(text.as_bytes()), "{text}");
        }
        // A sentence of a manual page.
        assert!(!lists_shell_variables(b".\\\" A page\n.TH X 3\neach type; set \n.I x\n"));
        assert!(lists_shell_variables(b"each type; set \n"));
    }
}
