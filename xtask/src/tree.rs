//! Source and build trees: copied with old times, counted, and compared file by file.

use crate::files;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// 2020-01-01. Sources are older than any build of them.
const SOURCE_TIME: Duration = Duration::from_secs(1_577_836_800);
/// A path that is excluded from a comparison, and why.
pub(crate) type Exclusion = (&'static str, &'static str);

/// The paths that a comparison leaves out.
#[derive(Clone, Default)]
pub(crate) struct Exclusions {
    /// Given as `*.end`, `name` or `part/`.
    pub(crate) known: &'static [Exclusion],
    /// Relative paths.
    pub(crate) found: BTreeSet<PathBuf>,
}

impl Exclusions {
    /// Returns the exclusions of a list.
    pub(crate) fn known(known: &'static [Exclusion]) -> Self {
        Self { known, found: BTreeSet::new() }
    }

    fn contains(&self, path: &Path) -> bool {
        self.found.contains(path) || self.known.iter().any(|(pattern, _)| matches(pattern, path))
    }
}

/// The result of comparing two trees.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// The number of compared files: made by the build, and not excluded.
    pub(crate) compared: u64,
    /// The number of files that the list excludes.
    pub(crate) excluded: u64,
    /// The paths of the files that differ, and how they differ.
    pub(crate) different: Vec<(PathBuf, String)>,
}

/// Copies a tree. Every file in it gets the same old time.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    files::make(to)?;
    for path in files::list(from)? {
        let target = to.join(path.file_name().unwrap_or_default());
        let kind = fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if kind.is_file() {
            copy_file(&path, &target)?;
        } else {
            let link = fs::read_link(path)?;
            std::os::unix::fs::symlink(link, &target).with_context(|| format!("cannot make {}", target.display()))?;
        }
    }
    Ok(())
}

/// Copies a file with its mode, and sets the old time.
pub(crate) fn copy_file(from: &Path, to: &Path) -> Result<()> {
    files::copy(from, to)?;
    let mode = fs::metadata(to)?.permissions().mode();
    fs::set_permissions(to, fs::Permissions::from_mode(mode | 0o600))?;
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + SOURCE_TIME);
    let set = File::options().write(true).open(to).and_then(|file| file.set_times(times));
    set.with_context(|| format!("cannot set the time of {}", to.display()))
}

/// Returns the number of object files below `dir`. Directories that cannot be read are skipped.
pub(crate) fn objects(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let count = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => objects(&entry.path()),
        Ok(kind) => u64::from(kind.is_file() && entry.path().extension().is_some_and(|end| end == "o")),
        Err(_) => 0,
    };
    entries.flatten().map(count).sum()
}

/// Compares the trees that two builds made: names, kinds, modes, contents, links. Unchanged sources
/// are left out, and so are `excluded` paths. The sources are in `src` in each tree.
pub(crate) fn compare(expected: &Path, actual: &Path, sources: &Path, excluded: &Exclusions) -> Result<Comparison> {
    let (left, right) = (list(expected)?, list(actual)?);
    let mut comparison = Comparison::default();
    let all: BTreeMap<&PathBuf, ()> = left.keys().chain(right.keys()).map(|path| (path, ())).collect();
    for path in all.into_keys() {
        if excluded.contains(path) {
            comparison.excluded += 1;
            continue;
        }
        let source = path.strip_prefix("src").is_ok_and(|inner| sources.join(inner).exists());
        comparison.compared += u64::from(!source);
        let difference = match (left.get(path), right.get(path)) {
            (Some(_), None) => Some("missing".to_owned()),
            (None, Some(_)) => Some("not there in the plain build".to_owned()),
            (Some(kind), Some(other)) if kind != other => Some(format!("is {other}, plain {kind}")),
            _ => content_differs(&expected.join(path), &actual.join(path))?,
        };
        comparison.different.extend(difference.map(|what| (path.clone(), what)));
    }
    Ok(comparison)
}

fn matches(pattern: &str, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match (pattern.strip_prefix('*'), pattern.strip_suffix('/')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(part)) => path.components().any(|component| component.as_os_str() == part),
        _ => name == pattern,
    }
}

/// Returns every file and link under `root` by its relative path, with a description.
fn list(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for path in files::list(&dir)? {
            let meta = fs::symlink_metadata(&path).with_context(|| format!("cannot look at {}", path.display()))?;
            if meta.is_dir() {
                pending.push(path);
                continue;
            }
            let kind = match meta.is_symlink() {
                true => format!("a link to {}", fs::read_link(&path)?.display()),
                false => format!("a file of mode {:o}", meta.permissions().mode() & 0o7777),
            };
            let inner = path.strip_prefix(root).context("listed from the root")?.to_path_buf();
            found.insert(inner, kind);
        }
    }
    Ok(found)
}

fn content_differs(expected: &Path, actual: &Path) -> Result<Option<String>> {
    if fs::symlink_metadata(expected)?.is_symlink() {
        return Ok(None);
    }
    let (left, right) = (files::bytes(expected)?, files::bytes(actual)?);
    if left == right {
        return Ok(None);
    }
    let at = left.iter().zip(&right).position(|(a, b)| a != b).unwrap_or_else(|| left.len().min(right.len()));
    Ok(Some(format!("differs from byte {at} on ({} bytes, plain {})", right.len(), left.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check =
            |pattern, path, expected| assert_eq!(matches(pattern, Path::new(path)), expected, "{pattern} {path}");
        check("*.log", "build/config.log", true);
        check("*.log", "build/x.logs", false);
        check("Makefile", "build/a/Makefile", true);
        check("Makefile", "build/a/Makefile2", false);
        check("CMakeScratch/", "build/CMakeFiles/CMakeScratch/x/y.o", true);
    }

    #[test]
    fn a_changed_mode_a_changed_byte_and_a_missing_file_are_seen() {
        let root = std::env::temp_dir().join(format!("xtask-tree-{}", std::process::id()));
        let (left, right) = (root.join("left"), root.join("right"));
        for side in [&left, &right] {
            fs::create_dir_all(side).expect("a directory");
            for name in ["same.o", "mode.o", "byte.o", "made.log"] {
                fs::write(side.join(name), name).expect("a file");
            }
        }
        fs::write(left.join("gone.o"), "").expect("a file");
        fs::write(left.join("time.o"), "12:00").expect("a file");
        fs::write(right.join("byte.o"), "bite.o").expect("a file");
        fs::write(right.join("made.log"), "other").expect("a file");
        fs::set_permissions(right.join("mode.o"), fs::Permissions::from_mode(0o400)).expect("a mode");
        let excluded = Exclusions { known: &[("*.log", "a log")], found: [PathBuf::from("time.o")].into() };
        let found = compare(&left, &right, Path::new("/nonexistent"), &excluded).expect("comparable");
        fs::remove_dir_all(&root).expect("removable");
        let names: Vec<_> = found.different.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect();
        assert_eq!((found.compared, found.excluded, names.join(" ").as_str()), (4, 2, "byte.o gone.o mode.o"));
    }
}
