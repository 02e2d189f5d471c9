//! Identifies programs by content and version.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::schema::Tool;

const DIGEST_DIGITS: usize = 32;
/// How long to wait for a program to print its version. Five seconds were too few on a busy machine.
const VERSION_WITHIN: Duration = Duration::from_secs(20);
/// The largest length of a version line, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// Returns the first digits of a file's digest.
pub(super) fn digest(path: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut File::open(path).ok()?, &mut hasher).ok()?;
    Some(hasher.finalize().to_hex()[..DIGEST_DIGITS].to_owned())
}

/// Describes all programs whose files can be read, and the parts of compilers that do the work. The
/// programs are asked for their versions in parallel.
pub(super) fn all(named: &[(String, PathBuf)]) -> Vec<Tool> {
    let said: Vec<Vec<Tool>> = std::thread::scope(|scope| {
        let asked: Vec<_> = named.iter().map(|(name, file)| scope.spawn(move || with_parts(name, file))).collect();
        asked.into_iter().map(|tools| tools.join().unwrap_or_default()).collect()
    });
    said.into_iter().flatten().collect()
}

/// Describes a program and its parts, or nothing if its file cannot be read.
fn with_parts(name: &str, file: &Path) -> Vec<Tool> {
    let Some(tool) = tool(name, file) else { return Vec::new() };
    let part = |part: &str, path: PathBuf| by_content(&format!("{name}: {part}"), &path);
    let mut all = Vec::new();
    if tool.version.contains("GCC") || tool.version.starts_with("gcc") || tool.version.starts_with("g++") {
        let path = |program: &str| first_line(file, &format!("-print-prog-name={program}"));
        // A part that gcc does not find is printed without a directory.
        let found = GCC_PARTS.iter().map(|program| (*program, PathBuf::from(path(program))));
        all.extend(found.filter(|(_, path)| path.is_absolute()).filter_map(|(program, path)| part(program, path)));
    } else if tool.version.starts_with("rustc ") {
        // The file `rustc` may be a wrapper that only selects a toolchain.
        let compiler = PathBuf::from(first_line(file, "--print=sysroot")).join("bin/rustc");
        all.extend(part("of its sysroot", compiler));
    }
    all.insert(0, tool);
    all
}

/// The programs that `gcc` starts.
const GCC_PARTS: &[&str] = &["cc1", "cc1plus", "collect2", "as", "ld"];

/// Describes a program, or returns `None` if its file cannot be read.
fn tool(name: &str, file: &Path) -> Option<Tool> {
    Some(Tool { version: first_line(file, "--version"), ..by_content(name, file)? })
}

/// Describes a program without asking for its version.
fn by_content(name: &str, file: &Path) -> Option<Tool> {
    let path = std::fs::canonicalize(file).ok()?;
    let digest = digest(&path)?;
    Some(Tool { name: name.to_owned(), path: path.display().to_string(), digest, version: String::new() })
}

/// Returns the first line of the program's output, or an empty string. A program that hangs is
/// killed.
fn first_line(file: &Path, argument: &str) -> String {
    let mut command = Command::new(file);
    command.arg(argument).env("LC_ALL", "C").stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else { return String::new() };
    let Some(stdout) = child.stdout.take() else { return String::new() };
    let (say, said) = mpsc::channel();
    // Read in a thread, because a child of the program may keep its output open.
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(stdout.take(LINE_BYTES_MAX)).read_line(&mut line);
        let _ = say.send(line);
    });
    let line = said.recv_timeout(VERSION_WITHIN).unwrap_or_default();
    // The line has arrived, or the time is over.
    let _ = child.kill();
    let _ = child.wait();
    line.trim_end().to_owned()
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
