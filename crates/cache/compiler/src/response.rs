//! Expands response files: `@file` stands for the arguments in that file.
//!
//! ```text
//! file     = { space } { argument { space } }
//! argument = { byte | '\' byte | '"' { byte | '\' byte } '"' | ''' { byte | '\' byte } ''' }
//! ```
//! gcc and clang read them this way: a backslash takes the next byte literally, in both kinds of
//! quotes too.
//!
//! Unaware of: what an argument means, and where the file is.

use larder_model::Bypass;

/// Reads response files for [`crate::parse`], which does no I/O itself.
pub trait ResponseFiles {
    /// Returns the content of the file at `path`, relative to the tool's working directory, or
    /// `None` if it cannot be read.
    fn read(&self, path: &[u8]) -> Option<Vec<u8>>;
}

/// The first bytes of texts in UTF-8 and UTF-16. clang takes such a mark off and converts the text.
const BYTE_ORDER_MARKS: [&[u8]; 3] = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"];

/// The deepest nesting of response files.
const DEPTH_MAX: usize = 8;
/// How many files are read for one command. A file that names itself twice would otherwise be read
/// 2^8 times.
const FILES_MAX: usize = 256;
/// How many arguments one command may have: more than any system call takes.
const ARGUMENTS_MAX: usize = 1 << 20;

/// Returns the arguments with each response file replaced by its content.
pub(crate) fn expand(arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> Result<Vec<Vec<u8>>, Bypass> {
    let mut expansion = Expansion { files, read: 0, arguments: Vec::with_capacity(arguments.len()) };
    for argument in arguments {
        expansion.add(argument, 0)?;
    }
    Ok(expansion.arguments)
}

struct Expansion<'a> {
    files: &'a dyn ResponseFiles,
    read: usize,
    arguments: Vec<Vec<u8>>,
}

impl Expansion<'_> {
    fn add(&mut self, argument: &[u8], depth: usize) -> Result<(), Bypass> {
        let Some(path) = argument.strip_prefix(b"@") else {
            self.arguments.push(argument.to_vec());
            return if self.arguments.len() > ARGUMENTS_MAX { Err(Bypass::ResponseFile) } else { Ok(()) };
        };
        self.read += 1;
        if depth == DEPTH_MAX || self.read > FILES_MAX {
            return Err(Bypass::ResponseFile);
        }
        let content = self.files.read(path).ok_or(Bypass::ResponseFile)?;
        if BYTE_ORDER_MARKS.iter().any(|mark| content.starts_with(mark)) {
            return Err(Bypass::ResponseFile);
        }
        for argument in split(&content) {
            self.add(&argument, depth + 1)?;
        }
        Ok(())
    }
}

/// Returns the arguments in the content of a response file.
pub(crate) fn split(content: &[u8]) -> Vec<Vec<u8>> {
    let mut arguments = Vec::new();
    let mut argument: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = content.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => argument.get_or_insert_default().extend(bytes.next()),
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => argument.get_or_insert_default().push(byte),
            (b'"' | b'\'', None) => {
                quote = Some(byte);
                argument.get_or_insert_default();
            }
            (b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, None) => arguments.extend(argument.take()),
            _ => argument.get_or_insert_default().push(byte),
        }
    }
    arguments.extend(argument);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expect: &[&str]) {
        let arguments = split(content.as_bytes());
        let arguments: Vec<_> = arguments.iter().map(|a| String::from_utf8_lossy(a)).collect();
        assert_eq!(arguments, expect, "{content}");
    }

    #[test]
    fn quoting() {
        check("", &[]);
        check(" \n\t ", &[]);
        check("-c x.c", &["-c", "x.c"]);
        check("-c\r\nx.c\n", &["-c", "x.c"]);
        check("'a b' \"c d\" e\\ f", &["a b", "c d", "e f"]);
        check("-DX='\"y z\"'", &["-DX=\"y z\""]);
        check("-DX=\\\"y\\\"", &["-DX=\"y\""]);
        check("\"a\\\"b\" 'c\\'d'", &["a\"b", "c'd"]);
        check("'' \"\" x", &["", "", "x"]);
        check("a'b'\"c\"d", &["abcd"]);
        check("'unclosed x", &["unclosed x"]);
        check("x\\", &["x"]);
        check("\"a'b\"", &["a'b"]);
    }

    struct Files(&'static [(&'static str, &'static str)]);

    impl ResponseFiles for Files {
        fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
            let file = self.0.iter().find(|(name, _)| name.as_bytes() == path)?;
            Some(file.1.as_bytes().to_vec())
        }
    }

    #[test]
    fn nesting() {
        let files = Files(&[
            ("a", "-c @b"),
            ("b", "x.c"),
            ("loop", "@loop"),
            ("twice", "@twice @twice"),
            ("empty", ""),
            ("marked", "\u{feff}-c"),
        ]);
        let expanded = |argument: &str| expand(&[argument.as_bytes().to_vec()], &files);
        assert_eq!(expanded("@a"), Ok(vec![b"-c".to_vec(), b"x.c".to_vec()]));
        assert_eq!(expanded("@empty"), Ok(vec![]));
        assert_eq!(expanded("x@y"), Ok(vec![b"x@y".to_vec()]));
        for bad in ["@loop", "@twice", "@missing", "@marked", "@"] {
            assert_eq!(expanded(bad), Err(Bypass::ResponseFile), "{bad}");
        }
    }
}
