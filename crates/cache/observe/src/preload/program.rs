//! Tells whether the preloaded library can be loaded into a program. The program must be
//! dynamically linked, for this machine, without special rights, and without a sanitizer, because
//! sanitizers must be loaded first. For a script, its interpreter counts.
//!
//! The library inspects the programs that the tool executes in the same way (`preload/elf.c`).
//!
//! Unaware of: whether the loader accepts the library.
use std::fs::File;
use std::io::Read;

use larder_model::contains_any;
use larder_sys::Opening;
use object::ReadCache;

use crate::elf::Segments;

/// The answer whether a library can be preloaded into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// The library can be preloaded.
    Dynamic {
        /// The path of the program's dynamic loader.
        loader: Vec<u8>,
    },
    /// The library cannot be preloaded.
    NotPreloadable,
}

const INTERPRETERS_MAX: usize = 4;
const SANITIZERS: [&[u8]; 8] = [
    b"libasan.so",
    b"liblsan.so",
    b"libtsan.so",
    b"libhwasan.so",
    b"libclang_rt.",
    b"__asan_init",
    b"__tsan_init",
    b"__msan_init",
];

/// Tells whether the library can be preloaded into the program at `path`. The second value is true
/// if it is a script.
pub fn inspect_program(path: &[u8]) -> (Program, bool) {
    inspect_at(path, 0).map_or((Program::NotPreloadable, false), |verdict| verdict)
}

/// Returns the names by which a dynamically linked program refers to functions and libraries. They
/// are separated by NUL bytes.
pub fn dynamic_names(path: &[u8]) -> Option<Vec<u8>> {
    let file = larder_sys::open(path, Opening::Read).ok()?;
    let cache = ReadCache::new(&file);
    let segments = Segments::parse(&cache)?;
    segments.loader()?;
    segments.dynamic_names().map(<[u8]>::to_vec)
}

fn inspect_at(path: &[u8], depth: usize) -> Option<(Program, bool)> {
    let mut file = larder_sys::open(path, Opening::Read).ok()?;
    let stat = larder_sys::fstat(&file).ok()?;
    let mut head = [0; 256];
    let count = file.read(&mut head).ok()?;
    if let Some(line) = head[..count].strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next()?;
        let interpreter = line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty())?;
        if depth >= INTERPRETERS_MAX {
            return None;
        }
        let verdict = inspect_at(interpreter, depth + 1)?;
        return Some((verdict.0, true));
    }
    let special = stat.mode & 0o6000 != 0;
    let loader = if special { None } else { loader_of_plain(&file) };
    Some((loader.map_or(Program::NotPreloadable, |loader| Program::Dynamic { loader }), false))
}

/// Returns the loader of a program that is for this machine and has no sanitizer, and otherwise
/// `None`.
fn loader_of_plain(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let segments = Segments::parse(&cache)?;
    let loader = segments.loader()?;
    let names = segments.dynamic_names()?;
    let is_sanitized = contains_any(names, &SANITIZERS);
    (!is_sanitized).then(|| loader.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn programs_of_this_machine() {
        let (Program::Dynamic { loader }, false) = inspect_program(b"/bin/sh") else {
            panic!("/bin/sh is dynamically linked")
        };
        assert!(loader.starts_with(b"/lib"), "{}", String::from_utf8_lossy(&loader));
        assert_eq!(inspect_program(b"/nonexistent"), (Program::NotPreloadable, false));
        assert_eq!(inspect_program(b"/etc/passwd"), (Program::NotPreloadable, false));
        let script = std::env::temp_dir().join(format!("larder-judge-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\n").expect("writes");
        assert_eq!(inspect_program(script.as_os_str().as_bytes()), (Program::Dynamic { loader }, true));
        std::fs::remove_file(script).expect("removes");
    }
}
