//! Key templates, and the keys that they expand to.
//!
//! ```text
//! template = (text | "{{" word "}}")*
//! word     = "os" | "arch" | "env" NAME | "hash" FILE…         FILE may hold * ? [ ] and **
//! ```
//! For example, `deps-{{os}}-{{hash package-lock.json}}` becomes `deps-linux-` and 32 digits.
//!
//! A hash covers the name and content of each file, sorted by name, and has 32 hexadecimal digits.
//! A pattern without a file is an error, because a hash of nothing would give all projects the same
//! key.
//!
//! Unaware of: images.

use std::path::{Path, PathBuf};

use larder_model::{Digest, DigestWriter, ImageKey, NotAKey};

/// The digits of a hash in a key: 128 bits, so that two contents will not share them.
const HASH_DIGITS: usize = 32;
/// The most files of one hash.
const FILES_MAX: usize = 10_000;

/// The facts that a template can refer to.
pub trait Facts {
    /// Returns the value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// Returns the files that match a pattern, relative to the working directory, sorted by name.
    fn files(&self, pattern: &str) -> Result<Vec<PathBuf>, String>;

    /// Returns the digest of a file's content.
    fn content(&self, file: &Path) -> std::io::Result<Digest>;
}

/// Why a template cannot be expanded.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is `{{` without `}}`.
    #[error("`{0}`: the closing }}}} is missing")]
    Open(String),
    /// The word between the braces is unknown.
    #[error("{{{{{0}}}}} is unknown: use {{{{os}}}}, {{{{arch}}}}, {{{{env NAME}}}} and {{{{hash FILE...}}}}")]
    Word(String),
    /// The variable is not set.
    #[error("{{{{env {0}}}}}: the variable is not set")]
    Unset(String),
    /// No file matches the pattern.
    #[error("{{{{hash {0}}}}}: no such file")]
    NoFile(String),
    /// Too many files match.
    #[error("{{{{hash {pattern}}}}}: more than {max} files: name fewer", pattern = .0, max = FILES_MAX)]
    Files(String),
    /// The pattern is invalid.
    #[error("{{{{hash {0}}}}}: {1}")]
    Pattern(String, String),
    /// A file cannot be read.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    Unreadable(PathBuf, std::io::Error),
    /// The expanded text is not a valid key.
    #[error("{0}")]
    Key(NotAKey),
}

/// Expands a template. It is also used for fallbacks, which are the beginning of a key.
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

/// Returns the files below a directory that match a pattern, for [`Facts::files`].
///
/// `**` does not follow links to directories. Two packages that link to each other, as pnpm makes
/// them, would have endlessly many paths.
pub fn files_in(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let relative = |path: PathBuf| path.strip_prefix(dir).map(Path::to_owned).unwrap_or(path);
    let found = match pattern.contains("**") {
        true => walked(dir, pattern)?,
        false => listed(dir, pattern)?,
    };
    Ok(found.into_iter().filter(|path| path.is_file()).map(relative).collect())
}

const MATCHED: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// Returns the paths that match a pattern without `**`.
fn listed(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let whole = if Path::new(pattern).is_absolute() {
        pattern.to_owned()
    } else {
        // The directory's own path may contain characters that are special in a pattern.
        let dir = dir.to_str().ok_or("the path of the working directory is not UTF-8")?;
        format!("{}/{pattern}", glob::Pattern::escape(dir))
    };
    let paths = glob::glob_with(&whole, MATCHED).map_err(|error| error.to_string())?;
    paths.map(|path| path.map_err(|error| error.to_string())).collect()
}

/// Returns the paths that match a pattern with `**`. Directories are read from the first component
/// on that is not a plain name.
fn walked(dir: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let is_plain = |part: &&str| !part.contains(['*', '?', '[']);
    let plain: Vec<&str> = pattern.split('/').take_while(is_plain).collect();
    let rest: Vec<&str> = pattern.split('/').skip(plain.len()).collect();
    let rest = glob::Pattern::new(&rest.join("/")).map_err(|error| error.to_string())?;
    // An absolute pattern begins with an empty part.
    let top = if pattern.starts_with('/') { Path::new("/").join(plain.join("/")) } else { dir.join(plain.join("/")) };
    let (mut left, mut found) = (vec![top.clone()], Vec::new());
    while let Some(directory) = left.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.map_err(|error| format!("{}: {error}", directory.display()))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| format!("{}: {error}", directory.display()))?;
            let path = entry.path();
            if path.strip_prefix(&top).is_ok_and(|below| rest.matches_path_with(below, MATCHED)) {
                found.push(path.clone());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(path);
            }
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
        let same = |one: &str, other: &str| assert_eq!(text(one).expect("a key"), text(other).expect("a key"));
        same("{{hash */*/b.lock}}", "{{hash **/b.lock}}");
        let absolute = format!("{}/**/[ab].lock", dir.path().display());
        assert_eq!(text(&format!("{{{{hash {absolute}}}}}")).expect("a key"), all);
        same("{{hash sub*/**/b.lock}}", "{{hash */deep/**/b.lock}}");
        std::fs::write(dir.path().join("a.lock"), "other").expect("writes");
        assert_ne!(text("{{hash a.lock}}").expect("a key"), one);
        let wrong = |template: &str, piece: &str| {
            let error = text(template).expect_err("no key").to_string();
            assert!(error.contains(piece), "{template}: {error}");
        };
        wrong("{{hash none.lock}}", "no such file");
        wrong("{{hash none/**/a.lock}}", "no such file");
        wrong("{{os", "}}");
        wrong("{{hsah a}}", "{{hash FILE...}}");
        wrong("{{env NONE}}", "not set");
        wrong("", "empty");
    }

    /// With two links from each directory to its parent, there are 2^40 paths that the kernel
    /// resolves.
    #[test]
    fn links_in_a_circle_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("makes");
        for (to, link) in [("..", "a/up"), ("..", "a/too"), ("../..", "a/b/up"), ("/", "root")] {
            std::os::unix::fs::symlink(to, dir.path().join(link)).expect("makes");
        }
        std::fs::write(dir.path().join("a/b/x.lock"), "x").expect("writes");
        std::os::unix::fs::symlink("x.lock", dir.path().join("a/b/y.lock")).expect("makes");
        let mut found = files_in(dir.path(), "**/*.lock").expect("finds");
        found.sort();
        assert_eq!(found, ["a/b/x.lock", "a/b/y.lock"].map(PathBuf::from), "a link to a file is followed");
    }
}
