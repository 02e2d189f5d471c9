//! Writes a depfile with the line breaks of each compiler.
//!
//! gcc: `make_write` in libcpp's `mkdeps.cc`, since version 10. clang:
//! `DependencyFileGenerator::outputDependencyFile`.
//!
//! Unaware of: roots.

use super::parse::Depfile;

/// The compiler that wrote a depfile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// gcc: `cc1`, `cc1plus` and its other compilers proper.
    Gcc,
    /// clang.
    Clang,
}

/// gcc starts a new line before a word that would end after this column.
const GCC_COLUMNS: usize = 72;
/// clang starts a new line before a word that would end after this column, including the space and
/// the backslash.
const CLANG_COLUMNS: usize = 75;

impl Writer {
    /// Returns the depfile as this compiler writes it, or `None` if the words do not determine
    /// that.
    pub(super) fn render(self, depfile: &Depfile) -> Option<Vec<u8>> {
        // `-MT 'a b'` is one word to the compiler and two here. This only matters if lines are
        // wrapped.
        let width = depfile.targets.iter().map(|target| target.len() + 1).sum::<usize>();
        if depfile.targets.len() > 1 && width >= GCC_COLUMNS.min(CLANG_COLUMNS) - 2 {
            return None;
        }
        let mut out = match self {
            Writer::Gcc => gcc(depfile),
            Writer::Clang => clang(depfile),
        };
        for name in &depfile.phony {
            out.extend_from_slice(name);
            out.extend_from_slice(if name.is_empty() { b"\n" } else { b":\n" });
        }
        Some(out)
    }
}

fn gcc(depfile: &Depfile) -> Vec<u8> {
    let mut out = Vec::new();
    let mut column = gcc_words(&depfile.targets, &mut out, 0);
    out.push(b':');
    column += 1;
    gcc_words(&depfile.prerequisites, &mut out, column);
    out.push(b'\n');
    out
}

fn gcc_words(words: &[Vec<u8>], out: &mut Vec<u8>, mut column: usize) -> usize {
    for word in words {
        if column > 0 {
            if column + word.len() > GCC_COLUMNS {
                out.extend_from_slice(b" \\\n");
                column = 0;
            }
            out.push(b' ');
            column += 1;
        }
        out.extend_from_slice(word);
        column += word.len();
    }
    column
}

fn clang(depfile: &Depfile) -> Vec<u8> {
    let mut out = Vec::new();
    let mut column = 0;
    for target in &depfile.targets {
        if column > 0 {
            let is_long = column + target.len() + 2 > CLANG_COLUMNS;
            out.extend_from_slice(if is_long { b" \\\n  " } else { b" " });
            column = if is_long { 1 } else { column } + 1;
        }
        out.extend_from_slice(target);
        column += target.len();
    }
    out.push(b':');
    column += 1;
    for name in &depfile.prerequisites {
        let width = unquoted_length(name) + 1;
        if column + width + 2 > CLANG_COLUMNS {
            out.extend_from_slice(b" \\\n ");
            column = 2;
        }
        out.push(b' ');
        out.extend_from_slice(name);
        column += width;
    }
    out.push(b'\n');
    out
}

/// Returns the length of a quoted word before it was quoted, which is what clang counts.
fn unquoted_length(word: &[u8]) -> usize {
    let (mut length, mut at) = (0, 0);
    while let Some(&c) = word.get(at) {
        let slashes = word.get(at..).unwrap_or_default().iter().take_while(|&&c| c == b'\\').count();
        let next = word.get(at + slashes);
        (length, at) = match (c, next) {
            (b'$', _) if word.get(at + 1) == Some(&b'$') => (length + 1, at + 2),
            (b'\\', Some(b' ' | b'\t')) => (length + slashes / 2 + 1, at + slashes + 1),
            (b'\\', Some(b'#')) => (length + slashes, at + slashes + 1),
            (b'\\', _) => (length + slashes, at + slashes),
            _ => (length + 1, at + 1),
        };
    }
    length
}

#[cfg(test)]
mod tests {
    use super::super::quoted;
    use super::*;

    #[test]
    fn quoting_is_counted() {
        for name in ["a b", "a\\ b", "a\\\\ b", "$", "a$b$", "#", "\\#", "a\\b", "x\\"] {
            assert_eq!(unquoted_length(&quoted(name.as_bytes())), name.len(), "{name}");
        }
    }
}
