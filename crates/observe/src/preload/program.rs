//! Whether a program can be observed by a preloaded library: it must be dynamically linked, for this machine, without
//! special rights, and without a sanitizer, which insists on being loaded first. A script is judged by its interpreter.
//! The library judges in the same way what the tool executes (`preload/elf.c`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::elf::{DT_STRSZ, DT_STRTAB, FileHeader64, PT_DYNAMIC, PT_INTERP, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, ReadCache, ReadRef};

/// What can be done with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// It can be preloaded into.
    Dynamic,
    /// It cannot.
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

/// Judge the program at `path`, and whether it is a script.
pub fn judge(path: &[u8]) -> (Program, bool) {
    judge_at(path, 0).map_or((Program::NotPreloadable, false), |verdict| verdict)
}

fn judge_at(path: &[u8], depth: usize) -> Option<(Program, bool)> {
    let mut file = File::open(Path::new(OsStr::from_bytes(path))).ok()?;
    let look = larder_sys::file_look(&file).ok()?;
    let mut head = [0; 256];
    let count = file.read(&mut head).ok()?;
    if let Some(line) = head[..count].strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next()?;
        let interpreter = line.split(|b| b" \t".contains(b)).find(|word| !word.is_empty())?;
        if depth >= INTERPRETERS_MAX {
            return None;
        }
        let verdict = judge_at(interpreter, depth + 1)?;
        return Some((verdict.0, true));
    }
    let special = look.mode & 0o6000 != 0;
    let dynamic = !special && is_plain_dynamic(&file).unwrap_or(false);
    Some((if dynamic { Program::Dynamic } else { Program::NotPreloadable }, false))
}

fn is_plain_dynamic(file: &File) -> Option<bool> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != MACHINE {
        return Some(false);
    }
    let segments = header.program_headers(endian, &cache).ok()?;
    if !segments.iter().any(|s| s.p_type(endian) == PT_INTERP) {
        return Some(false);
    }
    let dynamic = segments.iter().find(|s| s.p_type(endian) == PT_DYNAMIC)?;
    let entries = dynamic.dynamic(endian, &cache).ok()??;
    let value = |tag: u32| entries.iter().find(|d| d.tag32(endian) == Some(tag)).map(|d| d.d_val(endian));
    let (address, size) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let load = segments.iter().find(|s| {
        s.p_type(endian) == PT_LOAD && (s.p_vaddr(endian)..s.p_vaddr(endian) + s.p_filesz(endian)).contains(&address)
    })?;
    let names = (&cache).read_bytes_at(load.p_offset(endian) + (address - load.p_vaddr(endian)), size).ok()?;
    Some(!SANITIZERS.iter().any(|sanitizer| memchr::memmem::find(names, sanitizer).is_some()))
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = object::elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = object::elf::EM_AARCH64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_machine() {
        let check = |path: &str, expect| assert_eq!(judge(path.as_bytes()), expect, "{path}");
        check("/bin/sh", (Program::Dynamic, false));
        check("/nonexistent", (Program::NotPreloadable, false));
        check("/etc/passwd", (Program::NotPreloadable, false));
        let dir = std::env::temp_dir().join(format!("larder-judge-{}", std::process::id()));
        std::fs::write(&dir, "#! /bin/sh -e\n").expect("writes");
        check(dir.to_str().expect("is text"), (Program::Dynamic, true));
        std::fs::remove_file(dir).expect("removes");
    }
}
