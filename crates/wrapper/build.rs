//! How the static wrapper is laid out: `hot.ld` says why.

/// For the linker of the static program: few mappings and few pages.
const ARGUMENTS: &[&str] = &[
    // One mapping for text and constants, not three.
    "-Wl,-z,noseparate-code",
    // Of a program that is not relocated nothing is made read-only at the start; asking for it only costs a page.
    "-Wl,-z,norelro",
];

fn main() {
    println!("cargo::rerun-if-changed=hot.ld");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "musl") {
        return;
    }
    let script = std::env::current_dir().expect("cargo runs it in the package").join("hot.ld");
    for argument in ARGUMENTS {
        println!("cargo::rustc-link-arg-bin=larder={argument}");
    }
    println!("cargo::rustc-link-arg-bin=larder=-Wl,-T,{}", script.display());
}
