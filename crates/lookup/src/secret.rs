//! What looks secret is neither kept in a record nor shown: a short digest stands for it, by which two values can still
//! be told apart.
//!
//! ```text
//! hidden = NUL NUL, 8 hexadecimal digits of the value's digest
//! ```
//! No argument and no variable has a NUL, and a root's placeholder is a NUL and a number from 1 on. The key itself is
//! of the whole value. Too much is hidden rather than too little: that costs an explanation some words.

use larder_model::{Digest, ExplainWalk, Field};

use crate::Request;

/// Anywhere in a name.
const NAME_PARTS: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "KEY", "CREDENTIAL"];
/// A whole word of a name.
const NAME_WORDS: &[&str] = &["AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "DSN", "JWT", "PASS", "PAT", "PW", "PWD"];
/// What they are not: the working directory.
const NO_SECRETS: &[&str] = &["PWD", "OLDPWD"];
/// In a name these words mean nothing secret: gcc's linker plugin is told what to pass through.
const NO_WORDS: &str = "PASS-THROUGH";
/// How tokens of well-known services begin, at the start of a word.
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
/// A word that begins so and goes on for fewer bytes is a word.
const TOKEN_BYTES_MIN: usize = 16;
const HIDDEN: &[u8] = &[0, 0];
const DIGEST_DIGITS: usize = 8;

/// A part of a value, as `pieces` takes it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// As it is.
    Plain(&'a [u8]),
    /// Hidden, and the digits of its digest.
    Hidden(&'a [u8]),
}

/// The walk of a request's action as it is recorded and explained.
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

/// A variable's value without its secrets.
pub fn variable(name: &[u8], value: &[u8]) -> Vec<u8> {
    if is_secret(name) { hide(value) } else { text(value) }
}

/// An argument without its secrets; `before` is the one before it, which may be `--password`.
pub fn argument(before: &[u8], value: &[u8]) -> Vec<u8> {
    let asks = before.starts_with(b"-") && !before.contains(&b'=') && is_secret(before);
    let user = matches!(before, b"-u" | b"--user") && value.contains(&b':');
    if (asks || user) && !value.starts_with(b"-") { hide(value) } else { text(value) }
}

/// What of a value is plain, and what is hidden, in order.
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

/// Text that may hold secrets anywhere.
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

/// Whether what stands at `at` gives a value to what is called as a secret: `NAME=`, `Name: `, `name = "…"`,
/// `"name": "…"`, `<name>…</name>`.
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
    // With blanks or quotes between, much else is written so: only a text is taken for a value.
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

/// `scheme://user:password@host` without user and password.
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

/// How long the token is that `text` begins with; 0 where it is none.
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

    /// `…` stands for what is hidden.
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
