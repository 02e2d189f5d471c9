//! Programs by content.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::form::Tool;

const DIGEST_DIGITS: usize = 32;
/// A program that does not say its version within this is not waited for.
const VERSION_WITHIN: Duration = Duration::from_secs(5);

/// The first digits of a file's digest.
pub(super) fn digest(path: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut File::open(path).ok()?, &mut hasher).ok()?;
    Some(hasher.finalize().to_hex()[..DIGEST_DIGITS].to_owned())
}

/// A program; `None` where its file cannot be read.
pub(super) fn tool(name: &str, file: &Path) -> Option<Tool> {
    let path = std::fs::canonicalize(file).ok()?;
    let digest = digest(&path)?;
    Some(Tool { name: name.to_owned(), path: path.display().to_string(), digest, version: version(file) })
}

/// The first line of what it says of its version; empty where it says nothing.
fn version(file: &Path) -> String {
    let mut command = Command::new(file);
    command.arg("--version").env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null());
    let (say, said) = mpsc::channel();
    // One that hangs is left behind: it has neither input nor anybody who reads it.
    std::thread::spawn(move || {
        let _ = say.send(command.output());
    });
    let output = said.recv_timeout(VERSION_WITHIN).ok().and_then(Result::ok);
    let first = output.and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned));
    first.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_its_content() {
        let sh = tool("sh", Path::new("/bin/sh")).expect("is there");
        assert_eq!((sh.digest.len(), sh.name.as_str()), (DIGEST_DIGITS, "sh"));
        assert!(tool("x", Path::new("/nonexistent")).is_none());
    }
}
