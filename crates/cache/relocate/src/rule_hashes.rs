//! `CMakeRuleHashes.txt`, in which CMake keeps a hash of each rule that runs commands of the project.
//!
//! Layout: a comment, then for each rule a line with a hash, a space and the output. The hash is the
//! MD5 of the directory in which the commands run, followed by the commands, with nothing between
//! them. Both are also in the file `build.make` that has the rule, except for the line by which CMake
//! prints what it does, and for `cd DIRECTORY && ` before each command:
//!
//! ```text
//! gen.c: in.c
//!         @$(CMAKE_COMMAND) -E cmake_echo_color … "Generating gen.c"
//!         cd /w/build/sub && /usr/bin/cmake -E copy in.c gen.c
//! ```
//!
//! A text that has the recorded hash is what CMake hashed. So no guess about CMake is believed that
//! is not right for the recorded file.
//!
//! Unaware of: how `build.make` itself is rewritten.

use std::collections::HashMap;

use crate::md5::md5;

/// A `build.make` as it was recorded, and as it is in another place.
#[derive(Debug)]
pub struct BuildMake<'a> {
    /// The bytes that were recorded.
    pub from: &'a [u8],
    /// The bytes for the other place.
    pub to: &'a [u8],
}

/// A rule: the directory in which its commands run, and the commands.
type Rule<'a> = (&'a [u8], Vec<&'a [u8]>);

const COMMENT: &[u8] = b"# Hashes of file build rules.";
const BUILD_DIRECTORY: &[u8] = b"CMAKE_BINARY_DIR = ";
const ECHO: &[u8] = b"@$(CMAKE_COMMAND) -E cmake_echo_color ";

/// Returns `CMakeRuleHashes.txt` for another place, or `None` if a hash in it is not that of a rule
/// in these makefiles.
pub fn rule_hashes_at(hashes: &[u8], makefiles: &[BuildMake<'_>]) -> Option<Vec<u8>> {
    let mut known: HashMap<[u8; 32], Option<[u8; 32]>> = HashMap::new();
    for BuildMake { from, to } in makefiles {
        let (from, to) = (rules(from)?, rules(to)?);
        if from.len() != to.len() {
            return None;
        }
        for (old, new) in from.iter().zip(&to) {
            let new = is_plain(new.0).then(|| hash(new));
            // Rules that are equal in one place and not in the other are not told apart.
            let first = *known.entry(hash(old)).or_insert(new);
            if first != new {
                known.insert(hash(old), None);
            }
        }
    }
    let mut there = Vec::with_capacity(hashes.len());
    for line in hashes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n') {
        match line.split_first_chunk::<32>() {
            _ if line == COMMENT => there.extend(line),
            // The lines are sorted by outputs. An absolute path may sort differently in another place.
            Some((old, output)) if output.starts_with(b" ") && !output.starts_with(b" /") => {
                there.extend((*known.get(old)?)?);
                there.extend(output);
            }
            _ => return None,
        }
        there.push(b'\n');
    }
    Some(there)
}

/// Returns true if a path is written in the same way in makefiles, in commands of a shell and for the
/// hash.
fn is_plain(path: &[u8]) -> bool {
    path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+,".contains(byte))
}

/// Returns the rules that a `build.make` may have, in order, or `None` if it names no build directory.
///
/// A rule without commands has no recipe. Its directory is that of another rule, such as the one
/// that removes files.
fn rules(makefile: &[u8]) -> Option<Vec<Rule<'_>>> {
    let lines = || makefile.split(|byte| *byte == b'\n');
    let build_directory = lines().find_map(|line| line.strip_prefix(BUILD_DIRECTORY))?;
    let mut found: Vec<Rule> = vec![(build_directory, Vec::new())];
    let mut is_in_rule = false;
    for line in lines() {
        let Some(command) = line.strip_prefix(b"\t") else {
            is_in_rule = false;
            continue;
        };
        if !is_in_rule {
            found.push((build_directory, Vec::new()));
            is_in_rule = true;
        }
        if command.starts_with(ECHO) {
            continue;
        }
        if let Some((directory, commands)) = found.last_mut() {
            let (before, command) = without_directory(command);
            *directory = before.unwrap_or(directory);
            commands.push(command);
        }
    }
    let without_commands: Vec<Rule> = found.iter().map(|(directory, _)| (*directory, Vec::new())).collect();
    found.extend(without_commands);
    Some(found)
}

