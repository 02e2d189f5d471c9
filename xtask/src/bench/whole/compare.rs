//! Everything that a build left, compared with what the plain one left at the same path: names, kinds, modes, links,
//! contents.

use super::masks::{self, Counts};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// Files, links and directories.
    pub(super) compared: u64,
    pub(super) masked: Counts,
    /// The name, and what is different about it.
    pub(super) different: Vec<(String, String)>,
}

impl Comparison {
    /// What two commands said, without order.
    pub(super) fn messages(&mut self, name: &str, expected: &[u8], actual: &[u8]) {
        let (left, right) = (masks::messages(expected, &mut Counts::new()), masks::messages(actual, &mut self.masked));
        self.compared += 1;
        if left != right {
            self.different.push((name.to_owned(), first_line(&left, &right)));
        }
    }

    /// All below two directories.
    pub(super) fn trees(&mut self, expected: &Path, actual: &Path) -> Result<()> {
        let (left, right) = (list(expected)?, list(actual)?);
        let names: BTreeMap<&PathBuf, ()> = left.keys().chain(right.keys()).map(|path| (path, ())).collect();
        for name in names.into_keys() {
            self.compared += 1;
            let difference = match (left.get(name), right.get(name)) {
                (Some(_), None) => Some("missing".to_owned()),
                (None, Some(_)) => Some("not there in the plain build".to_owned()),
                (Some(kind), Some(other)) if kind != other => Some(format!("is {other}, plain {kind}")),
                (Some(kind), _) if kind.starts_with(FILE) => self.content(&expected.join(name), &actual.join(name))?,
                _ => None,
            };
            self.different.extend(difference.map(|what| (name.display().to_string(), what)));
        }
        Ok(())
    }

    fn content(&mut self, expected: &Path, actual: &Path) -> Result<Option<String>> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let (left, right) = (read(expected)?, read(actual)?);
        let left = masks::masked(expected, left, &mut Counts::new());
        let right = masks::masked(actual, right, &mut self.masked);
        Ok((left != right).then(|| first_line(&left, &right)))
    }
}

const FILE: &str = "a file";
/// So many bytes of two lines that differ are shown.
const SHOWN_BYTES: usize = 160;

/// Everything under `root` by its path from there, with what it is in words.
fn list(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path).with_context(|| format!("cannot look at {}", path.display()))?;
            let mode = meta.mode() & 0o7777;
            let kind = if meta.is_symlink() {
                format!("a link to {}", fs::read_link(&path)?.display())
            } else if meta.is_dir() {
                pending.push(path.clone());
                format!("a directory of mode {mode:o}")
            } else if meta.is_file() {
                format!("{FILE} of mode {mode:o} with {} names", meta.nlink())
            } else {
                "something else".to_owned()
            };
            found.insert(path.strip_prefix(root).context("listed from the root")?.to_path_buf(), kind);
        }
    }
    Ok(found)
}

/// Where two texts part.
fn first_line(expected: &[u8], actual: &[u8]) -> String {
    let at = expected.iter().zip(actual).position(|(a, b)| a != b).unwrap_or_else(|| expected.len().min(actual.len()));
    let line = |bytes: &[u8]| {
        let begin = bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let begin = begin.max(at.saturating_sub(SHOWN_BYTES / 2));
        let text = bytes[begin..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES)]).escape_debug().to_string()
    };
    format!("from byte {at} on: `{}`, plain `{}`", line(actual), line(expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn names_modes_links_and_bytes_are_compared() {
        let root = std::env::temp_dir().join(format!("xtask-compare-{}", std::process::id()));
        let (left, right) = (root.join("left"), root.join("right"));
        for side in [&left, &right] {
            fs::create_dir_all(side.join("empty")).expect("a directory");
            for name in ["same", "mode", "byte", "config.log"] {
                fs::write(side.join(name), name).expect("a file");
            }
        }
        for (side, name) in [(&left, "ccAAAAAA"), (&right, "ccBBBBBB")] {
            fs::write(side.join("config.log"), format!("/tmp/{name}.o")).expect("a file");
            symlink(name, side.join("link")).expect("a link");
        }
        fs::create_dir(left.join("gone")).expect("a directory");
        fs::write(right.join("byte"), "bite").expect("a file");
        fs::set_permissions(right.join("mode"), fs::Permissions::from_mode(0o400)).expect("a mode");
        let mut found = Comparison::default();
        found.trees(&left, &right).expect("comparable");
        found.messages("same words", b"a\nb", b"b\na");
        found.messages("other words", b"a", b"b");
        fs::remove_dir_all(&root).expect("removable");
        let names: Vec<&str> = found.different.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["byte", "gone", "link", "mode", "other words"]);
        assert_eq!((found.compared, found.masked.values().sum::<u64>()), (9, 1));
    }
}
