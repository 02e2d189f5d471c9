//! What looks secret is shown as a short digest: two values can still be told apart, none can be read.

use larder_model::Digest;

use crate::say;

/// Parts of names whose values are nobody's business.
const SECRET_NAMES: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "KEY", "CREDENTIAL"];
/// Digits that are shown of a digest.
const DIGEST_DIGITS: usize = 8;

/// A variable's value, as it may be shown.
pub(super) fn variable(name: &str, value: &[u8]) -> String {
    if is_secret(name.as_bytes()) { hidden(value) } else { quoted(&without_password(value)) }
}

/// An argument, as it may be shown: `-DAPI_TOKEN=…` is as secret as a variable of that name.
pub(super) fn argument(value: &[u8]) -> String {
    let value = without_password(value);
    match value.iter().position(|&b| b == b'=') {
        Some(at) if is_secret(&value[..at]) => format!("`{}=`{}", say::clean(&value[..at]), hidden(&value[at + 1..])),
        _ => quoted(&value),
    }
}

/// The first digits of a digest.
pub(super) fn short(digest: &Digest) -> String {
    digest.hex()[..DIGEST_DIGITS].to_owned()
}

pub(super) fn quoted(value: &[u8]) -> String {
    format!("`{}`", say::clean(value))
}

fn hidden(value: &[u8]) -> String {
    format!("(not shown, digest {})", short(&Digest::of(value)))
}

fn is_secret(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// `scheme://user:password@host` without the password.
fn without_password(value: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.windows(3).position(|w| w == b"://") {
        let (before, after) = rest.split_at(at + 3);
        shown.extend_from_slice(before);
        let end = after.iter().position(|b| b"/ ?#".contains(b)).unwrap_or(after.len());
        let user = after[..end].iter().rposition(|&b| b == b'@');
        if user.is_some() {
            shown.extend_from_slice("…".as_bytes());
        }
        rest = &after[user.unwrap_or(0)..];
    }
    shown.extend_from_slice(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_apart_and_not_told() {
        assert_eq!(variable("LANG", b"C"), "`C`");
        assert_eq!(variable("PIP_INDEX_URL", b"https://me:pw@host/x http://host2"), "`https://…@host/x http://host2`");
        for name in ["GITHUB_TOKEN", "aws_secret_access", "DB_PASSWORD", "API_KEY", "Credential"] {
            let (a, b) = (variable(name, b"hunter2"), variable(name, b"hunter3"));
            assert!(!a.contains("hunter") && a != b, "{name}: {a}");
        }
        assert_eq!(argument(b"-DX=1"), "`-DX=1`");
        assert!(!argument(b"-DTOKEN=abc").contains("abc"));
    }
}
