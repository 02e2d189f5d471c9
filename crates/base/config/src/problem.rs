//! Problems in the configuration: where each is, what it is, and what to do, in one line.
//!
//! Unaware of: how often a problem is shown. A caller can use [`problems_digest`] to warn only
//! once.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use larder_model::{Digest, DigestWriter};

use crate::FILE_BYTES_MAX;

/// How many characters of a bad value are repeated in a message.
const SHOWN_CHARS_MAX: usize = 60;

/// Something in the configuration that was ignored. Its text is one line without control
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the problem is.
    pub place: Position,
    /// What the problem is, and what to do.
    pub fault: Fault,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

impl Error for Problem {}

/// Settings that decide which records are trusted, and whether results are uploaded.
pub(crate) const DECIDES_ON_REMOTES: [&str; 3] = ["remote_rw_mode", "remote_sign_with", "remote_trust"];
const ITS_VARIABLES: [&str; 3] = ["LARDER_REMOTE_RW_MODE", "LARDER_REMOTE_SIGN_WITH", "LARDER_REMOTE_TRUST"];

impl Problem {
    /// Returns true if a setting that decides on remotes may have been given but was not
    /// understood.
    pub(crate) fn keeps_from_remotes(&self) -> bool {
        self.fault.keeps_from_remotes()
    }

    /// Returns true if this may be the reason why no remote is used.
    pub fn is_about_remotes(&self) -> bool {
        self.keeps_from_remotes() || matches!(self.fault, Fault::BadValue { key: "remote", .. })
    }
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// In this environment variable.
    Variable(String),
    /// In this file as a whole.
    File(PathBuf),
    /// In this line of this file. Lines count from 1.
    Line(PathBuf, usize),
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file exists and cannot be read, or `LARDER_CONFIG` names it and it does not exist.
    Unreadable(String),
    /// The file is larger than [`FILE_BYTES_MAX`].
    TooLarge,
    /// The file is not UTF-8.
    NotUtf8,
    /// The file is not TOML.
    Syntax(String),
    /// The key or table is not a setting.
    UnknownKey {
        /// The key as written, shortened, in quotes.
        key: String,
        /// The setting that was probably meant.
        meant: Option<&'static str>,
    },
    /// The variable begins like larder's but is unknown.
    UnknownVariable {
        /// The variable that was probably meant.
        meant: Option<&'static str>,
    },
    /// The project's own file sets a key that it may not set.
    NotForProjects(&'static str),
    /// The project's own file switches off what the user switched on.
    NotOff(&'static str),
    /// The value is not valid for this setting.
    BadValue {
        /// The setting.
        key: &'static str,
        /// The value as written, shortened, in quotes.
        value: String,
        /// What to write instead.
        advice: String,
    },
    /// This many further problems in the file are not listed.
    More(usize),
}

impl Fault {
    fn keeps_from_remotes(&self) -> bool {
        match self {
            Fault::BadValue { key, .. } => DECIDES_ON_REMOTES.contains(key),
            Fault::UnknownKey { key, meant } => {
                // For example, `trust = …` in the table `[remote.main]`.
                let decides = ["trust", "sign", "mode"].iter().any(|word| key.contains(word));
                key.starts_with("\"remote") && decides || meant.is_some_and(|key| DECIDES_ON_REMOTES.contains(&key))
            }
            Fault::UnknownVariable { meant } => meant.is_some_and(|name| ITS_VARIABLES.contains(&name)),
            Fault::NotForProjects(_) | Fault::NotOff(_) => false,
            Fault::Unreadable(_) | Fault::TooLarge | Fault::NotUtf8 | Fault::Syntax(_) | Fault::More(_) => true,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unreadable(why) => {
                write!(f, "this file cannot be read ({why}) and is ignored: make it readable, or correct LARDER_CONFIG")
            }
            Fault::TooLarge => write!(
                f,
                "this file is larger than {FILE_BYTES_MAX} bytes and is ignored: check that it is a configuration file of larder"
            ),
            Fault::NotUtf8 => f.write_str("the file is ignored because this line is not UTF-8: correct it"),
            Fault::Syntax(why) => write!(f, "the file is ignored because this line is not TOML ({why}): correct it"),
            Fault::UnknownKey { key, meant } => {
                let then = if self.keeps_from_remotes() { "; no remote is used until this is corrected" } else { "" };
                write!(f, "{key} is not a setting and is ignored: {}{then}", hint(meant, "see larder config --help"))
            }
            Fault::UnknownVariable { meant } => {
                write!(f, "larder knows no such variable: {}", hint(meant, "see larder config --help"))
            }
            Fault::NotForProjects(key) => write!(
                f,
                "a project's own file cannot set {key}: set it in your own larder.toml, or in the environment"
            ),
            Fault::NotOff(key) => {
                write!(f, "a project's own file cannot switch {key} off again: change it where it was switched on")
            }
            Fault::BadValue { key, value, advice } => write!(f, "{key} cannot be {value}, which is ignored: {advice}"),
            Fault::More(count) => write!(f, "and {count} more lines with problems"),
        }
    }
}

impl Error for Fault {}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |path: &Path| one_line(&path.to_string_lossy());
        match self {
            Position::Variable(name) => f.write_str(&one_line(name)),
            Position::File(path) => f.write_str(&escaped(path)),
            Position::Line(path, line) => write!(f, "{}:{line}", escaped(path)),
        }
    }
}

