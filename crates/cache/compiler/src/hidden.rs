//! Arguments that clang gets in another way than on its command line: from configuration files, and
//! from the variables `CCC_OVERRIDE_OPTIONS` and `CCC_ADD_ARGS`.
//!
//! ```text
//! configuration = { line }
//! line          = '#' … | { space } [ '$' ] argument { space [ '$' ] argument }
//! ```
//! A backslash at the end of a line continues it, and `@file` includes another configuration. `$`
//! marks arguments for the linker.
//!
//! Unaware of: where clang looks for configuration files, and what an argument means.

use larder_model::Bypass;
use larder_model::path::file_name;

use crate::naming::Naming;
use crate::parse::parse;
use crate::response::{self, ResponseFiles};
use crate::{Family, StandardInput, naming};

/// The variables by which clang gets arguments.
pub const VARIABLES_WITH_ARGUMENTS: [&str; 2] = ["CCC_ADD_ARGS", "CCC_OVERRIDE_OPTIONS"];

/// Stands in a configuration for the directory that it is in.
const OWN_DIRECTORY: &[u8] = b"<CFGDIR>";

/// Returns the names of the configuration files that `--config` names, without directories.
pub fn named_configurations(arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> Vec<Vec<u8>> {
    if !arguments.iter().any(|word| word.starts_with(b"@") || word.starts_with(b"--config")) {
        return Vec::new();
    }
    let expanded = response::expand(arguments, files);
    let arguments = expanded.as_deref().unwrap_or(arguments);
    let next = arguments.windows(2).filter(|pair| pair[0] == b"--config").map(|pair| pair[1].as_slice());
    let joined = arguments.iter().filter_map(|word| word.strip_prefix(b"--config="));
    next.chain(joined).map(|path| file_name(path).to_vec()).collect()
}

/// Returns the arguments in a configuration file. `files` reads the files that it includes.
pub fn arguments_of_configuration(content: &[u8], directory: &[u8], files: &dyn ResponseFiles) -> Vec<Vec<u8>> {
    let joined = replaced(&replaced(content, b"\\\r\n", b""), b"\\\n", b"");
    let lines = joined.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii_start().starts_with(b"#"));
    let words: Vec<Vec<u8>> = lines.flat_map(response::split).collect();
    let words = response::expand(&words, files).unwrap_or(words);
    words.iter().map(|word| replaced(word.strip_prefix(b"$").unwrap_or(word), OWN_DIRECTORY, directory)).collect()
}

/// Returns the arguments that one of [`VARIABLES_WITH_ARGUMENTS`] adds or puts in place of others.
/// Spaces separate them, and commas as well in `CCC_ADD_ARGS`, which old versions read.
pub fn arguments_of_variable(name: &str, value: &[u8]) -> Vec<Vec<u8>> {
    let by_commas = name == "CCC_ADD_ARGS";
    let parts = value.split(|&byte| byte == b' ' || by_commas && byte == b',').filter(|part| !part.is_empty());
    let added = |part: &[u8]| match part {
        [b'+' | b'^' | b'#', rest @ ..] => rest.to_vec(),
        // `s/OLD/NEW/`
        [b's', mark, rest @ ..] if !mark.is_ascii_alphanumeric() => {
            rest.split(|byte| byte == mark).nth(1).unwrap_or_default().to_vec()
        }
        _ => part.to_vec(),
    };
    parts.map(added).filter(|word| !word.is_empty()).collect()
}

/// Returns an argument because of which a result is not recorded: its effect cannot be repeated from a
/// record, or it makes clang read standard input, which is not in the key.
pub fn too_hard<'w>(hidden: &'w [Vec<u8>], files: &dyn ResponseFiles) -> Option<&'w [u8]> {
    let is_too_hard = |words: &[Vec<u8>]| {
        let words: Vec<Vec<u8>> = words.iter().cloned().chain([b"-c".to_vec(), b"x.c".to_vec()]).collect();
        match parse(Family::Clang, &words, files) {
            Ok(invocation) => invocation.standard_input != StandardInput::Unread,
            Err(bypass) => bypass == Bypass::TooHard,
        }
    };
    if hidden.is_empty() || !is_too_hard(hidden) {
        return None;
    }
    // If none is so by itself, several are together.
    hidden.iter().find(|word| is_too_hard(std::slice::from_ref(word))).or(hidden.first()).map(Vec::as_slice)
}

