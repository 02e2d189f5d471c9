//! Words by which the text of a script gets at what is another in each run: clocks, times of files, numbers of other
//! processes, orders of hash tables.
//!
//! Unaware of: who reads the text, and what follows.

/// Words by which a script in Python or Perl, or an unknown program, can get at the times of files, at the time of its
/// start, and at random numbers that are seeded in every run. Where a text that a command reads, or one of its
/// arguments, holds one, they count as programs that write down all that `stat` says.
#[rustfmt::skip]
pub const TIME_WORDS: &[&str] = &[
    "-nt", "-ot", "-ef", "-newer", "-mtime", "-mmin", "-N ",
    "mtime", "st_ctime", "st_atime", "os.stat", "stat(", "stat $", "stat \"", "stat _", "\x04stat", "lstat", "fstat", "scandir", "newer",
    "make_archive", "zipfile", "tarfile", "filecmp", "File::stat", "samefile", "Archive::Tar", "Archive::Zip",
    "cp -u", "cp -au", "cp -vu", "cp -uv", "mv -u", "--update", "install -C", "--compare",
    ".owner(", ".group(", "$^T", "BASETIME", "-M $", "-M_", "-M$", "-M \"", "-M\"", "rand(", "rand;", "systime", "strftime", "RANDOM", "SECONDS", "EPOCH",
];

/// Words by which a shell compares the times of files.
pub const SHELL_TIME_WORDS: &[&str] = &["-nt", "-ot"];

/// Whether a text has a shell ask whose a file is, for bits of its mode beyond rights, whether it was read since, or
/// whether two names are one file.
pub fn names_shell_status(text: &[u8]) -> bool {
    let asks = |letter: u8| {
        memchr::memmem::find_iter(text, &[b' ', b'-', letter, b' ']).any(|at| {
            let before = text[..at].trim_ascii_end();
            let before = before.strip_suffix(b"!").map_or(before, <[u8]>::trim_ascii_end);
            [&b"["[..], b"test", b"&&", b"||"].iter().any(|end| before.ends_with(end))
        })
    };
    let is_compared = |at: usize| {
        let before = &text[memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1)..at];
        [&b"["[..], b"test"].iter().any(|word| memchr::memmem::find(before, word).is_some())
    };
    b"GNOgku".iter().any(|letter| asks(*letter)) || memchr::memmem::find_iter(text, b" -ef ").any(is_compared)
}

/// Variables by which a shell gets at the clock, or at what it seeds by it.
const SHELL_CLOCKS: &[&str] = &["RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME"];

/// Where one of these is part of a temporary file's name, or of a command for a system that is not ours: in what
/// autoconf and libtool write.
const SHELL_NAMES: &[&str] = &[
    "$$-$RANDOM",
    "${RANDOM-0}$$",
    "$RANDOM-$$",
    "try and use $RANDOM",
    "test -n \"$RANDOM\"",
    "`expr ${RANDOM-$$} %",
];

