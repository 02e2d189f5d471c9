//! Parses a depfile: rules in make's language, in the form that gcc and clang write.
//!
//! ```text
//! file  = rule { phony rule }
//! rule  = target { target } ':' { prerequisite }      over lines that end in '\'
//! name  = { byte | '\ ' | '\#' | '$$' | '\\' before one of these }
//! ```
//!
//! Unaware of: what the names mean.

use super::reason::{Reason, text};

/// A larger depfile is refused.
const DEPFILE_BYTES_MAX: u64 = 16 << 20;
/// A depfile with more prerequisites is refused.
const PREREQUISITES_MAX: usize = 20_000;

/// Returns the prerequisites of the depfile at `path`. Refuses if this run has not written the
/// depfile.
pub(super) fn read(path: &[u8], started_ns: i64) -> Result<Vec<Vec<u8>>, Reason> {
    let trouble = |what: &str| format!("{}: {what}", text(path));
    let stat = larder_sys::stat(path).map_err(|error| trouble(&error.to_string()))?;
    if stat.changed_ns < started_ns {
        return Err(trouble("the depfile is older than the run"));
    }
    if stat.size_bytes > DEPFILE_BYTES_MAX {
        return Err(trouble("the depfile is too large"));
    }
    let content = std::fs::read(larder_sys::as_path(path)).map_err(|error| trouble(&error.to_string()))?;
    prerequisites(&content).ok_or_else(|| trouble("the depfile was not understood"))
}

/// Returns the prerequisites of the first rule, or `None` if the text is not understood.
pub(crate) fn prerequisites(content: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut colon = false;
    let mut rest = content;
    loop {
        rest = skip_blanks(rest);
        match rest.first() {
            None | Some(b'\n') => break,
            Some(_) => {}
        }
        let (name, after) = name(rest)?;
        rest = after;
        if colon {
            names.push(name);
        } else if name.ends_with(b":") {
            colon = true;
        }
        if names.len() > PREREQUISITES_MAX {
            return None;
        }
    }
    (colon && !names.is_empty()).then_some(names)
}

fn skip_blanks(mut rest: &[u8]) -> &[u8] {
    loop {
        rest = match rest {
            [b' ' | b'\t', after @ ..] | [b'\\', b'\n', after @ ..] | [b'\\', b'\r', b'\n', after @ ..] => after,
            _ => return rest,
        };
    }
}

/// Parses one name. Returns it with its escapes resolved, and the rest of the text. A backslash
/// escapes only a blank or `#`, and `$` is written as `$$`.
fn name(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut name = Vec::new();
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b' ' | b'\t' | b'\n' => break,
            b'\r' => return None,
            b'$' if text.get(at + 1) == Some(&b'$') => {
                name.push(b'$');
                at += 2;
            }
            b'$' => return None,
            b'\\' => {
                let run = text[at..].iter().take_while(|&&b| b == b'\\').count();
                match text.get(at + run) {
                    Some(b'\n') if run == 1 => break,
                    // Either the name ends in a backslash, or the line goes on. Both are written in
                    // the same way.
                    Some(b'\n') => return None,
                    Some(&next @ (b' ' | b'#' | b'\t')) => {
                        // gcc doubles backslashes before the one that escapes a blank, and clang
                        // does not. So more than one backslash is ambiguous.
                        if run > 1 {
                            return None;
                        }
                        name.push(next);
                        at += 2;
                    }
                    _ => {
                        name.extend_from_slice(&text[at..at + run]);
                        at += run;
                    }
                }
            }
            byte => {
                name.push(byte);
                at += 1;
            }
        }
    }
    Some((name, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expect: Option<&[&str]>) {
        let names = prerequisites(content.as_bytes());
        let names = names.map(|names| names.iter().map(|n| text(n)).collect::<Vec<_>>());
        let expect = expect.map(|names| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(names, expect, "{content}");
    }

    #[test]
    fn rules() {
        check("x.o: x.c a.h\n", Some(&["x.c", "a.h"]));
        check("x.o: x.c \\\n a.h \\\n  b.h\n\na.h:\n\nb.h:\n", Some(&["x.c", "a.h", "b.h"]));
        check("x.o y.o: x.c\n", Some(&["x.c"]));
        check("x.o: a\\ b.c c\\#d.h e$$f.h\n", Some(&["a b.c", "c#d.h", "e$f.h"]));
        check("x.o: a\\b.c", Some(&["a\\b.c"]));
        check("x.o: c:x.c\n", Some(&["c:x.c"]));
        check("", None);
        check("x.o:\n", None);
        check("x.o x.c\n", None);
        check("x.o: a$(b).c\n", None);
        check("x.o: a\\\\ b.c\n", None);
        check("x.o: a\\\\\n b.c\n", None);
        check("x.o\\\\\n: b.c\n", None);
        check("\\\\\n", None);
    }
}
