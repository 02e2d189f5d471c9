//! Compiles the preloaded library and its self-test. The wrapper contains both as bytes. The
//! library is not linked with a libc: it calls the functions of the program that it is loaded into,
//! which may be glibc's or musl's.

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

#[path = "preload/compile.rs"]
mod compile;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-changed=selftest");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (library, self_test) = (out.join("larder-preload.so"), out.join("self-test"));
    // `src/preload/self_test.rs` replaces this path in the self-test by the path of a loader.
    println!("cargo::rustc-env=LARDER_LOADER_ROOM={}", compile::LOADER_ROOM);
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os != "linux") {
        // larder is only type-checked for other systems. Nothing is preloaded there.
        return [library, self_test].iter().for_each(|file| std::fs::write(file, []).expect("OUT_DIR can be written"));
    }
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let machine = target.split('-').next().unwrap_or_default();
    let compiler = compiler(&target, machine);
    // Fail rather than embed an empty library: a wrapper without its observer would look like any
    // other.
    let compiled = compile::compile(&compiler, machine, Path::new("preload"), &library)
        .and_then(|()| compile::compile_self_test(&compiler, machine, Path::new("selftest"), &self_test));
    if let Err(error) = compiled {
        panic!(
            "the preloaded library cannot be compiled for {target}: {error}\nIt needs a C compiler for {machine}. \
             `cargo xtask setup` installs one (Debian's package for aarch64 is gcc-aarch64-linux-gnu); another one can \
             be named by the variable CC_{}.",
            target.replace('-', "_")
        );
    }
    // The hash identifies this build of both files, so that the stored outcome of another build's
    // self-test is not used.
    let mut hash = DefaultHasher::new();
    [library, self_test].iter().for_each(|file| std::fs::read(file).expect("it was compiled").hash(&mut hash));
    println!("cargo::rustc-env=LARDER_LIBRARY_ID={:016x}", hash.finish());
}

/// Returns the C compiler for the target. If the target's machine is the host's, this is the host's
/// compiler, whatever the libc. Otherwise it is the compiler that `CC_<target>` names
/// (`.cargo/config.toml` sets it for aarch64), or else the one with GNU's name for that machine,
/// for example `aarch64-linux-gnu-gcc`.
fn compiler(target: &str, machine: &str) -> PathBuf {
    let host = env::var("HOST").expect("cargo sets HOST");
    if host.split('-').next() == Some(machine) {
        let mut build = cc::Build::new();
        build.cargo_metadata(false).target(&host).host(&host).opt_level(2);
        return build.try_get_compiler().map_or_else(|_| "cc".into(), |tool| tool.path().to_owned());
    }
    let variable = format!("CC_{}", target.replace('-', "_"));
    println!("cargo::rerun-if-env-changed={variable}");
    env::var_os(variable).map_or_else(|| format!("{machine}-linux-gnu-gcc").into(), PathBuf::from)
}