/// Whether a text names a way by which a shell gets at the clock, but for names of temporary files.
pub fn names_shell_clocks(text: &[u8]) -> bool {
    let is_clock = |name: &[u8]| SHELL_CLOCKS.iter().any(|clock| clock.as_bytes() == name);
    let names_one = |text: &[u8]| text.split(|byte| !is_of_a_name(*byte)).any(is_clock);
    if !names_one(text) && memchr::memmem::find(text, b"printf").is_none() {
        return false;
    }
    // What is quoted is another script's.
    let mut plain: Vec<u8> = text.iter().copied().filter(|byte| *byte != b'\\').collect();
    SHELL_NAMES.iter().for_each(|name| take_out(&mut plain, name.as_bytes()));
    let holds = |word: &str| memchr::memmem::find(&plain, word.as_bytes()).is_some();
    names_one(&plain) || holds("printf %(") || holds("printf '%(") || holds("printf \"%(")
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a shell's script takes the time of commands, or asks how long its own ran.
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

/// Blank every occurrence of `word` that does not go on as a longer name.
fn take_out(text: &mut [u8], word: &[u8]) {
    let ends = |at: &usize| {
        let end = at + word.len();
        !is_of_a_name(word[word.len() - 1]) || text.get(end).is_none_or(|byte| !is_of_a_name(*byte))
    };
    let found: Vec<usize> = memchr::memmem::find_iter(text, word).filter(ends).collect();
    found.into_iter().for_each(|at| text[at..at + word.len()].fill(b' '));
}

/// Registers of a formatted text that hold the date, and the time.
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

/// Words by which a script in awk gets at the clock, or at what it seeds by it.
pub const AWK_WORDS: &[&str] = &["rand(", "rand (", "rand;", "systime", "strftime"];

/// What follows the bracket of `string` and `file` by which a CMake script gets at the clock, at times of files, and at
/// random numbers.
const CMAKE_CLOCKS: &[&str] = &["ARCHIVE_CREATE", "TIMESTAMP", "RANDOM", "UUID"];

/// Whether a text names a way by which CMake gets at the clock, or at random numbers.
pub fn names_cmake_clocks(text: &[u8]) -> bool {
    let is_first = |at: usize| text[..at].trim_ascii_end().last().is_some_and(|byte| *byte == b'(');
    CMAKE_CLOCKS.iter().any(|word| {
        memchr::memmem::find_iter(text, word.as_bytes()).any(|at| {
            let end = text.get(at + word.len()).is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            end && is_first(at)
        })
    })
}

/// Words by which a script can get at clocks that many programs read for other reasons.
#[rustfmt::skip]
pub const CLOCK_WORDS: &[&str] = &[
    "monotonic", "perf_counter", "process_time", "getrusage", "clock_gettime", "times()", "thread_time",
    "wait3(", "wait4(", "ru_utime", "ru_stime",
];

/// The same for Perl.
pub const PERL_CLOCK_WORDS: &[&str] = &["HiRes", "clock(", "= times", "=times", "(times", "POSIX::times"];

/// Words by which a script gets at an order or a number that hangs on the seed of a hash function, or on where
/// something lies in memory. The list is not complete and cannot be: no word gives away a set display (`{a, b}`).
#[rustfmt::skip]
pub const HASH_WORDS: &[&str] = &[
    "hash(", "hash (", " id(", "(id(", ",id(", "=id(", " set(", "(set(", "[set(", ",set(", "=set(", "frozenset", "object()",
    "ctypes", "builtins",
];

/// The same for Perl.
pub const PERL_HASH_WORDS: &[&str] = &["keys %", "keys(%", "each %", "each(%", "values %", "values(%", "Data::Dumper"];

/// Words by which a text gets at a process's own memory.
pub const MEMORY_WORDS: &[&str] = &["/proc/", "proc/self"];

/// By which a source has gcc and clang compare the times of two files.
pub const DATE_WORDS: &[&str] = &["GCC dependency", "clang dependency"];

/// What lists variables in a text: of shells, awk, Tcl, make, CMake, Python and Perl.
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

/// Whether a shell's text lists its variables, the number of its parent among them, by a command that is also a word:
/// where a line is nothing else. In a manual page it is a word.
pub fn lists_shell_variables(text: &[u8]) -> bool {
    if is_formatted(text) {
        return false;
    }
    const COMMANDS: [&[u8]; 5] = [b"set", b"export", b"declare", b"typeset", b"readonly"];
    let is_end = |rest: &[u8]| rest.iter().find(|byte| **byte != b' ').is_none_or(|byte| b";>|&)`".contains(byte));
    let lists = |command: &[u8]| COMMANDS.iter().any(|word| command.strip_prefix(*word).is_some_and(is_end));
    let commands =
        |line: &[u8]| line.split(|byte| b";&|(`\"'".contains(byte)).any(|command| lists(command.trim_ascii()));
    // Autoconf's scripts look whether a shell quotes, and keep those whose names they know.
    let is_autoconfs = |line: &[u8]| memchr::memmem::find(line, b"set) 2>&1").is_some();
    text.split(|byte| *byte == b'\n').any(|line| commands(line) && !is_autoconfs(line))
}

/// Whether a text is one for troff, as manual pages are: by its first line, a comment or a title.
fn is_formatted(text: &[u8]) -> bool {
    [&b".\\\""[..], b"'\\\"", b".TH ", b".Dd "].iter().any(|begin| text.starts_with(begin))
}

/// How a shell gets at the directory before, but by its name.
pub const DIRECTORY_BEFORE: &[&str] = &["cd -\n", "cd -;", "cd - ", "cd -&", "cd -)", "cd -`", "~-"];

/// Words by which a script can get at the number of a process, be it another's. Where a text holds one, and a result
/// then holds such a number, the result is another each time.
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

/// One that is too short to be looked for in machine code, or in what is compressed.
const PROCESS_SIGN: &str = "$!";

/// Where one of the words above is none, in what automake writes: what it has end, and what sed does but in the last
/// line.
const NO_PROCESS: &[&str] = &["am_sleep_pid=$!", "$!N;"];

/// Whether a text names a way to the number of any process but the one that runs it.
pub fn names_other_processes(text: &[u8]) -> bool {
    let count = |words: &[&str]| words.iter().map(|word| count(text, word)).sum::<usize>();
    count(PROCESS_WORDS) + count(&[PROCESS_SIGN]) > count(NO_PROCESS)
}

/// The same, of what was compiled, or is an archive of such: functions stand in it by their names.
pub fn compiled_names_other_processes(code: &[u8]) -> bool {
    holds_any(code, PROCESS_WORDS)
}

fn count(text: &[u8], word: &str) -> usize {
    memchr::memmem::find_iter(text, word.as_bytes()).count()
}

/// How `configure` finds out whether two names lead to one directory.
const SAME_DIRECTORY: &[&str] = &["ac_ls_di=`ls -di .`", "`cd \"$ac_pwd\" && ls -di .`"];

/// Whether a text asks for the number of an inode by `ls`: only so, or otherwise.
pub fn names_inodes(text: &[u8]) -> Option<bool> {
    let (all, known) = (count(text, "ls -di"), SAME_DIRECTORY.iter().map(|known| count(text, known)).sum());
    (all > 0).then_some(all == known)
}

/// Whether a file of this name is a makefile, or one is made of it.
pub fn is_makefile(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    // Perl's is a script that makes one.
    let is_script = [&b".PL"[..], b".pl", b".py", b".sh"].iter().any(|end| name.ends_with(end));
    if is_script {
        return false;
    }
    let starts = [&b"Makefile"[..], b"makefile", b"GNUmakefile"].iter().any(|start| name.starts_with(start));
    starts || [&b".mk"[..], b".mk.in", b".mak"].iter().any(|end| name.ends_with(end))
}

/// Whether any of these stands in it.
pub(crate) fn holds_any(text: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| memchr::memmem::find(text, word.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn names_of_temporary_files_are_no_clocks() {
        for (text, expect) in [
            ("tmp=./conf$$-$RANDOM; mkdir $tmp", false),
            ("my_tmpdir=$my_template-${RANDOM-0}$$", false),
            ("TIMEOUT_SECONDS=3", false),
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