/// Returns the directory of a command `cd DIRECTORY && COMMAND`, and the command.
fn without_directory(command: &[u8]) -> (Option<&[u8]>, &[u8]) {
    const THEN: &[u8] = b" && ";
    let split = || {
        let rest = command.strip_prefix(b"cd ")?;
        let at = memchr::memmem::find(rest, THEN)?;
        Some((&rest[..at], &rest[at + THEN.len()..]))
    };
    split().map_or((None, command), |(directory, command)| (Some(directory), command))
}

/// Returns the hash of a rule as hexadecimal digits.
fn hash((directory, commands): &Rule) -> [u8; 32] {
    let text = [&[*directory], &commands[..]].concat().concat();
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(md5(&text)) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn makefile(top: &str, more: &str) -> String {
        format!(
            "CMAKE_SOURCE_DIR = {top}\nCMAKE_BINARY_DIR = {top}/b\n\ngen.c: {top}/in.c\n\
             \t@$(CMAKE_COMMAND) -E cmake_echo_color --switch=$(COLOR) \"Making it\"\n\
             \t/usr/bin/cmake -E copy {top}/in.c gen.c\n\tsh -c echo\\ '$x'\n\n\
             sub/s.c: {top}/in.c\n\tcd {top}/b/sub && cp {top}/in.c s.c\n{more}"
        )
    }

    fn hex(text: &str) -> String {
        let text = text.as_bytes();
        String::from_utf8_lossy(&hash(&(text, Vec::new()))).into_owned()
    }

    fn hashes(top: &str) -> String {
        let gen_c = hex(&format!("{top}/b/usr/bin/cmake -E copy {top}/in.c gen.csh -c echo\\ '$x'"));
        let sub = hex(&format!("{top}/b/subcp {top}/in.c s.c"));
        let every = hex(&format!("{top}/b/sub"));
        format!("# Hashes of file build rules.\n{gen_c} gen.c\n{every} sub/CMakeFiles/every\n{sub} sub/s.c\n")
    }

    fn there(hashes: &str, from: &str, to: &str) -> Option<String> {
        let makefiles = [BuildMake { from: from.as_bytes(), to: to.as_bytes() }];
        rule_hashes_at(hashes.as_bytes(), &makefiles).map(|bytes| String::from_utf8(bytes).expect("not UTF-8"))
    }

    #[test]
    fn hashes_are_those_of_cmake() {
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        let (from, to) = (makefile("/w/a", ""), makefile("/elsewhere/bb", ""));
        assert_eq!(there(&hashes("/w/a"), &from, &to), Some(hashes("/elsewhere/bb")));
        assert_eq!(there(&hashes("/w/a"), &from, &from), Some(hashes("/w/a")));
    }

    #[test]
    fn what_is_refused() {
        let (from, to) = (makefile("/w/a", ""), makefile("/w/bb", ""));
        let of_a = hashes("/w/a");
        // A hash of no rule, lines of another form, an output with an absolute path.
        for text in
            [of_a.replace("gen.c", "/w/a/gen.c"), format!("{of_a}x\n"), of_a.trim_end().to_owned(), hashes("/w/c")]
        {
            assert_eq!(there(&text, &from, &to), None, "{text}");
        }
        // Other rules, and a path that is quoted.
        assert_eq!(there(&of_a, &from, &makefile("/w/bb", "\nx:\n\ttrue\n")), None);
        assert_eq!(there(&of_a, &from, &makefile("/w/b$b", "")), None);
        // Two rules that are equal in one of the places.
        let twice = |command: &str| makefile("/w/a", &format!("\nx:\n\tcd /w/a/b/sub && {command}\n"));
        let same = "cp /w/a/in.c s.c";
        assert_eq!(there(&of_a, &twice(same), &twice("true")), None);
        assert_eq!(there(&of_a, &twice(same), &twice(same)), Some(of_a.clone()));
    }
}
