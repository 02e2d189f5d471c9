//! Converts text into a path, a size, a switch, an observer and so on. If that fails, returns what
//! to write instead, in a few words.
//!
//! Unaware of: which setting it is for, and whether a file or the environment gave it, apart from
//! [`Base`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::problem::quoted;
use crate::secret::masked;
use crate::size::parse_size;

/// A value as the user wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'a> {
    /// Text: a string in a file, or a variable.
    Text(&'a OsStr),
    /// A number, `true` or `false` in a file, in its shortest form.
    Plain(&'a str),
    /// An array of strings in a file.
    List(&'a [String]),
    /// Something in a file that no setting accepts, as words for a message.
    Other(&'static str),
}

/// What relative paths are relative to.
pub(crate) struct Base<'a> {
    /// The directory of the file, or the working directory. `None` if that is not known.
    pub(crate) dir: Option<&'a Path>,
    /// Returns the directory that `~` stands for.
    pub(crate) home: &'a dyn Fn() -> Option<PathBuf>,
}

impl<'a> Given<'a> {
    /// Returns the value as text if it is UTF-8.
    fn text(self) -> Option<&'a str> {
        match self {
            Given::Text(text) => text.to_str().map(str::trim),
            Given::Plain(text) => Some(text),
            Given::List(_) | Given::Other(_) => None,
        }
    }
}

/// Returns an absolute path. `~` is expanded. `$NAME` is not, so a path that begins with `$` is
/// refused: it was meant for a shell.
pub(crate) fn path(given: Given, base: &Base) -> Result<PathBuf, String> {
    let Given::Text(text) = given else {
        return Err("write a path in quotes".to_owned());
    };
    let bytes = text.as_encoded_bytes();
    if bytes.is_empty() || bytes.contains(&0) {
        return Err("write a path".to_owned());
    }
    if bytes[0] == b'$' {
        return Err("variables are not expanded here: write an absolute path, or one that starts with ~/".to_owned());
    }
    let path = Path::new(text);
    if let Ok(below) = path.strip_prefix("~") {
        let home = (base.home)().ok_or("the home directory is not known: write an absolute path")?;
        return Ok(plain(&home.join(below)));
    }
    match base.dir {
        _ if path.is_absolute() => Ok(plain(path)),
        Some(dir) if dir.is_absolute() => Ok(plain(&dir.join(path))),
        _ => Err("the working directory is not known: write an absolute path".to_owned()),
    }
}

/// Returns a number of bytes.
pub(crate) fn size(given: Given) -> Result<u64, String> {
    parse_size(given.text().unwrap_or_default()).map_err(|why| why.to_string())
}

/// Returns a whole number.
pub(crate) fn number(given: Given) -> Result<u64, String> {
    given.text().and_then(|text| text.parse().ok()).ok_or_else(|| "write a whole number".to_owned())
}

/// Returns any text on one line.
pub(crate) fn text(given: Given) -> Result<String, String> {
    let text = given.text().filter(|text| !text.contains(char::is_control));
    text.map(str::to_owned).ok_or_else(|| "write text on one line".to_owned())
}

/// Returns true for on, false for off.
pub(crate) fn switch(given: Given) -> Result<bool, String> {
    match given.text().map(str::to_ascii_lowercase).as_deref() {
        Some("1" | "true" | "yes" | "on") => Ok(true),
        Some("0" | "false" | "no" | "off" | "") => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// Returns the index of a word.
pub(crate) fn choice(given: Given, words: &[&str]) -> Result<usize, String> {
    let text = given.text().map(|text| text.to_ascii_lowercase().replace('-', "_")).unwrap_or_default();
    words.iter().position(|word| *word == text).ok_or_else(|| match words {
        [off, on] => format!("write {off} or {on}"),
        words => format!("write one of {}", words.join(", ")),
    })
}

/// Returns whether roots are searched for, and the roots that are listed.
pub(crate) fn roots(given: Given, base: &Base) -> Result<(bool, Vec<PathBuf>), String> {
    let Given::Text(text) = given else { return Err("write paths in quotes, with colons between them".to_owned()) };
    let (mut find, mut roots) = (true, Vec::new());
    for part in std::env::split_paths(text).filter(|part| !part.as_os_str().is_empty()) {
        match part.to_str() {
            Some("auto") => find = true,
            Some("none") => find = false,
            _ => roots.push(path(Given::Text(part.as_os_str()), base)?),
        }
    }
    Ok((find, roots))
}

/// The URL schemes of remotes. `larderd` interprets the rest of a URL; the wrapper only needs to
/// know that there are remotes.
pub const REMOTE_SCHEMES: &[&str] = &[
    "azblob",
    "file",
    "gcs",
    "ghac",
    "grpc",
    "grpcs",
    "gs",
    "http",
    "https",
    "memcached",
    "redis",
    "rediss",
    "s3",
    "webdav",
    "webdavs",
];

/// Returns URLs, which are separated by commas or in an array.
pub(crate) fn remotes(given: Given) -> Result<Vec<String>, String> {
    let all = several(given).ok_or("write URLs in quotes, with commas between them")?;
    all.into_iter().map(|url| remote(&url).map(|()| url)).collect()
}

/// The number of hexadecimal digits in a public key.
const KEY_DIGITS: usize = 64;

/// Returns public keys, which are separated by commas or in an array.
pub(crate) fn keys(given: Given) -> Result<Vec<String>, String> {
    let is_key = |key: &String| key.len() == KEY_DIGITS && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    match several(given).filter(|keys| keys.iter().all(is_key)) {
        Some(keys) => Ok(keys),
        None => Err(format!("write {KEY_DIGITS} hexadecimal digits for each key, with commas between keys")),
    }
}

/// Returns the elements of an array, or the parts between commas, without blanks around them.
fn several(given: Given) -> Option<Vec<String>> {
    let all: Vec<String> = match given {
        Given::List(list) => list.to_vec(),
        Given::Text(text) => text.to_str()?.split(',').map(str::to_owned).collect(),
        Given::Plain(_) | Given::Other(_) => return None,
    };
    let all = all.iter().map(|part| part.trim().to_owned());
    Some(all.filter(|part| !part.is_empty() && part != "none").collect())
}

fn remote(url: &str) -> Result<(), String> {
    let shown = quoted(&masked(url));
    let Some((scheme, _)) = url.split_once("://") else {
        return Err(format!("{shown} has no scheme: write one such as redis://host:6379"));
    };
    if !REMOTE_SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!("its scheme {} is not one of {}", quoted(scheme), REMOTE_SCHEMES.join(", ")));
    }
    match url.chars().find(|c| c.is_control() || c.is_whitespace()) {
        Some(_) => Err(format!("{shown} contains a blank: write it as %20")),
        None => Ok(()),
    }
}

/// Returns the path without empty and `.` components.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}