impl Naming {
    /// Adds what hidden arguments do with paths. They are no arguments of the run that only
    /// preprocesses, because that run gets them in the same way.
    pub fn and_hidden(mut self, hidden: &[Vec<u8>], files: &dyn ResponseFiles) -> Option<Naming> {
        let added = naming(hidden, files)?;
        self.transforms = self.transforms.or(added.transforms);
        self.seed = self.seed.or(added.seed);
        self.compares = self.compares.or(added.compares);
        self.talkative = self.talkative.or(added.talkative);
        self.mapped.extend(added.mapped);
        self.shortened.extend(added.shortened);
        self.system.extend(added.system);
        self.definitions.extend(added.definitions);
        self.places.extend(added.places);
        self.others.extend(added.others);
        Some(self)
    }
}

fn replaced(text: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, old) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(new);
        rest = &rest[at + old.len()..];
    }
    result.extend_from_slice(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Included;

    impl ResponseFiles for Included {
        fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
            match path {
                b"more.cfg" => Some(b"-flto".to_vec()),
                b"told" => Some(b"--config d/mine -O2".to_vec()),
                _ => None,
            }
        }
    }

    fn joined(words: &[Vec<u8>]) -> String {
        words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn configurations() {
        let check = |content: &str, expect: &str| {
            assert_eq!(joined(&arguments_of_configuration(content.as_bytes(), b"/d", &Included)), expect, "{content}");
        };
        check("-O2\n  # -g\n-DX='a b' \\\n -g\n", "-O2 -DX=a b -g");
        check("@more.cfg -c", "-flto -c");
        check("@none -c", "@none -c");
        check("--sysroot=<CFGDIR>/s $-lm", "--sysroot=/d/s -lm");
    }

    #[test]
    fn configurations_that_are_named() {
        let check = |line: &str, expect: &str| {
            let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(joined(&named_configurations(&words, &Included)), expect, "{line}");
        };
        check("--config a/b --config=c -c", "b c");
        check("@told -c", "mine");
        check("@none --config=c", "c");
    }

    #[test]
    fn variables() {
        let words = |name, value: &str| {
            let words = arguments_of_variable(name, value.as_bytes());
            words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        let overriding = words("CCC_OVERRIDE_OPTIONS", "# +-O1 ^-g x-Wall s/-O./-flto/ +-Wl,-z,now");
        assert_eq!(overriding, ["-O1", "-g", "x-Wall", "-flto", "-Wl,-z,now"]);
        assert_eq!(words("CCC_ADD_ARGS", "-g,-O2"), ["-g", "-O2"]);
    }

    #[test]
    fn hidden_arguments_count() {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let naming = naming(&words("-c /r/x.c"), &Included).expect("no response file");
        let both =
            naming.clone().and_hidden(&words("-ffile-prefix-map=/r=. -flto -DX"), &Included).expect("no response file");
        assert_eq!(both.transforms, Some(b"-flto".to_vec()));
        assert_eq!((both.mapped.len(), joined(&both.definitions)), (1, "-DX".to_owned()));
        assert_eq!((both.preprocess, both.sources), (naming.preprocess, naming.sources));
        assert_eq!(too_hard(&words("-O2 -ftime-report -g"), &Included), Some(&b"-ftime-report"[..]));
        assert_eq!(too_hard(&words("-O2 -g"), &Included), None);
        assert_eq!(too_hard(&words("-xc -"), &Included), Some(&b"-"[..]));
    }
}
