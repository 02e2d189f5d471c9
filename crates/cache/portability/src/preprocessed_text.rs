//! Searches preprocessed text, to see whether a root path reached the compiler proper.
//!
//! Unaware of: how the text was made, and for which results it is searched.

use larder_model::{Roots, contains, contains_any, is_in_word};
use larder_relocate::holds_a_root;
use memchr::memmem;

use crate::pragmas::Pragma;

/// Macros that gcc and clang define as 1, and that may also be the name of a directory. The first
/// one is defined only on 32-bit machines.
const MACROS: &[&[u8]] = &[b"i386", b"linux", b"unix"];

/// Returns true if a preprocessed text holds no root path, no builtin that returns a file name, and
/// no pragma that may hide one of them, and includes every generated input. `generated` are the file names of inputs that hold a root
/// path. If one is not included, it was read by `.incbin`, `.include` or `#embed`, which leave no
/// line marker. `of_gcc` says that gcc compiles the text.
pub(crate) fn is_free_of(roots: &Roots, text: &[u8], generated: &[&[u8]], of_gcc: bool) -> bool {
    let names_of_roots: Vec<&[u8]> = roots.all().collect();
    let (markers, lines): (Vec<&[u8]>, Vec<&[u8]>) = lines_of(text).partition(|line| is_marker(line));
    let code = lines.concat();
    let is_included = |name: &&[u8]| {
        let named = [*name, &b"\""[..]].concat();
        markers.iter().any(|line| contains(line, &named))
    };
    let names = asks_for_a_name(&code, of_gcc) || holds_a_root(&code, &names_of_roots) || names_expanded(&code, roots);
    !names && generated.iter().all(is_included) && pragma_that_hides(text, of_gcc).is_none()
}

fn lines_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|&byte| byte == b'\n')
}

/// Returns the file, as a line marker names it, with the first pragma because of which the compiler
/// may see other text than this one.
fn pragma_that_hides(text: &[u8], of_gcc: bool) -> Option<&[u8]> {
    let mut file = &b""[..];
    let hides = lines_of(text).any(|line| {
        if is_marker(line) {
            file = line.split(|&byte| byte == b'"').nth(1).unwrap_or_default();
        }
        let hides = |pragma: Pragma| if of_gcc { pragma.changes_options(file) } else { pragma.may_have_macro() };
        line.starts_with(b"#") && Pragma::of(line).is_some_and(hides)
    });
    hides.then_some(file)
}

/// Returns the file, as a line marker names it, in whose preprocessed text a root path or a builtin
/// that returns a file name stands first, or a pragma that may hide one.
pub(crate) fn file_that_names(roots: &Roots, text: &[u8], of_gcc: bool) -> Option<Vec<u8>> {
    let names_of_roots: Vec<&[u8]> = roots.all().collect();
    let (mut lines, mut file) = (lines_of(text), None);
    let line = lines.find(|line| match is_marker(line) {
        true => {
            file = line.split(|&byte| byte == b'"').nth(1);
            false
        }
        false => asks_for_a_name(line, of_gcc) || holds_a_root(line, &names_of_roots) || names_expanded(line, roots),
    });
    line.and(file).or_else(|| pragma_that_hides(text, of_gcc)).map(<[u8]>::to_vec)
}

/// Returns true if the text holds a root path in the form that the preprocessor gives it outside of
/// quotes. For example, `/home/linux/x` becomes `/home/1/x`, and a space may follow the number.
pub(crate) fn names_expanded(text: &[u8], roots: &Roots) -> bool {
    let names = expansions(roots);
    if names.is_empty() {
        return false;
    }
    let without_spaces = |text: &[u8]| text.iter().copied().filter(|byte| *byte != b' ').collect::<Vec<u8>>();
    let text = without_spaces(text);
    names.iter().any(|name| contains(&text, without_spaces(name)))
}

