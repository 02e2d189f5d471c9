//! Shows that a crate of Rust uses a variable only to name files that it includes:
//!
//! ```text
//! include!(concat!(env!("OUT_DIR"), "/generated.rs"));
//! ```
//!
//! The value of the variable then is in no part of the crate: the path of the file is, and rustc was
//! told to replace its beginning. The crate may name the variable in no other way. Whatever is not
//! understood counts as another use.
//!
//! Unaware of: which files are the crate's sources.

use memchr::memmem;

/// The macros that include a file, of which the name must be the whole word.
const INCLUDES: [&[u8]; 3] = [b"include", b"include_str", b"include_bytes"];

/// Returns true if every place at which this source names the variable is of the form above.
pub(crate) fn names_included_files_only(source: &[u8], variable: &[u8]) -> bool {
    let literal = [b"\"", variable, b"\""].concat();
    memmem::find_iter(source, &literal)
        .all(|at| is_included(&source[..at], &source[at + literal.len()..]))
        // The macros could be the crate's own.
        && INCLUDES.iter().chain(&[&b"concat"[..], b"env"]).all(|name| !defines(source, name))
}

/// Returns true if a use of a variable stands within `include!(concat!(env!( … )))`.
fn is_included(before: &[u8], behind: &[u8]) -> bool {
    let called = |text, name| before_word(before_text(before_text(text, b"(")?, b"!")?, name);
    let start = called(before, b"env").and_then(|text| called(text, b"concat"));
    let Some(start) = start.and_then(|text| before_text(text, b"(")).and_then(|text| before_text(text, b"!")) else {
        return false;
    };
    INCLUDES.iter().any(|name| before_word(start, name).is_some()) && ends_the_path(behind).is_some()
}

/// Returns what follows the rest of the path: `), "/a", "b.rs"))`.
fn ends_the_path(text: &[u8]) -> Option<&[u8]> {
    let mut rest = after_text(text, b")")?;
    while let Some(next) = after_text(rest, b",").and_then(|next| after_text(next, b"\"")) {
        let end = next.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        rest = next[end..].strip_prefix(b"\"")?;
    }
    let rest = after_text(rest, b",").unwrap_or(rest);
    let rest = after_text(rest, b")")?;
    let rest = after_text(rest, b",").unwrap_or(rest);
    after_text(rest, b")")
}

fn before_text<'t>(text: &'t [u8], end: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_end().strip_suffix(end)
}

fn after_text<'t>(text: &'t [u8], start: &[u8]) -> Option<&'t [u8]> {
    text.trim_ascii_start().strip_prefix(start)
}

fn before_word<'t>(text: &'t [u8], word: &[u8]) -> Option<&'t [u8]> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
    before_text(text, word).filter(|rest| !rest.last().is_some_and(is_part))
}

/// Returns true if the source may define a macro of this name.
fn defines(source: &[u8], name: &[u8]) -> bool {
    let is_it = |at: usize| {
        let rest = source[at..].trim_ascii_start().strip_prefix(b"!").unwrap_or_default().trim_ascii_start();
        rest.starts_with(name)
    };
    memmem::find_iter(source, b"macro_rules").any(|at| is_it(at + b"macro_rules".len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_of_a_variable() {
        let check = |source: &str, expect: bool| {
            assert_eq!(names_included_files_only(source.as_bytes(), b"OUT_DIR"), expect, "{source}");
        };
        check("pub fn f() {}", true);
        check("include!(concat!(env!(\"OUT_DIR\"), \"/g.rs\"));", true);
        check("mod g { include ! ( concat ! (\n env!(\"OUT_DIR\"), \"/a\", \"b.rs\",\n ) ); }", true);
        check("const B: &[u8] = core::include_bytes!(concat!(env!(\"OUT_DIR\"), \"/g\"));", true);
        check(
            "const B: &str = include_str!(concat!(env!(\"OUT_DIR\"), \"/g\")); const P: &str = env!(\"OUT_DIR\");",
            false,
        );
        check("const P: &str = concat!(env!(\"OUT_DIR\"), \"/g\");", false);
        check("my_include!(concat!(env!(\"OUT_DIR\"), \"/g\"));", false);
        check("include!(concat!(option_env!(\"OUT_DIR\"), \"/g\"));", false);
        check("include!(concat!(env!(\"OUT_DIR\"), \"/g\\u{61}\"));", false);
        check("include!(concat!(env!(\"OUT_DIR\"), stringify!(g)));", false);
        check("f(include!(concat!(env!(\"OUT_DIR\"), \"/g\")) , \"OUT_DIR\")", false);
        check("macro_rules! env { () => {} } include!(concat!(env!(\"OUT_DIR\"), \"/g\"));", false);
        check("const P: &str = env!(r\"OUT_DIR\");", false);
    }
}
