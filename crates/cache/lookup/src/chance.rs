//! Finds ephemeral names ("names by chance"): names of files and directories that are different in
//! each run of the same build, even in one checkout. CMake, Meson, Python and hand-written scripts
//! make them for checks: `CMakeScratch/TryCompile-gdK6UY`, `cmTC_a2f27`,
//! `meson-private/tmp1x2y3z4_`, `/tmp/tmpk3v9_q0x.c`, `ztest4711.c`.
//!
//! Such a name is replaced by a placeholder in the key and in paths, as a root is. Taking an
//! ordinary name for an ephemeral one is therefore safe: a result that holds the name is used only
//! if the name can be replaced in it. So the rules below need not be exact, only worth their cost.
//!
//! Unaware of: where a name is replaced.

use larder_model::path::{file_name, without_slashes};
use larder_model::{Roots, is_in_word, leading_word, trailing_word};

use crate::substring::places_of;

/// Numbers with fewer digits are part of many ordinary names, and are process ids only in small
/// containers.
const PROCESS_DIGITS_MIN: usize = 3;
const PROCESS_DIGITS_MAX: usize = 7;
/// The process ids of at most this many ancestors are read. The nearest are shells and the build
/// system.
const ANCESTORS_MAX: usize = 8;

/// A rule by which an ephemeral name is recognised.
struct Pattern {
    /// The text right before the name.
    behind: &'static [u8],
    /// The constant beginning of the name.
    begins: &'static [u8],
    /// The number of random characters that follow.
    count: usize,
    is_one: fn(u8) -> bool,
}

const PATTERNS: [Pattern; 3] = [
    Pattern { behind: b"", begins: b"cmTC_", count: 5, is_one: |c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase() },
    Pattern { behind: b"CMakeScratch/", begins: b"TryCompile-", count: 6, is_one: |c| c.is_ascii_alphanumeric() },
    Pattern { behind: b"meson-private/", ..PYTHON },
];
/// The names that Python's `tempfile` makes in a directory for temporary files have this form.
const PYTHON: Pattern = Pattern { behind: b"", begins: b"tmp", count: 8, is_one: is_of_python };
/// If no variable names a directory, `tempfile` uses the first of these that it can write to
/// (`_candidate_tempdir_list` in Python's `Lib/tempfile.py`).
const TEMPORARY: [&[u8]; 3] = [b"/tmp", b"/var/tmp", b"/usr/tmp"];

/// Returns true for the random characters of Python's `tempfile`, which Meson and `setup.py` scripts
/// use.
fn is_of_python(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'
}

/// A name, and its shape: the name with `*` for what is random.
type EphemeralName = (Vec<u8>, Vec<u8>);

/// Returns the ephemeral names in these directories and arguments, without what lies in a root's
/// own path. The part of a path that leads from one root to a root inside it is searched as well.
/// `variable` returns the value of an environment variable.
pub(crate) fn names<'a, 'e>(
    roots: &Roots,
    variable: impl Fn(&[u8]) -> Option<&'e [u8]>,
    directories: impl Iterator<Item = &'a [u8]>,
    arguments: &'a [Vec<u8>],
) -> Vec<EphemeralName> {
    let is_temporary = |directory: &[u8]| {
        let named = [&b"TMPDIR"[..], b"TEMP", b"TMP"].into_iter().filter_map(&variable);
        let named = named.map(without_slashes).filter(|path| path.starts_with(b"/") && path.len() > 1);
        named.chain(TEMPORARY).any(|path| directory.ends_with(&roots.encode_text(path)))
    };
    let mut found = Vec::new();
    let mut ancestors = None;
    for (_, nested) in roots.nested() {
        of_patterns(&nested, is_temporary, &mut found);
    }
    for text in directories {
        of_patterns(&roots.encode_text(text), is_temporary, &mut found);
    }
    for argument in arguments {
        let text = roots.encode_text(argument);
        of_patterns(&text, is_temporary, &mut found);
        if !argument.starts_with(b"-") && numbers(file_name(&text)).next().is_some() {
            let ancestors = ancestors.get_or_insert_with(ancestors_now);
            of_processes(&text, ancestors, &mut found);
        }
    }
    found
}

fn of_patterns(text: &[u8], is_temporary: impl Fn(&[u8]) -> bool, found: &mut Vec<EphemeralName>) {
    for pattern in &PATTERNS {
        of_pattern(text, pattern, |before| before.ends_with(pattern.behind), found);
    }
    of_pattern(text, &PYTHON, |before| before.strip_suffix(b"/").is_some_and(&is_temporary), found);
}

