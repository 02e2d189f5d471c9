//! Compares the fields of two actions in the order in which they are hashed, and describes what
//! changed. Arguments are compared as lists, so that an inserted argument counts as one new
//! argument and does not shift all others.
//!
//! Unaware of: what a field means to a compiler.

use larder_model::Digest;

use super::facts::seconds;
use super::secret;

/// The name and the value of a keyed field, as recorded.
pub(super) type Field<'a> = (&'a [u8], &'a [u8]);

/// One field that differs, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldDifference {
    /// The field, for example `argument 5` or `environment LANG`.
    pub(super) what: String,
    /// The recorded value and the current value; `None` if there is none.
    pub(super) was: Option<String>,
    pub(super) is: Option<String>,
}

const ARGUMENT: &[u8] = b"argument";
/// Lists whose lengths multiply to more than this are not aligned. Only their first difference is
/// described.
const ALIGN_MAX: usize = 1 << 22;

impl FieldDifference {
    /// Returns a sentence such as `argument 5: was …, is …`.
    pub(super) fn sentence(&self) -> String {
        match (&self.was, &self.is) {
            (Some(was), Some(is)) => format!("{}: was {was}, is {is}", self.what),
            (None, Some(is)) => format!("{}: {is} is new", self.what),
            (Some(was), None) => format!("{}: {was} is gone", self.what),
            (None, None) => self.what.clone(),
        }
    }
}

/// Returns all differences, in the order of the fields.
pub(super) fn differences(was: &[Field], is: &[Field]) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    let mut passed = 0;
    for (at, (name, value)) in is.iter().enumerate() {
        if let Some(old_at) = place_of(was, name).filter(|old_at| *old_at >= passed) {
            gone(&was[passed..old_at], is, &mut found);
            passed = old_at + 1;
        }
        if *name == ARGUMENT {
            // All arguments are compared when the first one is reached.
            if place_of(is, name) == Some(at) {
                found.extend(argument_differences(&arguments(was), &arguments(is)));
            }
            continue;
        }
        let old = place_of(was, name).map(|old_at| was[old_at].1);
        if old != Some(*value) {
            found.push(difference(name, old, Some(value)));
        }
    }
    gone(&was[passed..], is, &mut found);
    found
}

/// Adds the fields of `was` that `is` does not have.
fn gone(was: &[Field], is: &[Field], found: &mut Vec<FieldDifference>) {
    let gone = was.iter().filter(|(name, _)| *name != ARGUMENT && place_of(is, name).is_none());
    found.extend(gone.map(|(name, value)| difference(name, Some(value), None)));
}

fn place_of(fields: &[Field], name: &[u8]) -> Option<usize> {
    fields.iter().position(|(n, _)| *n == name)
}

fn arguments<'a>(fields: &[Field<'a>]) -> Vec<&'a [u8]> {
    fields.iter().filter(|(name, _)| *name == ARGUMENT).map(|(_, value)| *value).collect()
}

fn difference(name: &[u8], was: Option<&[u8]>, is: Option<&[u8]>) -> FieldDifference {
    let name = String::from_utf8_lossy(name).into_owned();
    let value = |value: &[u8]| match name.as_str() {
        "tool content" | "inherited" | "source content" => {
            value.try_into().map_or("?".to_owned(), |digest| secret::short(&Digest(digest)))
        }
        "standard input" => standard_input(value),
        "terminal" => terminal(value),
        "processor" => format!("one with features {}", secret::short(&Digest::of(value))),
        "format version" => value.first().map_or("?".to_owned(), u8::to_string),
        other => secret::variable(other, value),
    };
    let (was, is) = (was.map(value), is.map(value));
    let what = match name.as_str() {
        "tool content" => "tool content: another compiler".to_owned(),
        "inherited" => {
            "inherited state (limits, niceness, users, ignored signals, processors, open descriptors)".to_owned()
        }
        _ => name.clone(),
    };
    FieldDifference { what, was, is }
}

/// Describes the field as `larder_lookup` writes it: words, a digest, a digest and an mtime in
/// nanoseconds, or words and the settings of a terminal.
fn standard_input(value: &[u8]) -> String {
    const TERMINAL: &[u8] = b"untyped terminal ";
    if let Some(settings) = value.strip_prefix(TERMINAL) {
        return format!("a terminal with settings {}", secret::short(&Digest::of(settings)));
    }
    if let Some((digest, modified)) = value.split_first_chunk() {
        let bytes = format!("bytes with digest {}", secret::short(&Digest(*digest)));
        return match modified.try_into().map(i64::from_le_bytes) {
            Ok(modified_ns) => format!("{bytes}, modified at {}", seconds(modified_ns)),
            Err(_) => bytes,
        };
    }
    secret::variable("standard input", value)
}

