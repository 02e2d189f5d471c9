//! autoconf's `config.status`. It contains the values of variables as strings for awk, which are
//! wrapped after 148 characters.
//!
//! The layout is that of `lib/autoconf/status.m4` of autoconf (`_AC_OUTPUT_FILES_PREPARE`).
//! `S["NAME"]=` is followed by pieces in quotes, one per line, each but the last followed by a
//! backslash. Each line of a value is wrapped into pieces of 148 bytes, and ends in `\n`, except
//! the last line. In a piece, quotes and backslashes follow a backslash.
//!
//! Unaware of: what a value contains.

use memchr::memmem;

/// A line of a value is wrapped after this many bytes.
const PIECE_BYTES: usize = 148;
const NAME: &[u8] = b"S[\"";
const VALUE: &[u8] = b"\"]=";

/// The text between two pieces.
const CUT: &[u8] = b"\"\\\n\"";

/// Returns the file with `replace` applied to each value as a whole, and to the text between
/// values. Returns `None` if autoconf would have wrapped a value differently.
pub(crate) fn relocate(bytes: &[u8], replace: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    written(bytes, replace, &|value| replace(value).map(|value| rendered(&value)))
}

/// Returns the file with each value in one piece, so that nothing in it depends on the length of a
/// path.
///
/// The pieces stay quoted. Two such texts are equal if and only if the files are equal. Returns
/// `None` if autoconf would have wrapped a value differently.
pub fn uncut(bytes: &[u8]) -> Option<Vec<u8>> {
    written(bytes, &|text| Some(text.to_vec()), &|value| Some(joined(&rendered(value))))
}

fn joined(pieces: &[u8]) -> Vec<u8> {
    let (mut out, mut kept) = (Vec::with_capacity(pieces.len()), 0);
    for cut in memmem::find_iter(pieces, CUT) {
        out.extend_from_slice(&pieces[kept..cut]);
        kept = cut + CUT.len();
    }
    out.extend_from_slice(&pieces[kept..]);
    out
}

/// Returns the file with `between` applied to the text between values, and `write` applied to each
/// value.
fn written(
    bytes: &[u8],
    between: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
    write: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let (mut out, mut other) = (Vec::with_capacity(bytes.len()), Vec::new());
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
    while let Some(line) = lines.next() {
        let Some((name, piece)) = begins_value(line) else {
            other.extend_from_slice(line);
            continue;
        };
        out.extend(between(&std::mem::take(&mut other))?);
        let (mut pieces, mut piece) = (piece.to_vec(), piece);
        let mut value = Vec::new();
        while unescape(piece, &mut value)? {
            piece = lines.next()?;
            pieces.extend_from_slice(piece);
        }
        if rendered(&value) != pieces {
            return None;
        }
        out.extend_from_slice(name);
        out.extend(write(&value)?);
    }
    out.extend(between(&other)?);
    Some(out)
}

/// Splits a line into the text before the value, and the first piece of the value.
fn begins_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(NAME)?;
    let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    rest[length..].starts_with(VALUE).then(|| line.split_at(NAME.len() + length + VALUE.len()))
}

/// Appends the unquoted content of a piece to `value`. Returns true if another piece follows.
fn unescape(piece: &[u8], value: &mut Vec<u8>) -> Option<bool> {
    let (piece, follows) = match piece.strip_suffix(b"\"\\\n") {
        Some(piece) => (piece, true),
        None => (piece.strip_suffix(b"\"\n")?, false),
    };
    let mut bytes = piece.strip_prefix(b"\"")?.iter();
    while let Some(byte) = bytes.next() {
        value.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                quoted => *quoted,
            },
            b'"' => return None,
            plain => *plain,
        });
    }
    Some(follows)
}

/// Returns a value as autoconf writes it.
fn rendered(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 8);
    let mut lines = value.split_inclusive(|&byte| byte == b'\n').peekable();
    // A value that ends in a newline is followed by an empty line.
    let ends_in_line = value.is_empty() || value.ends_with(b"\n");
    while let Some(line) = lines.next() {
        let line = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
        render_line(line.0, line.1, lines.peek().is_none() && !ends_in_line, &mut out);
    }
    if ends_in_line {
        render_line(b"", false, true, &mut out);
    }
    out
}

fn render_line(line: &[u8], ends: bool, is_last: bool, out: &mut Vec<u8>) {
    let mut pieces = line.chunks(PIECE_BYTES).peekable();
    let mut render = |piece: &[u8], closing: &[u8]| {
        out.push(b'"');
        for byte in piece {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(*byte);
        }
        out.extend_from_slice(closing);
    };
    let last: &[u8] = match (ends, is_last) {
        (true, _) => b"\\n\"\\\n",
        (false, true) => b"\"\n",
        (false, false) => b"\"\\\n",
    };
    if pieces.peek().is_none() {
        render(b"", last);
    }
    while let Some(piece) = pieces.next() {
        render(piece, if pieces.peek().is_some() { b"\"\\\n" } else { last });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longer(text: &[u8]) -> Option<Vec<u8>> {
        Some(String::from_utf8(text.to_vec()).expect("is text").replace("/w", "/longer").into_bytes())
    }

    #[test]
    fn values_are_cut_again() {
        let (x, y) = ("x".repeat(144), "y".repeat(10));
        let here =
            format!("cd /w\nS[\"A_1\"]=\"\\\"/w\"\nS[\"B\"]=\"/w/{x}z\"\\\n\"{y}\\n\"\\\n\"/w\\n\"\\\n\"\"\nend /w\n");
        let there = format!(
            "cd /longer\nS[\"A_1\"]=\"\\\"/longer\"\nS[\"B\"]=\"/longer/{}\"\\\n\"{}z{y}\\n\"\\\n\"/longer\\n\"\\\n\"\"\nend /longer\n",
            &x[..140],
            &x[140..]
        );
        let found = relocate(here.as_bytes(), &longer).expect("is cut as autoconf does");
        assert_eq!(String::from_utf8_lossy(&found), there);
        assert_eq!(relocate(&found, &|text| Some(text.to_vec())), Some(found.clone()));
        let whole = |text: &[u8]| uncut(text).expect("is cut as autoconf does");
        let b = format!("S[\"B\"]=\"/w/{x}z{y}\\n/w\\n\"\nend");
        assert!(String::from_utf8_lossy(&whole(here.as_bytes())).contains(&b), "quoted as it was");
        assert_eq!(longer(&whole(here.as_bytes())), Some(whole(&found)));
    }

    #[test]
    fn what_is_cut_otherwise_is_refused() {
        for text in ["S[\"A\"]=\"/w\"\\\n\"x\"\n", "S[\"A\"]=\"/w\n", "S[\"A\"]=\"/w\"\\\n", "S[\"A\"]=\"a\"b\"\n"] {
            assert_eq!(relocate(text.as_bytes(), &longer), None, "{text}");
            assert_eq!(uncut(text.as_bytes()), None, "{text}");
        }
    }
}
