//! Compiles the preloaded library, which stands inside the wrapper as bytes. It needs no libc: it takes what it calls
//! from the program that it is loaded into, glibc's or musl's.

use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-fno-asynchronous-unwind-tables",
    "-U_FORTIFY_SOURCE",
    "-Wl,-soname,larder-preload.so",
    "-Wl,-z,noexecstack",
    // Its constructor comes before all others, where libc has an order of them: a sample begins the program anew.
    "-Wl,-z,initfirst",
    // One mapping for text and constants, not three: each process of a tool maps it.
    "-Wl,-z,noseparate-code",
    // And one page for what is written: no part of it is made read-only by a call of its own.
    "-Wl,-z,norelro",
    "-Wl,--build-id=none",
    "-s",
];

fn main() {
    println!("cargo::rerun-if-changed=preload");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("larder-preload.so");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    match compiler().filter(|_| linux) {
        Some(compiler) => compile(&compiler, &out),
        // Only type-checked then; a program without it still has the dependency file's observer.
        None => std::fs::write(&out, []).expect("OUT_DIR can be written"),
    }
}

fn compile(compiler: &Path, out: &Path) {
    let sources = std::fs::read_dir("preload").expect("preload/ is beside build.rs");
    let sources = sources.filter_map(|entry| entry.ok().map(|e| e.path()));
    let sources = sources.filter(|path| path.extension().is_some_and(|e| e == "c"));
    let status = Command::new(compiler).args(FLAGS).arg("-o").arg(out).args(sources).status();
    assert!(status.is_ok_and(|status| status.success()), "{} cannot compile preload/*.c", compiler.display());
}

/// The host's compiler when the target's machine is the host's, whatever libc; else the target's own, where there is
/// one.
fn compiler() -> Option<PathBuf> {
    let (host, target) = (std::env::var("HOST").ok()?, std::env::var("TARGET").ok()?);
    let machine = |triple: &str| triple.split('-').next().map(str::to_owned);
    if machine(&host) == machine(&target) {
        let tool =
            cc::Build::new().cargo_metadata(false).target(&host).host(&host).opt_level(2).try_get_compiler().ok()?;
        return Some(tool.path().to_owned());
    }
    let cross = format!("{}-linux-gnu-gcc", machine(&target)?);
    Command::new(&cross).arg("--version").output().is_ok_and(|o| o.status.success()).then(|| cross.into())
}