/// Returns true if a root path occurs outside of quotes, where a part of it may be a macro.
pub(crate) fn stands_bare(text: &[u8], roots: &[&[u8]]) -> bool {
    let is_bare = |at: usize| {
        let begin = text[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        text[begin..at].iter().filter(|byte| **byte == b'"').count().is_multiple_of(2)
    };
    roots.iter().any(|root| memmem::find_iter(text, root).any(is_bare))
}

/// Returns true if a root path contains a macro's name.
pub(crate) fn can_be_expanded(roots: &Roots) -> bool {
    !expansions(roots).is_empty()
}

fn expansions(roots: &Roots) -> Vec<Vec<u8>> {
    let ways = [MACROS, &MACROS[1..]];
    ways.iter().flat_map(|macros| roots.paths().iter().filter_map(move |root| expanded(root, macros))).collect()
}

/// Returns the root with these macros expanded, or `None` if it contains none of them.
fn expanded(root: &[u8], macros: &[&[u8]]) -> Option<Vec<u8>> {
    let words = root.chunk_by(|a, b| is_in_word(*a) == is_in_word(*b));
    let expand = |word| if macros.contains(&word) { &b"1"[..] } else { word };
    let there: Vec<u8> = words.flat_map(expand).copied().collect();
    (there != root).then_some(there)
}

/// Returns true for a line marker such as `# 12 "/src/x.c" 2`, which says where the next line comes
/// from.
pub(crate) fn is_marker(line: &[u8]) -> bool {
    let number = line.strip_prefix(b"# ").or_else(|| line.strip_prefix(b"#line "));
    number.and_then(|rest| rest.first()).is_some_and(u8::is_ascii_digit)
}

/// Returns true if the text has a builtin that the compiler proper replaces by a file name.
///
/// clang names the file of a type without a name in `__PRETTY_FUNCTION__`, which `assert` uses. gcc
/// does not.
fn asks_for_a_name(code: &[u8], of_gcc: bool) -> bool {
    const WORDS: [&[u8]; 3] = [b"__PRETTY_FUNCTION__", b"__builtin_source_location", b"__builtin_dump_struct"];
    // `__builtin_FILE_NAME` gives the name without its directory.
    const FILE: &[u8] = b"__builtin_FILE";
    let file = |at: usize| code.get(at + FILE.len()) != Some(&b'_');
    contains_any(code, &WORDS[usize::from(of_gcc)..]) || memmem::find_iter(code, FILE).any(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let roots = Roots::new([b"/some/where".to_vec()]);
        let check = |text: &str, expect| assert_eq!(is_free_of(&roots, text.as_bytes(), &[], false), expect, "{text}");
        check("# 1 \"/some/where/x.c\"\nint x;\n", true);
        check("#line 1 \"/some/where/x.c\"\nint x;\n", true);
        check("char *x = L\"/some/where\";", false);
        check("f(__builtin_FILE());", false);
        check("f(__builtin_FILE_NAME());", true);
        check("f(__PRETTY_FUNCTION__);", false);
        assert!(is_free_of(&roots, b"f(__PRETTY_FUNCTION__);", &[], true), "gcc writes no path");
        assert!(!is_free_of(&roots, b"f(__builtin_FILE());", &[], true));
        check("#pragma unroll(4)\n", true);
        check("#pragma unroll(N)\n", false);
        check("#pragma GCC target(\"avx2\")\n", true);
        assert!(is_free_of(&roots, b"#pragma unroll(N)\n", &[], true), "gcc expands none");
        assert!(!is_free_of(&roots, b"#pragma GCC target(\"avx2\")\n", &[], true));
    }

    #[test]
    fn roots_that_are_not_quoted() {
        let check = |text: &str, expect| assert_eq!(stands_bare(text.as_bytes(), &[b"/w"]), expect, "{text}");
        check("# 1 \"/w/x.c\"\nchar *s = \"/w\";\n", false);
        check("char *s = \"a\";\np = /w/x;\n", true);
        check("/w", true);
        check("", false);
    }

    #[test]
    fn roots_that_are_expanded() {
        let roots = Roots::new([b"/unix/p-linux.d/linux64".to_vec()]);
        let check = |text: &str, expect| assert_eq!(names_expanded(text.as_bytes(), &roots), expect, "{text}");
        check("x = \"/1/p-1.d/linux64/y\";", true);
        check("x = /1/p-1 .d/linux64 /y;", true);
        check("x = \"/1/p-linux.d/linux64\";", false);
        assert!(!names_expanded(b"/some/where /1", &Roots::new([b"/some/where".to_vec()])));
        assert!(names_expanded(b"/x/1/1", &Roots::new([b"/x/i386/linux".to_vec()])));
        assert!(names_expanded(b"/x/i386/1", &Roots::new([b"/x/i386/linux".to_vec()])));
    }

    #[test]
    fn what_was_generated_is_included() {
        let roots = Roots::new([b"/some/where".to_vec()]);
        let check = |text: &str, expect| {
            assert_eq!(is_free_of(&roots, text.as_bytes(), &[b"config.h"], false), expect, "{text}")
        };
        check("# 1 \"x.c\"\n# 1 \"./config.h\" 1\nint x;\n", true);
        check("# 1 \"x.c\"\nasm(\".incbin \\\"config.h\\\", 9, 6\");\n", false);
    }
}