/// Finds the names of one pattern. `is_behind` says whether a name may follow this text.
fn of_pattern(text: &[u8], pattern: &Pattern, is_behind: impl Fn(&[u8]) -> bool, found: &mut Vec<EphemeralName>) {
    let Pattern { begins, count, is_one, .. } = pattern;
    for start in places_of(text, begins) {
        let name = &text[start..text.len().min(start + begins.len() + count)];
        let rest = &name[begins.len()..];
        let is_whole = text[start + name.len()..].first().is_none_or(|next| !is_in_word(*next))
            && text[..start].last().is_none_or(|last| !is_in_word(*last));
        if rest.len() == *count && rest.iter().all(|c| is_one(*c)) && is_whole && is_behind(&text[..start]) {
            add(name, [begins, &b"*"[..]].concat(), found);
        }
    }
}

/// Finds words of a file's name that contain the process id of an ancestor.
fn of_processes(text: &[u8], ancestors: &[Vec<u8>], found: &mut Vec<EphemeralName>) {
    let name = file_name(text);
    for (start, number) in numbers(name).filter(|(_, number)| ancestors.iter().any(|pid| pid == number)) {
        let end = start + number.len();
        let (before, after) = (trailing_word(&name[..start]), leading_word(&name[end..]));
        add(&name[start - before.len()..end + after.len()], [before, b"*", after].concat(), found);
    }
}

fn add(name: &[u8], shape: Vec<u8>, found: &mut Vec<EphemeralName>) {
    if !found.iter().any(|(known, _)| known == name) {
        found.push((name.to_vec(), shape));
    }
}

/// Returns the position and digits of each number that may be a process id.
fn numbers(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let starts = (0..text.len()).filter(|&at| text[at].is_ascii_digit() && (at == 0 || !text[at - 1].is_ascii_digit()));
    let number = |start: usize| {
        let count = text[start..].iter().take_while(|c| c.is_ascii_digit()).count();
        (start, &text[start..start + count])
    };
    let is_usual = |(_, number): &(usize, &[u8])| {
        (PROCESS_DIGITS_MIN..=PROCESS_DIGITS_MAX).contains(&number.len()) && number[0] != b'0'
    };
    starts.map(number).filter(is_usual)
}

/// Returns the process ids of the ancestors of this process, as text.
fn ancestors_now() -> Vec<Vec<u8>> {
    larder_sys::ancestors().take(ANCESTORS_MAX).map(|pid| pid.to_string().into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        of_patterns(text.as_bytes(), |directory| directory.ends_with(b"/tmp"), &mut found);
        of_processes(text.as_bytes(), &[b"4711".to_vec()], &mut found);
        found.into_iter().map(|(name, _)| String::from_utf8_lossy(&name).into_owned()).collect()
    }

    #[test]
    fn names_of_checks() {
        assert_eq!(found("CMakeFiles/cmTC_a2f27.dir/x.c.o"), ["cmTC_a2f27"]);
        assert_eq!(found("/b/CMakeFiles/CMakeScratch/TryCompile-gdK6UY/src.c"), ["TryCompile-gdK6UY"]);
        assert_eq!(found("/b/meson-private/tmp1x2y3z4_/testfile.c"), ["tmp1x2y3z4_"]);
        assert_eq!(found("/tmp/tmpk3v9_q0x.c"), ["tmpk3v9_q0x"]);
        assert_eq!(found("-o/tmp/o/tmp/tmpk3v9_q0x.o"), ["tmpk3v9_q0x"]);
        assert_eq!(found("ztest4711.c"), ["ztest4711"]);
        assert_eq!(found("/x/4711-a.o"), ["4711"]);
        for other in [
            "cmTC_a2f2",
            "cmTC_a2f27x",
            "xcmTC_a2f27",
            "x/TryCompile-gdK6UY",
            "tmp1x2y3z4_",
            "/tmp/tmpk3v9_q0.c",
            "/tmp/tmpk3v9-q0x.c",
            "ztest47110.c",
            "/4711/x.c",
        ] {
            assert_eq!(found(other), [""; 0], "{other}");
        }
    }

    #[test]
    fn directories_for_temporary_files() {
        let roots = Roots::new(vec![b"/runner".to_vec()]);
        let value = |name: &[u8]| (name == b"TMPDIR").then_some(&b"/runner/temp/"[..]);
        let found = |path: &str| {
            let arguments = [path.as_bytes().to_vec()];
            names(&roots, value, std::iter::empty(), &arguments).len()
        };
        for (path, count) in [
            ("/runner/temp/tmpk3v9_q0x.c", 1),
            ("-I/runner/temp/tmpk3v9_q0x", 1),
            ("/var/tmp/tmpk3v9_q0x/y.c", 1),
            ("/runner/tmpk3v9_q0x.c", 0),
            ("/runner/temp/of/tmpk3v9_q0x.c", 0),
            ("/runner/temptmpk3v9_q0x.c", 0),
        ] {
            assert_eq!(found(path), count, "{path}");
        }
    }

    #[test]
    fn numbers_of_processes() {
        let all = |text: &'static str| numbers(text.as_bytes()).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(all("sha256.c"), [3]);
        assert_eq!(all("a12-012-12345678-345"), [17]);
        assert!(!ancestors_now().is_empty());
    }
}
