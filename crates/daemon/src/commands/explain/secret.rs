//! Formats values for output. A value that looks secret (as `larder_lookup::secret` defines) is
//! replaced by a short digest, so that two values can be told apart but not read.

use larder_lookup::secret::{self, Piece};
use larder_model::Digest;

use crate::say;

/// The number of hexadecimal digits that are shown of a digest.
const DIGEST_DIGITS: usize = 8;

/// Formats the value of a variable.
pub(super) fn variable(name: &str, value: &[u8]) -> String {
    shown(&secret::variable(name.strip_prefix("environment ").unwrap_or(name).as_bytes(), value))
}

/// Formats the value of a variable without quotes, for a record of a build.
pub(in crate::commands) fn bare_variable(name: &[u8], value: &[u8]) -> String {
    bare(&secret::variable(name, &without_asked(value)))
}

/// Formats an argument without quotes, for a record of a build. `before` is the previous argument,
/// which may announce a secret.
pub(in crate::commands) fn bare_argument(before: &[u8], value: &[u8]) -> String {
    bare(&secret::argument(before, &without_asked(value)))
}

/// Hides secrets within one argument, which may be a script. For example, in `login --password …`
/// the word after `--password` is hidden.
fn without_asked(value: &[u8]) -> Vec<u8> {
    let (mut shown, mut before) = (Vec::with_capacity(value.len()), &b""[..]);
    for part in value.split_inclusive(u8::is_ascii_whitespace) {
        let word = part.trim_ascii_end();
        let asked = secret::argument(before, word);
        let is_asked = !word.is_empty() && asked != secret::argument(b"", word);
        shown.extend_from_slice(if is_asked { &asked } else { word });
        shown.extend_from_slice(&part[word.len()..]);
        before = if word.is_empty() { before } else { word };
    }
    shown
}

fn bare(value: &[u8]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Plain(text) => String::from_utf8_lossy(text).into_owned(),
        Piece::Hidden(digits) => format!("(not shown, digest {})", say::clean(digits)),
    };
    secret::pieces(value).iter().map(piece).collect()
}

/// Formats an argument. For example, `-DAPI_TOKEN=…` is as secret as a variable of that name.
pub(super) fn argument(value: &[u8]) -> String {
    shown(&secret::argument(b"", value))
}

/// Returns the first digits of a digest.
pub(super) fn short(digest: &Digest) -> String {
    digest.hex()[..DIGEST_DIGITS].to_owned()
}

fn shown(value: &[u8]) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Plain(text) => say::clean(text),
        Piece::Hidden(digits) => format!("(not shown, digest {})", say::clean(digits)),
    };
    let pieces = secret::pieces(value);
    match &pieces[..] {
        [hidden @ Piece::Hidden(_)] => piece(hidden),
        _ => format!("`{}`", pieces.iter().map(piece).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_apart_and_not_told() {
        assert_eq!(variable("environment LANG", b"C"), "`C`");
        assert_eq!(variable("environment LANG", b""), "``");
        let hosts = variable("environment PIP_INDEX_URL", b"https://me:pw@host/x http://host2");
        assert!(
            hosts.starts_with("`https://(not shown, digest ") && hosts.ends_with(")@host/x http://host2`"),
            "{hosts}"
        );
        for name in ["environment GITHUB_TOKEN", "environment DB_PASSWORD"] {
            let (a, b) = (variable(name, b"hunter2"), variable(name, b"hunter3"));
            assert!(a.starts_with("(not shown") && a != b, "{name}: {a}");
        }
        assert_eq!(argument(b"-DX=1"), "`-DX=1`");
        assert_eq!(argument(b"-I\0\x01/inc"), "`-I<root>/inc`");
        assert!(!argument(b"-DTOKEN=abc").contains("abc"));
        let script = bare_argument(b"-c", b"a  --password hunter2 b\n-DTOKEN=hunter2");
        assert!(script.starts_with("a  --password (not shown") && script.contains(") b\n-DTOKEN=("), "{script}");
        assert!(!script.contains("hunter2"), "{script}");
    }
}