fn terminal(value: &[u8]) -> String {
    let &[stdout, stderr, c0, c1, r0, r1] = value else { return "?".to_owned() };
    let which = match (stdout, stderr) {
        (0, _) => "standard error",
        (_, 0) => "standard output",
        _ => "standard output and error",
    };
    format!("{which}, {} × {}", u16::from_le_bytes([c0, c1]), u16::from_le_bytes([r0, r1]))
}

/// Returns the changes that turn one list into the other.
fn argument_differences(was: &[&[u8]], is: &[&[u8]]) -> Vec<FieldDifference> {
    let start = was.iter().zip(is).take_while(|(a, b)| a == b).count();
    let end = was[start..].iter().rev().zip(is[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&was[start..was.len() - end], &is[start..is.len() - end]);
    let told = |at: usize, was: Option<&&[u8]>, is: Option<&&[u8]>| FieldDifference {
        what: format!("argument {at}"),
        was: was.map(|value| secret::argument(value)),
        is: is.map(|value| secret::argument(value)),
    };
    if old.len().saturating_mul(new.len()) > ALIGN_MAX {
        return vec![told(start, old.first(), new.first())];
    }
    let mut found = Vec::new();
    let (mut i, mut j) = (0, 0);
    // After the last pair, there is one more stretch without pairs.
    for (pair_i, pair_j) in pairs(old, new).into_iter().chain([(old.len(), new.len())]) {
        // Unpaired arguments on both sides count as changes of one into the other, as long as both
        // sides have some.
        while i < pair_i || j < pair_j {
            found.push(told(start + j, old[i..pair_i].first(), new[j..pair_j].first()));
            (i, j) = ((i + 1).min(pair_i), (j + 1).min(pair_j));
        }
        if old.get(i) != new.get(j) {
            found.push(told(start + j, old.get(i), new.get(j)));
        }
        (i, j) = (i + 1, j + 1);
    }
    found
}

/// Returns how similar two arguments are: equal ones most, then the same option with another value,
/// by the length of the common prefix.
fn likeness(a: &[u8], b: &[u8]) -> u32 {
    const SAME: u32 = 1 << 10;
    const PREFIX_MAX: usize = 64;
    let prefix = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    match (a == b, a.starts_with(b"-") && b.starts_with(b"-")) {
        (true, _) => SAME,
        // A common dash alone means nothing.
        (false, true) => prefix.saturating_sub(1).min(PREFIX_MAX) as u32,
        (false, false) => 0,
    }
}

/// Pairs the elements of two lists: the alignment with the greatest total likeness.
fn pairs(old: &[&[u8]], new: &[&[u8]]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    let mut best = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            let paired = match likeness(old[i], new[j]) {
                0 => 0,
                likeness => best[(i + 1) * width + j + 1] + likeness,
            };
            best[i * width + j] = paired.max(best[(i + 1) * width + j]).max(best[i * width + j + 1]);
        }
    }
    let mut found = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        let here = best[i * width + j];
        if here == best[(i + 1) * width + j] {
            i += 1;
        } else if here == best[i * width + j + 1] {
            j += 1;
        } else {
            found.push((i, j));
            (i, j) = (i + 1, j + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use larder_model::{Action, ExplainWalk, Roots, Terminal, Variable};

    use super::*;

    fn check(was: &str, is: &str, expect: &[&str]) {
        fn fields(text: &str) -> Vec<Field<'_>> {
            text.split(' ')
                .map(|word| match word.split_once('=') {
                    Some((name, value)) if name.starts_with("environment_") => (name.as_bytes(), value.as_bytes()),
                    _ => (ARGUMENT, word.as_bytes()),
                })
                .collect()
        }
        let found: Vec<String> = differences(&fields(was), &fields(is)).iter().map(FieldDifference::sentence).collect();
        assert_eq!(found, expect, "{was} → {is}");
    }

    #[test]
    fn arguments_are_lists() {
        check("gcc -c x.c", "gcc -c x.c", &[]);
        check("gcc -O1 -c x.c", "gcc -O2 -c x.c", &["argument 1: was `-O1`, is `-O2`"]);
        check("gcc -c x.c", "gcc -g -c x.c", &["argument 1: `-g` is new"]);
        check("gcc -g -c x.c", "gcc -c x.c", &["argument 1: `-g` is gone"]);
        check("gcc -a -b -c", "gcc -a -x -b -y -c", &["argument 2: `-x` is new", "argument 4: `-y` is new"]);
        check("gcc -a -b", "gcc -c -d -b", &["argument 1: was `-a`, is `-c`", "argument 2: `-d` is new"]);
        check("gcc -O1 -c", "gcc -g -O2 -c", &["argument 1: `-g` is new", "argument 2: was `-O1`, is `-O2`"]);
        check("gcc -O1 x.c", "gcc y.c", &["argument 1: was `-O1`, is `y.c`", "argument 2: `x.c` is gone"]);
        check("gcc", "gcc -c", &["argument 1: `-c` is new"]);
        check("gcc -Ia -Ib", "gcc -Ib -Ia", &["argument 1: `-Ia` is gone", "argument 2: `-Ia` is new"]);
        check("gcc x.c", "clang x.c", &["argument 0: was `gcc`, is `clang`"]);
        check("gcc -b -a", "gcc -a -b", &["argument 1: `-b` is gone", "argument 2: `-b` is new"]);
        check("gcc -DA=1 -c x.c", "gcc -c x.c -DA=2", &["argument 1: `-DA=1` is gone", "argument 3: `-DA=2` is new"]);
    }

    #[test]
    fn variables_by_name() {
        check("x environment_A=1", "x environment_A=2", &["environment_A: was `1`, is `2`"]);
        check("x environment_A=1", "x environment_B=1", &["environment_B: `1` is new", "environment_A: `1` is gone"]);
        check(
            "x environment_A=1",
            "y environment_A=2",
            &["argument 0: was `x`, is `y`", "environment_A: was `1`, is `2`"],
        );
    }

    #[test]
    fn what_is_gone_stands_where_it_was() {
        check(
            "environment_Z=1 x environment_A=1 environment_B=1 environment_C=1",
            "y environment_A=1 environment_C=2",
            &[
                "environment_Z: `1` is gone",
                "argument 0: was `x`, is `y`",
                "environment_B: `1` is gone",
                "environment_C: was `1`, is `2`",
            ],
        );
    }

    #[test]
    fn values_that_are_no_text() {
        let sentence = |name: &str, was: &[u8], is: &[u8]| {
            differences(&[(name.as_bytes(), was)], &[(name.as_bytes(), is)])[0].sentence()
        };
        let tool = sentence("tool content", &[1; 32], &[0xab; 32]);
        assert_eq!(tool, "tool content: another compiler: was 01010101, is abababab");
        let terminal = sentence("terminal", &[1, 1, 80, 0, 24, 0], &[0, 1, 0, 1, 24, 0]);
        assert_eq!(terminal, "terminal: was standard output and error, 80 × 24, is standard error, 256 × 24");
        assert_eq!(sentence("PWD", b"\0\x01/a", b"/b"), "PWD: was `<root>/a`, is `/b`");
        let source = sentence("source content", &[0; 32], &[0xff; 32]);
        assert_eq!(source, "source content: was 00000000, is ffffffff");
        let read = sentence("standard input", b"nothing", &[0x0a; 32]);
        assert_eq!(read, "standard input: was `nothing`, is bytes with digest 0a0a0a0a");
        let file = sentence("standard input", b"terminal of 80 columns", &[&[0xff; 32][..], &[0; 8]].concat());
        let is = "bytes with digest ffffffff, modified at 0.000000000 s since 1970";
        assert_eq!(file, format!("standard input: was `terminal of 80 columns`, is {is}"));
        assert_eq!(sentence("argument", b"\xff", b"a\x1b"), "argument 0: was `\\xff`, is `a\\u{1b}`");
    }

    /// Only the name of a field says whether its value is text. So this fails if a field is added whose value is none, and
    /// `difference` prints it as text.
    #[test]
    fn no_value_of_an_action_is_printed_as_raw_bytes() {
        let action = |byte: u8, standard_input: Vec<u8>| Action {
            family: "gcc",
            tool: Digest([byte; 32]),
            tool_path: b"/usr/bin/gcc".to_vec(),
            argv: vec![b"gcc".to_vec()],
            cwd: b"/w".to_vec(),
            apparent_cwd: Some(b"/v".to_vec()),
            environment: vec![Variable { name: b"LANG".to_vec(), value: b"C".to_vec() }],
            terminal: Terminal::Some { stdout: true, stderr: true, columns: 80, rows: byte.into() },
            processor: vec![byte; 32],
            inherited: vec![byte; 32],
            standard_input,
            source: Some(Digest([byte; 32])),
        };
        let untyped = |byte| [b"untyped terminal ", &[byte; 60][..]].concat();
        let fields = |action: Action| {
            let mut walk = ExplainWalk::default();
            action.walk(&Roots::default(), &mut walk);
            walk.fields
        };
        fn borrowed(all: &[larder_model::Field]) -> Vec<Field<'_>> {
            all.iter().map(|field| (field.name.as_bytes(), field.value.as_slice())).collect()
        }
        for (was, is) in [(untyped(0), untyped(0xff)), (vec![0; 32], vec![0xff; 32]), (vec![0; 40], vec![0xff; 40])] {
            let (was, is) = (fields(action(0, was)), fields(action(0xff, is)));
            let found = differences(&borrowed(&was), &borrowed(&is));
            assert_eq!(found.len(), 6, "{found:?}");
            for difference in found {
                let sentence = difference.sentence();
                assert!(!["\\x", "\\u", "<root"].iter().any(|raw| sentence.contains(raw)), "{sentence}");
            }
        }
    }
}
