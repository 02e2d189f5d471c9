//! What people write for a key, and the key that it stands for.
//!
//! ```text
//! template = (text | "{{" word "}}")*
//! word     = "os" | "arch" | "env" NAME | "hash" FILE…         FILE may hold * ? [ ] and **
//! ```
//! A hash is of each file's name and content, names in their order: 32 hexadecimal digits. That nothing fits is an
//! error: a hash of nothing would give every project one key.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use larder_model::{Digest, DigestWriter, ImageKey, NotAKey};

/// Digits of a hash in a key: two contents that share them will not be met.
const HASH_DIGITS: usize = 32;
/// Files of one hash.
const FILES_MAX: usize = 10_000;

/// What a template can ask for.
pub trait Facts {
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// The files that fit a pattern, relative to where the command was typed, in the order of their names.
    fn files(&self, pattern: &str) -> Result<Vec<PathBuf>, String>;

    /// The digest of a file's content.
    fn content(&self, file: &Path) -> std::io::Result<Digest>;
}

/// A template that gives no key.
#[derive(Debug)]
pub enum KeyError {
    /// `{{` without `}}`.
    Open(String),
    /// A word that means nothing.
    Word(String),
    /// A variable that is not set.
    Unset(String),
    /// No file fits.
    NoFile(String),
    /// More files fit than anybody means.
    Files(String),
    /// Something that is no pattern.
    Pattern(String, String),
    /// A file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// What came of it is no key.
    Key(NotAKey),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Open(rest) => write!(f, "`{rest}`: there is no }}}} behind it"),
            KeyError::Word(word) => {
                write!(
                    f,
                    "{{{{{word}}}}} means nothing: there are {{{{os}}}}, {{{{arch}}}}, {{{{env NAME}}}} and {{{{hash FILE...}}}}"
                )
            }
            KeyError::Unset(name) => write!(f, "{{{{env {name}}}}}: the variable is not set"),
            KeyError::NoFile(pattern) => write!(f, "{{{{hash {pattern}}}}}: no such file here"),
            KeyError::Files(pattern) => write!(f, "{{{{hash {pattern}}}}}: more than {FILES_MAX} files: name fewer"),
            KeyError::Pattern(pattern, why) => write!(f, "{{{{hash {pattern}}}}}: {why}"),
            KeyError::Unreadable(path, why) => write!(f, "{}: {why}", path.display()),
            KeyError::Key(why) => why.fmt(f),
        }
    }
}

impl Error for KeyError {}

/// The text that a template stands for; also of a fallback, which is no whole key.
pub fn expand(template: &str, facts: &dyn Facts) -> Result<ImageKey, KeyError> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let Some((word, after)) = after.split_once("}}") else {
            return Err(KeyError::Open(format!("{{{{{after}")));
        };
        text.push_str(&value(word.trim(), facts)?);
        rest = after;
    }
    text.push_str(rest);
    text.parse().map_err(KeyError::Key)
}

fn value(word: &str, facts: &dyn Facts) -> Result<String, KeyError> {
    let mut parts = word.split_whitespace();
    match (parts.next(), parts.collect::<Vec<_>>().as_slice()) {
        (Some("os"), []) => Ok(std::env::consts::OS.to_owned()),
        (Some("arch"), []) => Ok(std::env::consts::ARCH.to_owned()),
        (Some("env"), [name]) => facts.variable(name).ok_or_else(|| KeyError::Unset((*name).to_owned())),
        (Some("hash"), patterns) if !patterns.is_empty() => hash(patterns, facts),
        _ => Err(KeyError::Word(word.to_owned())),
    }
}

fn hash(patterns: &[&str], facts: &dyn Facts) -> Result<String, KeyError> {
    let mut files = Vec::new();
    for &pattern in patterns {
        let found = facts.files(pattern).map_err(|why| KeyError::Pattern(pattern.to_owned(), why))?;
        if found.is_empty() {
            return Err(KeyError::NoFile(pattern.to_owned()));
        }
        files.extend(found);
        if files.len() > FILES_MAX {
            return Err(KeyError::Files(pattern.to_owned()));
        }
    }
    files.sort();
    files.dedup();
    let mut all = DigestWriter::default();
    for file in files {
        let content = facts.content(&file).map_err(|why| KeyError::Unreadable(file.clone(), why))?;
        let name = file.as_os_str().as_encoded_bytes();
        all.update(&(name.len() as u64).to_le_bytes());
        all.update(name);
        all.update(&content.0);
    }
    Ok(all.finish().hex()[..HASH_DIGITS].to_owned())
}

/// The files that fit a pattern in a directory: for [`Facts::files`].
pub fn files_in(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let whole = if Path::new(pattern).is_absolute() {
        pattern.to_owned()
    } else {
        // The directory's own name may hold what means something in a pattern.
        let dir = dir.to_str().ok_or("the working directory's name is no text")?;
        format!("{}/{pattern}", glob::Pattern::escape(dir))
    };
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    let mut found = Vec::new();
    for path in glob::glob_with(&whole, options).map_err(|error| error.to_string())? {
        let path = path.map_err(|error| error.to_string())?;
        if path.is_file() {
            found.push(path.strip_prefix(dir).map(Path::to_owned).unwrap_or(path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Here(PathBuf);

    impl Facts for Here {
        fn variable(&self, name: &str) -> Option<String> {
            (name == "BRANCH").then(|| "main".to_owned())
        }

        fn files(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
            files_in(&self.0, pattern)
        }

        fn content(&self, file: &Path) -> std::io::Result<Digest> {
            Ok(Digest::of(&std::fs::read(self.0.join(file))?))
        }
    }

    #[test]
    fn what_a_template_stands_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let facts = Here(dir.path().to_owned());
        std::fs::create_dir_all(dir.path().join("sub [x]/deep")).expect("makes");
        for name in ["a.lock", "sub [x]/deep/b.lock"] {
            std::fs::write(dir.path().join(name), name).expect("writes");
        }
        let text = |template: &str| expand(template, &facts).map(|key| key.text().to_owned());
        let plain = text("d-{{os}}-{{ arch }}-{{env BRANCH}}").expect("a key");
        assert_eq!(plain, format!("d-{}-{}-main", std::env::consts::OS, std::env::consts::ARCH));
        let one = text("{{hash a.lock}}").expect("a key");
        let all = text("{{hash **/*.lock}}").expect("a key");
        assert_eq!((one.len(), all.len()), (32, 32));
        assert_ne!(one, all);
        assert_eq!(text("{{hash a.lock **/b.lock}}").expect("a key"), all);
        std::fs::write(dir.path().join("a.lock"), "other").expect("writes");
        assert_ne!(text("{{hash a.lock}}").expect("a key"), one);
        let wrong = |template: &str, piece: &str| {
            let error = text(template).expect_err("no key").to_string();
            assert!(error.contains(piece), "{template}: {error}");
        };
        wrong("{{hash none.lock}}", "no such file");
        wrong("{{os", "}}");
        wrong("{{hsah a}}", "{{hash FILE...}}");
        wrong("{{env NONE}}", "not set");
        wrong("", "empty");
    }
}
