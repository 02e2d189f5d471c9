//! Two walks over an Action compared: in the order of the walk, what was and what is. Arguments are compared as lists,
//! so that one that was put in is one that is new, and not all behind it others.
//!
//! Unaware of: what a field means to a compiler.

use larder_model::Digest;

use super::secret;

/// Name and value of a keyed field, as recorded.
pub(super) type Field<'a> = (&'a [u8], &'a [u8]);

/// One field that differs, in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldDifference {
    /// Such as `argument 5` or `environment LANG`.
    pub(super) what: String,
    /// What was recorded, and what is; `None` where there is none.
    pub(super) was: Option<String>,
    pub(super) is: Option<String>,
}

const ARGUMENT: &[u8] = b"argument";
/// Lists whose product of lengths is larger are not aligned: their first difference is told.
const ALIGN_MAX: usize = 1 << 22;

impl FieldDifference {
    /// `argument 5: was …, is …`
    pub(super) fn sentence(&self) -> String {
        match (&self.was, &self.is) {
            (Some(was), Some(is)) => format!("{}: was {was}, is {is}", self.what),
            (None, Some(is)) => format!("{}: {is} is new", self.what),
            (Some(was), None) => format!("{}: {was} is gone", self.what),
            (None, None) => self.what.clone(),
        }
    }
}

/// Every difference, in the order of the walk.
pub(super) fn differences(was: &[Field], is: &[Field]) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    let mut arguments_done = false;
    for (name, value) in is {
        if *name == ARGUMENT {
            if !std::mem::replace(&mut arguments_done, true) {
                found.extend(argument_differences(&arguments(was), &arguments(is)));
            }
        } else {
            let old = value_of(was, name);
            if old != Some(*value) {
                found.push(difference(name, old, Some(value)));
            }
        }
    }
    for (name, value) in was.iter().filter(|(name, _)| *name != ARGUMENT && value_of(is, name).is_none()) {
        found.push(difference(name, Some(value), None));
    }
    found
}

fn value_of<'a>(fields: &[Field<'a>], name: &[u8]) -> Option<&'a [u8]> {
    fields.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
}

fn arguments<'a>(fields: &[Field<'a>]) -> Vec<&'a [u8]> {
    fields.iter().filter(|(name, _)| *name == ARGUMENT).map(|(_, value)| *value).collect()
}

fn difference(name: &[u8], was: Option<&[u8]>, is: Option<&[u8]>) -> FieldDifference {
    let name = String::from_utf8_lossy(name).into_owned();
    let value = |value: &[u8]| match name.as_str() {
        "tool content" => value.try_into().map_or("?".to_owned(), |digest| secret::short(&Digest(digest))),
        "terminal" => terminal(value),
        "processor" => format!("one with features {}", secret::short(&Digest::of(value))),
        "format version" => value.first().map_or("?".to_owned(), u8::to_string),
        other => secret::variable(other, value),
    };
    let (was, is) = (was.map(value), is.map(value));
    let what = match name.as_str() {
        "tool content" => "tool content: another compiler".to_owned(),
        _ => name.clone(),
    };
    FieldDifference { what, was, is }
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

/// What has to be done to the one list to make it the other.
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
    let mut position = start;
    for (gone, come) in edits(old, new) {
        // What went and what came in one place are one change each, as far as there are as many of both.
        for at in 0..gone.len().max(come.len()) {
            found.push(told(start + come.start + at.min(come.len()), old[gone.clone()].get(at), new[come.clone()].get(at)));
        }
        position = position.max(start + come.end);
    }
    found
}

type Stretch = std::ops::Range<usize>;

/// The stretches of `old` and `new` between elements that both have in the same order (longest common subsequence).
fn edits(old: &[&[u8]], new: &[&[u8]]) -> Vec<(Stretch, Stretch)> {
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let mut found = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        let (from_i, from_j) = (i, j);
        while (i < old.len() || j < new.len()) && !(i < old.len() && j < new.len() && old[i] == new[j]) {
            let skip_new = i == old.len() || j < new.len() && common[i * width + j + 1] > common[(i + 1) * width + j];
            if skip_new { j += 1 } else { i += 1 }
        }
        if (from_i, from_j) != (i, j) {
            found.push((from_i..i, from_j..j));
        }
        while i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(was: &str, is: &str, expect: &[&str]) {
        fn fields(text: &str) -> Vec<Field<'_>> {
            text.split(' ').map(|word| match word.split_once('=') {
                Some((name, value)) if name.starts_with("environment_") => (name.as_bytes(), value.as_bytes()),
                _ => (ARGUMENT, word.as_bytes()),
            }).collect()
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
        check("gcc x.c", "clang x.c", &["argument 0: was `gcc`, is `clang`"]);
        check("gcc -b -a", "gcc -a -b", &["argument 1: `-b` is gone", "argument 2: `-b` is new"]);
    }

    #[test]
    fn variables_by_name() {
        check("x environment_A=1", "x environment_A=2", &["environment_A: was `1`, is `2`"]);
        check("x environment_A=1", "x environment_B=1", &["environment_B: `1` is new", "environment_A: `1` is gone"]);
        check("x environment_A=1", "y environment_A=2", &["argument 0: was `x`, is `y`", "environment_A: was `1`, is `2`"]);
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
    }
}
