//! Compiles the preloaded library, and the program that it is tried on, with one compiler for one
//! machine. Both the build script and the test that checks the library's undefined symbols include
//! this file, so that both use the same flags.

use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-nostdlib",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-builtin",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-U_FORTIFY_SOURCE",
    "-Wl,-z,noexecstack",
    // An undefined symbol that is not weak fails the build, because it would fail every program at
    // its start.
    "-Wl,-z,defs",
    // The library's constructor comes before all others, if libc has an order of them. This matters
    // because a sample executes the program once more.
    "-Wl,-z,initfirst",
    // One mapping for code and constants instead of three, because each process of a tool maps
    // them.
    "-Wl,-z,noseparate-code",
    // The writable data is one page. No part of it is made read-only by an extra system call.
    "-Wl,-z,norelro",
    "-Wl,--build-id=none",
    "-s",
];

/// Flags for gcc only. Without them gcc replaces the loop in `memcpy` by a call of `memcpy`. clang
/// does not do that with `-fno-builtin`, and does not know the flag.
const FLAGS_OF_GCC: &[&str] = &["-fno-tree-loop-distribute-patterns"];

/// Flags for aarch64 only. By default both compilers turn atomic operations into calls of functions
/// in libgcc ("outline atomics", `__aarch64_ldadd8_relax`), and the library is linked without
/// libgcc.
const FLAGS_OF_AARCH64: &[&str] = &["-mno-outline-atomics"];

/// Compiles `sources/*.c` to the library `out` for `machine`, for example `aarch64`. If that fails,
/// returns the compiler's output. `compiler` is gcc or clang. A gcc must be one that compiles for
/// that machine.
pub(crate) fn compile(compiler: &Path, machine: &str, sources: &Path, out: &Path) -> Result<(), String> {
    let listed = std::fs::read_dir(sources).map_err(|error| format!("cannot list {}: {error}", sources.display()))?;
    let mut files: Vec<_> = listed.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    // The order must not depend on the file system, so that the library does not either.
    files.sort();
    link(compiler, machine, &[FLAGS, &["-shared", "-Wl,-soname,larder-preload.so"]].concat(), &files, out)
}

/// The path of the loader that the self-test is linked with. It leaves room for the path of the
/// loader that is tried.
#[allow(dead_code, reason = "the test of the library makes no self-test")]
pub(crate) const LOADER_ROOM: &str = concat!(
    "/larder/loader/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
);

/// Compiles the self-test in `sources` to the program `out`. Before that, compiles a library that
/// stands for libc into the same directory.
#[allow(dead_code, reason = "the test of the library makes no self-test")]
pub(crate) fn compile_self_test(compiler: &Path, machine: &str, sources: &Path, out: &Path) -> Result<(), String> {
    let libc = out.with_file_name("self-test-libc.so");
    let named = [FLAGS, &["-shared", "-fvisibility=default", "-Wl,-soname,libc.so.6"]].concat();
    link(compiler, machine, &named, &[sources.join("libc.c")], &libc)?;
    let loader = format!("-Wl,--dynamic-linker={LOADER_ROOM}");
    // Without this flag, the linker leaves out a library of which no symbol is used.
    let program = [FLAGS, &["-pie", "-fPIE", "-Wl,--no-as-needed", &loader]].concat();
    link(compiler, machine, &program, &[sources.join("selftest.c"), libc], out)
}

fn link(compiler: &Path, machine: &str, flags: &[&str], files: &[PathBuf], out: &Path) -> Result<(), String> {
    let mut command = Command::new(compiler);
    command.args(flags);
    match is_clang(compiler)? {
        true if machine != std::env::consts::ARCH => drop(command.arg(format!("--target={machine}-linux-gnu"))),
        true => {}
        false => drop(command.args(FLAGS_OF_GCC)),
    }
    if machine == "aarch64" {
        command.args(FLAGS_OF_AARCH64);
    }
    let output = command.arg("-o").arg(out).args(files).output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", compiler.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Returns true if `compiler` is clang, whatever its name is. Returns an error if it cannot be
/// started.
fn is_clang(compiler: &Path) -> Result<bool, String> {
    let output = Command::new(compiler).arg("--version").output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", compiler.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).contains("clang"))
}
