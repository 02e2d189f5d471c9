//! Replaces what looks like a secret by a short digest, before it is recorded or shown. The digest
//! still tells two values apart.
//!
//! ```text
//! hidden = NUL NUL, 8 hexadecimal digits of the value's digest
//! ```
//! This is unambiguous: no argument and no variable can hold a NUL, and a root's placeholder is a
//! NUL and a number from 1 on. The key is still made of the whole value. We rather hide too much
//! than too little: that only makes an explanation less detailed.

use larder_model::{Digest, ExplainWalk, Field};

use crate::Request;

/// A name that contains one of these is secret.
const NAME_PARTS: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "KEY", "CREDENTIAL"];
/// A name that has one of these as a whole word is secret.
const NAME_WORDS: &[&str] = &["AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "DSN", "JWT", "PASS", "PAT", "PW", "PWD"];
/// Names that are not secret: working directories.
const NO_SECRETS: &[&str] = &["PWD", "OLDPWD"];
/// An exception: `-pass-through` of gcc's linker plugin names libraries and is not secret.
const NO_WORDS: &str = "PASS-THROUGH";
/// Prefixes of tokens of well-known services, at the start of a word.
const TOKEN_STARTS: &[&str] = &[
    "AIza",
    "AKIA",
    "ASIA",
    "SG.",
    "dop_v1_",
    "eyJ",
    "gho_",
    "ghp_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "hf_",
    "npm_",
    "pypi-",
    "rk_live_",
    "shpat_",
    "sk-",
    "sk_live_",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "ya29.",
];
/// A token has at least this many bytes after its prefix. A shorter word is an ordinary word.
const TOKEN_BYTES_MIN: usize = 16;
const HIDDEN: &[u8] = &[0, 0];
const DIGEST_DIGITS: usize = 8;

/// A part of a value, from `pieces`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text that is not hidden.
    Plain(&'a [u8]),
    /// The digits of the digest of hidden text.
    Hidden(&'a [u8]),
}

/// Returns the fields of a request's key with secrets hidden, as they are recorded and explained.
pub fn explained(request: &Request) -> ExplainWalk {
    let mut walk = ExplainWalk::default();
    request.action.walk(&request.roots, &mut walk);
    let mut before = Vec::new();
    for Field { name, value } in &mut walk.fields {
        if name == "argument" {
            let shown = argument(&before, value);
            before = std::mem::replace(value, shown);
        } else if let Some(name) = name.strip_prefix("environment ") {
            *value = variable(name.as_bytes(), value);
        }
    }
    walk
}

/// Returns a variable's value with secrets hidden.
pub fn variable(name: &[u8], value: &[u8]) -> Vec<u8> {
    if is_secret(name) { hide(value) } else { text(value) }
}

/// Returns an argument with secrets hidden. `before` is the argument before it, which may be
/// `--password`.
pub fn argument(before: &[u8], value: &[u8]) -> Vec<u8> {
    let asks = before.starts_with(b"-") && !before.contains(&b'=') && is_secret(before);
    let user = matches!(before, b"-u" | b"--user") && value.contains(&b':');
    if (asks || user) && !value.starts_with(b"-") { hide(value) } else { text(value) }
}

/// Splits a value into plain and hidden parts, in order.
pub fn pieces(value: &[u8]) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = value;
    while let Some(at) = position(rest, HIDDEN) {
        found.push(Piece::Plain(&rest[..at]));
        let digits = &rest[at + HIDDEN.len()..];
        let (digits, after) = digits.split_at(DIGEST_DIGITS.min(digits.len()));
        found.push(Piece::Hidden(digits));
        rest = after;
    }
    found.push(Piece::Plain(rest));
    found.retain(|piece| *piece != Piece::Plain(b""));
    found
}

fn is_secret(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let part = || NAME_PARTS.iter().any(|part| name.contains(part));
    let word = || {
        name.replace(NO_WORDS, "").split(|c: char| !c.is_ascii_alphanumeric()).any(|word| NAME_WORDS.contains(&word))
    };
    !NO_SECRETS.contains(&name.as_str()) && (part() || word())
}

/// Hides secrets anywhere in a text.
fn text(value: &[u8]) -> Vec<u8> {
    let ends_of_names = (0..value.len()).filter(|&at| matches!(value[at], b'=' | b':' | b'>'));
    let named = ends_of_names.into_iter().find(|&at| is_given_a_secret(value, at));
    let hidden_from = if position(value, b"PRIVATE KEY-----").is_some() { Some(0) } else { named.map(|at| at + 1) };
    let (open, closed) = value.split_at(hidden_from.unwrap_or(value.len()));
    let mut shown = without_tokens(&without_users(open));
    if !closed.is_empty() {
        shown.extend(hide(closed));
    }
    shown
}

/// Returns true if the separator at `at` gives a value to a secret name: `NAME=`, `Name: `,
/// `name = "…"`, `"name": "…"`, `<name>…</name>`.
fn is_given_a_secret(value: &[u8], at: usize) -> bool {
    let (before, after) = (&value[..at], &value[at + 1..]);
    if value[at] == b'>' {
        let name = name_before(value, at);
        return is_secret(name) && position(after, &[b"</", name, b">"].concat()).is_some();
    }
    let is_path = value[at] == b':' && (after.starts_with(b":") || before.ends_with(b":") || after.starts_with(b"//"));
    if !is_path && is_secret(name_before(value, at)) {
        return true;
    }
    // With blanks or quotes before the separator, only a quoted value counts. Source code such as
    // `token = lexer.next()` has the same form and is not secret.
    let is_between = |b: &u8| matches!(b, b' ' | b'\t' | b'"' | b'\'');
    let end = before.iter().rposition(|b| !is_between(b)).map_or(0, |last| last + 1);
    let is_text = after.trim_ascii_start().starts_with(b"\"") || after.trim_ascii_start().starts_with(b"'");
    !is_path && end < at && is_text && is_secret(name_before(value, end))
}

fn name_before(value: &[u8], end: usize) -> &[u8] {
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let start = value[..end].iter().rposition(|b| !is_name(b)).map_or(0, |at| at + 1);
    &value[start..end]
}

/// Hides user and password in `scheme://user:password@host`.
fn without_users(value: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = position(rest, b"://") {
        let (before, after) = rest.split_at(at + 3);
        shown.extend_from_slice(before);
        let end = after.iter().position(|b| b"/ ?#\"'".contains(b)).unwrap_or(after.len());
        let user = after[..end].iter().rposition(|&b| b == b'@').unwrap_or(0);
        if user > 0 {
            shown.extend(hide(&after[..user]));
        }
        rest = &after[user..];
    }
    shown.extend_from_slice(rest);
    shown
}

fn without_tokens(value: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(value.len());
    let mut at = 0;
    while at < value.len() {
        let begins = at == 0 || !value[at - 1].is_ascii_alphanumeric();
        let length = if begins { token_bytes(&value[at..]) } else { 0 };
        if length == 0 {
            shown.push(value[at]);
            at += 1;
        } else {
            shown.extend(hide(&value[at..at + length]));
            at += length;
        }
    }
    shown
}

/// Returns the length in bytes of the token at the start of `text`, or 0 if there is none.
fn token_bytes(text: &[u8]) -> usize {
    let Some(start) = TOKEN_STARTS.iter().find(|start| text.starts_with(start.as_bytes())) else { return 0 };
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let length = text.iter().position(|b| !is_token(b)).unwrap_or(text.len());
    if length - start.len() < TOKEN_BYTES_MIN { 0 } else { length }
}

fn hide(value: &[u8]) -> Vec<u8> {
    let is_hidden = value.starts_with(HIDDEN) && value.len() == HIDDEN.len() + DIGEST_DIGITS;
    if is_hidden || value.is_empty() {
        return value.to_vec();
    }
    [HIDDEN, &Digest::of(value).hex().as_bytes()[..DIGEST_DIGITS]].concat()
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows a value with `…` for each hidden part.
    fn shown(value: &[u8]) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Plain(text) => String::from_utf8_lossy(text).into_owned(),
            Piece::Hidden(digits) => {
                assert_eq!(digits.len(), DIGEST_DIGITS);
                "…".to_owned()
            }
        };
        pieces(value).iter().map(piece).collect()
    }

    #[test]
    fn arguments() {
        let check = |typed: &str, expect: &str| {
            let (before, value) = typed.split_once(" | ").unwrap_or(("", typed));
            let hidden = argument(before.as_bytes(), value.as_bytes());
            assert_eq!(shown(&hidden), expect, "{typed}");
            assert_eq!(argument(before.as_bytes(), &hidden), hidden, "{typed}: hidden once");
        };
        check("-DX=1", "-DX=1");
        check("-I/usr/include", "-I/usr/include");
        check("-DAPI_TOKEN=hunter2", "-DAPI_TOKEN=…");
        check("-Wp,-DX=1,-DDB_PASSWORD=\"a b\"", "-Wp,-DX=1,-DDB_PASSWORD=…");
        check("--password=hunter2", "--password=…");
        check("--password | hunter2", "…");
        check("--password | -c", "-c");
        check("--password=x | y.c", "y.c");
        check("-u | me:hunter2", "…");
        check("-u | main", "main");
        check("export A=1 GITHUB_TOKEN=x; make", "export A=1 GITHUB_TOKEN=…");
        check("Authorization: Bearer abc", "Authorization:…");
        check("https://me:pw@host/x http://host2", "https://…@host/x http://host2");
        check("-DX=ghp_0123456789abcdefghij", "-DX=…");
        check("-o | ghp_x.o", "ghp_x.o");
        check("say AKIAIOSFODNN7EXAMPLE99 twice", "say … twice");
        check("task-0123456789abcdefghij", "task-0123456789abcdefghij");
        check("Authorization:Basic abc", "Authorization:…");
        check("std::key::of(x)", "std::key::of(x)");
        check("password = \"x\"", "password =…");
        check("token = lexer.next()", "token = lexer.next()");
        check("{\"api_token\": \"x\"}", "{\"api_token\":…");
        check("<password>x</password>", "<password>…");
        check("std::map<Key> x", "std::map<Key> x");
        check("-----BEGIN RSA PRIVATE KEY----- MII", "…");
        check("BYPASS=1", "BYPASS=1");
    }

    #[test]
    fn variables() {
        let check = |name: &str, value: &str, expect: &str| {
            assert_eq!(shown(&variable(name.as_bytes(), value.as_bytes())), expect, "{name}={value}");
        };
        check("LANG", "C", "C");
        check("PATH", "/usr/bin:/bin", "/usr/bin:/bin");
        check("PWD", "/work", "/work");
        check("OLDPWD", "/work", "/work");
        check("COMPILER_PATH", "/opt", "/opt");
        check("CFLAGS", "-O2 -DAPI_TOKEN=x", "-O2 -DAPI_TOKEN=…");
        check("TOKEN", "", "");
        for name in ["GITHUB_TOKEN", "aws_secret_access", "DB_PASSWORD", "DB_PASS", "DB_PWD", "API_KEY", "Credential"] {
            check(name, "hunter2", "…");
            let other = variable(name.as_bytes(), b"hunter3");
            assert_ne!(variable(name.as_bytes(), b"hunter2"), other, "{name}: told apart");
        }
    }
}
