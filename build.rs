//! Sets linker options for the static wrapper. `src/hot.ld` says why.

/// Options of the static program's linker, for few mappings and few pages.
const ARGUMENTS: &[&str] = &[
    // Text and constants share one mapping.
    "-Wl,-z,noseparate-code",
    // A static program at a fixed address has nothing to make read-only after relocation. RELRO
    // would only cost a page.
    "-Wl,-z,norelro",
];

fn main() {
    println!("cargo::rerun-if-changed=src/hot.ld");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if !is("CARGO_CFG_TARGET_OS", "linux") || !is("CARGO_CFG_TARGET_ENV", "musl") {
        return;
    }
    let script = std::env::current_dir().expect("cargo runs it in the package").join("src/hot.ld");
    for argument in ARGUMENTS {
        println!("cargo::rustc-link-arg-bin=larder={argument}");
    }
    println!("cargo::rustc-link-arg-bin=larder=-Wl,-T,{}", script.display());
}