/// Returns a digest of these problems in this order. A caller that has shown a warning for this
/// digest need not repeat it.
pub fn problems_digest(problems: &[Problem]) -> Digest {
    let mut digest = DigestWriter::default();
    for problem in problems {
        digest.update(problem.to_string().as_bytes());
        digest.update(b"\n");
    }
    digest.finish()
}

/// Returns `text` in quotes, escaped and shortened for a message.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Returns the candidate that is most similar to `word`, if at most two letters differ.
pub(crate) fn nearest(word: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    const LETTERS_MAX: usize = 2;
    let word = word.replace('-', "_");
    let distances = candidates.map(|candidate| (distance(&word, candidate), candidate));
    distances.min().filter(|(letters, _)| *letters <= LETTERS_MAX).map(|(_, candidate)| candidate)
}

/// Returns how many letters must be added, removed or changed to turn `a` into `b`, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 2 * b.len() {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Returns what to do about an unknown name.
fn hint(meant: &Option<&'static str>, otherwise: &str) -> String {
    meant.map_or(otherwise.to_owned(), |name| format!("did you mean {name}?"))
}

/// Returns `text` with its control characters escaped, so that no file name can send control codes
/// to a terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let check = |word: &str, expected: Option<&str>| {
            assert_eq!(nearest(word, ["dir", "disable", "max_size", "read_only"].into_iter()), expected, "{word}");
        };
        check("max_sise", Some("max_size"));
        check("max-size", Some("max_size"));
        check("MAXSIZE", Some("max_size"));
        check("readonly", Some("read_only"));
        check("disabled", Some("disable"));
        check("compression", None);
        check("", None);
        check(&"x".repeat(1000), None);
    }

    #[test]
    fn one_line_and_a_stable_digest() {
        let problem = |value: &str| Problem {
            place: Position::Line(PathBuf::from("/a\n\u{1b}[31m/larder.toml"), 3),
            fault: Fault::BadValue { key: "disable", value: quoted(value), advice: "write true or false".to_owned() },
        };
        let text = problem("may\nbe\u{7}").to_string();
        assert!(!text.chars().any(char::is_control), "{text}");
        assert!(text.contains("larder.toml:3: disable cannot be \"may\\nbe\\u{7}\""), "{text}");
        assert!(problem(&"é".repeat(1000)).to_string().chars().count() < 200);
        assert_eq!(problems_digest(&[problem("a")]), problems_digest(&[problem("a")]));
        assert_ne!(problems_digest(&[problem("a")]), problems_digest(&[problem("b")]));
        assert_ne!(problems_digest(&[problem("a")]), problems_digest(&[]));
    }
}
