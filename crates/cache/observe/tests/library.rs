//! Checks what the preloaded library, as a file, needs from the program that it is loaded into.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use larder_testkit::probe_skip;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};

#[path = "../preload/compile.rs"]
mod compile;

const X86_64: (&str, u16) = ("x86_64", elf::EM_X86_64);
const AARCH64: (&str, u16) = ("aarch64", elf::EM_AARCH64);

fn has(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns the library as `compiler` compiles it for `machine`.
fn library(compiler: &str, machine: &str) -> Vec<u8> {
    let name = format!("larder-library-{compiler}-{machine}-{}.so", std::process::id());
    let file = std::env::temp_dir().join(name);
    let compiled = compile::compile(Path::new(compiler), machine, &sources(), &file);
    assert_eq!(compiled, Ok(()), "{compiler} for {machine}");
    let bytes = std::fs::read(&file).expect("the compiler wrote it");
    std::fs::remove_file(&file).expect("removable");
    bytes
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("preload")
}

/// Checks that all undefined symbols of the library are weak. A program that lacks a strong one
/// does not start.
fn check(compiler: &str, (machine, number): (&str, u16)) {
    let bytes = library(compiler, machine);
    let bytes = &bytes[..];
    let header = elf::FileHeader64::<Endianness>::parse(bytes).expect("is ELF");
    let endian = header.endian().expect("is known");
    assert_eq!(header.e_machine(endian), number);
    let symbols = header.sections(endian, bytes).and_then(|sections| sections.symbols(endian, bytes, elf::SHT_DYNSYM));
    let symbols = symbols.expect("has dynamic symbols");
    let (mut strong, mut weak, mut defined) = (Vec::new(), Vec::new(), Vec::new());
    for symbol in symbols.iter() {
        let name = symbol.name(endian, symbols.strings()).expect("has a name");
        let list = match symbol.is_undefined(endian) {
            _ if name.is_empty() => continue,
            true if symbol.st_bind() == elf::STB_WEAK => &mut weak,
            true => &mut strong,
            false => &mut defined,
        };
        list.push(String::from_utf8_lossy(name));
    }
    assert_eq!(strong, [""; 0], "undefined in the library that {compiler} makes for {machine}");
    // Check that both lists were read correctly: the library takes the address of errno from libc,
    // and has its own `open`.
    assert!(weak.iter().any(|name| name == "__errno_location"), "{weak:?}");
    assert!(defined.iter().any(|name| name == "open"), "{} symbols", defined.len());
}

#[test]
fn gcc_leaves_nothing_but_weak_symbols_undefined() {
    probe_skip!(has("gcc"), "gcc is not installed");
    check("gcc", if cfg!(target_arch = "x86_64") { X86_64 } else { AARCH64 });
}

#[test]
fn clang_leaves_nothing_but_weak_symbols_undefined() {
    probe_skip!(has("clang"), "clang is not installed");
    check("clang", if cfg!(target_arch = "x86_64") { X86_64 } else { AARCH64 });
}

#[test]
fn gcc_for_aarch64_leaves_nothing_but_weak_symbols_undefined() {
    probe_skip!(has("aarch64-linux-gnu-gcc"), "aarch64-linux-gnu-gcc is not installed");
    check("aarch64-linux-gnu-gcc", AARCH64);
}

#[test]
fn clang_for_aarch64_leaves_nothing_but_weak_symbols_undefined() {
    probe_skip!(has("clang"), "clang is not installed");
    // clang uses the linker and the headers of that compiler.
    probe_skip!(has("aarch64-linux-gnu-gcc"), "aarch64-linux-gnu-gcc is not installed");
    check("clang", AARCH64);
}

#[test]
fn what_does_not_compile_is_an_error_that_says_why() {
    let file = std::env::temp_dir().join(format!("larder-library-none-{}.so", std::process::id()));
    let error =
        compile::compile(Path::new("larder-no-such-compiler"), "aarch64", &sources(), &file).expect_err("fails");
    assert!(error.contains("larder-no-such-compiler"), "{error}");
    assert!(!file.exists(), "no library is left in its place");
}

/// Runs compilers, shells, scripts and programs of other kinds under the library, in each of them what it does must be what
/// it does alone, and what the library saw must be what `strace` saw.
fn watches(how: &[&str]) {
    let programs = ["python3", "gcc", "g++", "clang", "strace", "make", "perl"];
    let missing: Vec<&str> = programs.into_iter().filter(|program| !has(program)).collect();
    probe_skip!(missing.is_empty(), "not installed: {missing:?}");
    let mut command = Command::new("python3");
    command.arg(sources().join("check.py")).args(how).current_dir(std::env::temp_dir());
    let output = command.output().expect("starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.matches("\nok ").count() > 25, "{said}");
}

#[test]
fn programs_do_the_same_under_the_library() {
    watches(&[]);
}

/// With AddressSanitizer and UndefinedBehaviorSanitizer in the library, on the library's own code.
#[test]
fn the_library_has_no_memory_errors_and_no_undefined_behaviour() {
    probe_skip!(cfg!(target_arch = "x86_64"), "the sanitizers' limits are known for x86-64 only");
    watches(&["--sanitize"]);
}
