//! Tests the layout of the static program, because each hit pays for it by page faults
//! (docs/performance.md). The linker silently ignores a name in the linker script that no longer
//! exists, so only a test can notice it.
#![cfg(target_os = "linux")]

use larder_testkit::larder;
use object::elf::{PT_GNU_RELRO, PT_LOAD, PT_TLS, ProgramHeader64};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection};

/// A page may hold code that a hit does not execute, so the sections are up to three times as large
/// as what is executed: 156 kB by a hit of C, and 331 kB more by a miss (`count hot`, 27 November
/// 2026).
const HOT_BYTES_MAX: u64 = 700 << 10;
const WARM_BYTES_MAX: u64 = 1000 << 10;
const HOT_BYTES_MIN: u64 = 200 << 10;
/// musl has room for so many bytes of thread-local data. For more it maps memory at each start
/// (`builtin_tls` in `src/env/__init_tls.c`: 16 words, of which it needs two).
const MUSL_THREAD_LOCAL_BYTES: u64 = 112;

/// The lists in `hot.ld` are valid for one toolchain only, because the names of standard library
/// functions end in a hash. They also name functions of ours, which may be renamed. The linker
/// ignores a wrong name. The function then lies elsewhere, and each hit pays for its page.
#[test]
fn hot_functions_are_named_as_they_are() {
    let script = include_str!("../src/hot.ld");
    let toolchain = include_str!("../rust-toolchain.toml");
    let value = |text: &str, before: &str| {
        let at = text.find(before).unwrap_or_else(|| panic!("{before} is not there")) + before.len();
        let version = text[at..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>();
        version.trim_end_matches('.').to_owned()
    };
    let (made_for, used) = (value(script, "rustc "), value(toolchain, "channel = \""));
    assert_eq!(made_for, used, "hot.ld is for another toolchain: run `cargo xtask bench link-order`");
    let crates = larder_testkit::workspace().join("crates");
    let groups = ["", "base", "cache", "image"].map(|group| crates.join(group));
    let (mut checked, mut gone) = (0, Vec::new());
    for line in script.lines() {
        let Some(parts) = line.split("*_ZN").nth(1).and_then(parts) else { continue };
        let Some(krate) = parts[0].strip_prefix("larder_") else { continue };
        // A closure counts for the function around it. The name of an `impl` block says little.
        let Some(function) = parts[1..].iter().rev().find(|part| !part.contains("$u7b$")) else { continue };
        let mut sources = groups.iter().map(|group| group.join(krate.replace('_', "-")).join("src"));
        let sources = sources.find(|path| path.is_dir());
        let sources = sources.unwrap_or_else(|| panic!("hot.ld names the crate {krate}: {line}"));
        checked += 1;
        if !is_defined(&sources, &format!("fn {function}")) {
            gone.push(format!("{krate}: {function}"));
        }
    }
    assert!(checked > 100, "hot.ld has only {checked} functions of ours");
    // Derived functions do not appear in the source text.
    gone.retain(|name| !DERIVED.iter().any(|derived| name.ends_with(&format!(": {derived}"))));
    assert!(
        gone.is_empty(),
        "hot.ld names functions that no longer exist, so run `cargo xtask bench link-order`: {gone:#?}"
    );
}

const DERIVED: &[&str] = &["clone", "eq", "default", "fmt", "hash", "cmp", "partial_cmp", "ne"];

/// Returns the parts of a mangled name. Each is preceded by its length.
fn parts(mangled: &str) -> Option<Vec<String>> {
    let (mut rest, mut parts) = (mangled, Vec::new());
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(length) = rest[..digits].parse::<usize>() else { break };
        // The last part is the hash, `17h*`.
        let Some(part) = rest.get(digits..digits + length) else { break };
        parts.push(part.to_owned());
        rest = &rest[digits + length..];
    }
    (parts.len() > 1).then_some(parts)
}

fn is_defined(directory: &std::path::Path, what: &str) -> bool {
    let is_end = |text: &str, at: usize| text[at + what.len()..].starts_with(['(', '<']);
    std::fs::read_dir(directory).expect("can be listed").map(|entry| entry.expect("can be read").path()).any(|path| {
        if path.is_dir() {
            return is_defined(&path, what);
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.match_indices(what).any(|(at, _)| is_end(&text, at))
    })
}

#[test]
fn hot_functions_are_side_by_side_are_side_by_side_and_segments_few() {
    let bytes = std::fs::read(larder()).expect("the program can be read");
    let program = ElfFile64::<Endianness>::parse(&*bytes).expect("is an ELF file");
    if program.section_by_name(".interp").is_some() {
        println!("skipped: this larder is not the static one");
        return;
    }
    let size = |name| program.section_by_name(name).map_or(0, |section| section.size());
    assert!((HOT_BYTES_MIN..HOT_BYTES_MAX).contains(&size(".hot")), ".hot has {} bytes", size(".hot"));
    assert!((HOT_BYTES_MIN..WARM_BYTES_MAX).contains(&size(".warm")), ".warm has {} bytes", size(".warm"));
    assert!(size(".arena") > 1 << 20 && size(".bss") < 64 << 10, ".arena {}, .bss {}", size(".arena"), size(".bss"));
    let count = |kind| program.elf_program_headers().iter().filter(|it| it.p_type(Endianness::Little) == kind).count();
    assert_eq!((count(PT_LOAD), count(PT_GNU_RELRO)), (2, 0));
    let is_thread_local = |it: &&ProgramHeader64<Endianness>| it.p_type(Endianness::Little) == PT_TLS;
    let thread_local = program.elf_program_headers().iter().find(is_thread_local);
    let thread_local = thread_local.map_or(0, |it| it.p_memsz(Endianness::Little));
    assert!(thread_local <= MUSL_THREAD_LOCAL_BYTES, "{thread_local} bytes of thread-local data");
}
