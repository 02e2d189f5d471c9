//! Preprocessing what was compiled once more, to see whether the path of this place reached the compiler proper.
//!
//! Unaware of: when that has to be known.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use larder_model::Roots;
use larder_relocate::holds_a_root;
use larder_spawn::Command;
use memchr::memmem;

/// More text than this is taken to hold everything.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Variables by which the compiler would write something.
const WRITES: [&str; 4] = ["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CC_PRINT_OPTIONS", "CC_PRINT_HEADERS"];

/// What the preprocessed text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preprocessed {
    /// It names neither a root nor asks for the name of a file.
    Free,
    /// It does.
    Names,
    /// It could not be had.
    Fails,
}

/// Preprocess with these arguments. `may_fail`: the compile failed as well, and what comes before the error is enough.
pub(crate) fn preprocess(command: &Command, arguments: &[Vec<u8>], roots: &Roots, may_fail: bool) -> Preprocessed {
    let mut run = std::process::Command::new(OsStr::from_bytes(&command.program));
    if let Some(name) = command.argv.first() {
        run.arg0(OsStr::from_bytes(name));
    }
    run.args(arguments.iter().map(|word| OsStr::from_bytes(word))).arg("-E");
    run.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    for variable in &command.environment {
        if let Some(equals) = variable.iter().position(|&b| b == b'=') {
            let (name, value) = (variable[..equals].to_vec(), variable[equals + 1..].to_vec());
            run.env(OsString::from_vec(name), OsString::from_vec(value));
        }
    }
    for name in WRITES {
        run.env_remove(name);
    }
    let Ok(mut child) = run.spawn() else { return Preprocessed::Fails };
    let mut text = Vec::new();
    let read = child.stdout.take().map(|out| out.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text));
    let whole = matches!(read, Some(Ok(_))) && text.len() as u64 <= TEXT_BYTES_MAX;
    if !whole {
        let _ = child.kill();
    }
    match child.wait() {
        Ok(status) if whole && (status.success() || may_fail) => said(&text, roots),
        _ => Preprocessed::Fails,
    }
}

fn said(text: &[u8], roots: &Roots) -> Preprocessed {
    let roots: Vec<&[u8]> = roots.all().map(Vec::as_slice).collect();
    let lines = text.split_inclusive(|&b| b == b'\n').filter(|line| !is_marker(line));
    let code = lines.fold(Vec::with_capacity(text.len()), |mut code, line| {
        code.extend_from_slice(line);
        code
    });
    if asks_for_a_name(&code) || holds_a_root(&code, &roots) { Preprocessed::Names } else { Preprocessed::Free }
}

/// `# 12 "/src/x.c" 2`: where the next line comes from.
fn is_marker(line: &[u8]) -> bool {
    let number = line.strip_prefix(b"# ").or_else(|| line.strip_prefix(b"#line "));
    number.and_then(|rest| rest.first()).is_some_and(u8::is_ascii_digit)
}

/// What is left of such a word in preprocessed text becomes the name of a file later.
fn asks_for_a_name(code: &[u8]) -> bool {
    const WORDS: [&[u8]; 3] = [b"__builtin_source_location", b"__builtin_dump_struct", b"__PRETTY_FUNCTION__"];
    // `__builtin_FILE_NAME` is without the directory.
    const FILE: &[u8] = b"__builtin_FILE";
    let file = |at: usize| code.get(at + FILE.len()) != Some(&b'_');
    WORDS.iter().any(|word| memmem::find(code, word).is_some()) || memmem::find_iter(code, FILE).any(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let roots = Roots::new([b"/some/where".to_vec()]);
        let check = |text: &str, expect| assert_eq!(said(text.as_bytes(), &roots), expect, "{text}");
        check("# 1 \"/some/where/x.c\"\nint x;\n", Preprocessed::Free);
        check("#line 1 \"/some/where/x.c\"\nint x;\n", Preprocessed::Free);
        check("char *x = L\"/some/where\";", Preprocessed::Names);
        check("f(__builtin_FILE());", Preprocessed::Names);
        check("f(__builtin_FILE_NAME());", Preprocessed::Free);
    }
}
