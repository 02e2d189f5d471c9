//! What the file name of a program says: its family, and how the program treats an output that
//! exists already.
//!
//! Unaware of: where the program is, and what it really is. Only the name is known; the caller may
//! check it.

use larder_model::path::file_name;

use crate::Family;

/// Returns the family of the tool with this file name. Its directory, `.exe`, its version and a
/// target prefix do not matter. For example, `x86_64-linux-gnu-gcc-12` belongs to `Gcc`. Returns
/// `None` if larder does not take the program for a compiler.
pub fn family_of(tool_name: &[u8]) -> Option<Family> {
    let base = base_name(tool_name);
    match base {
        b"gcc" | b"g++" | b"cc" | b"c++" => Some(Family::Gcc),
        b"clang" | b"clang++" => Some(Family::Clang),
        b"rustc" | b"clippy-driver" => Some(Family::Rustc),
        _ if BINUTILS.iter().any(|name| name.as_bytes() == base) => Some(Family::Binutils),
        _ if NOT_COMPILERS.iter().any(|name| name.as_bytes() == base) => None,
        _ if COMPILER_ENDINGS.iter().any(|ending| base.ends_with(ending.as_bytes())) => Some(Family::Generic),
        _ => None,
    }
}

/// The tools of GNU and LLVM, by the names that build tools call. `gcc-ar` and similar ones start
/// them with a plugin.
const BINUTILS: &[&str] = &[
    "ar",
    "as",
    "gas",
    "gcc-ar",
    "gcc-nm",
    "gcc-ranlib",
    "gold",
    "ld",
    "ld.bfd",
    "ld.gold",
    "ld.lld",
    "lld",
    "llvm-ar",
    "llvm-as",
    "llvm-nm",
    "llvm-objcopy",
    "llvm-objdump",
    "llvm-ranlib",
    "llvm-readelf",
    "llvm-strip",
    "nm",
    "objcopy",
    "objdump",
    "ranlib",
    "readelf",
    "rust-lld",
    "size",
    "strings",
    "strip",
];

/// Returns true if a masquerading link of this name stands for a compiler.
pub fn is_masquerade_name(name: &[u8]) -> bool {
    family_of(name).is_some_and(Family::is_gcc_or_clang)
}

/// Returns true if the program with this file name replaces an existing output regardless of what
/// it was. Its stat of the output beforehand is then no observation. Assemblers and linkers unlink
/// the output, clang renames over it.
///
/// There is one exception, seen with GNU as, ld and gold 2.40: an output that exists and is *empty*
/// is not unlinked, so its mode and its other hard links stay. clang replaces that one, too.
pub fn replaces_output(program: &[u8]) -> bool {
    is_listed(program, REPLACE_OUTPUT)
}

const REPLACE_OUTPUT: &[&str] = &[
    "as", "clang", "clang++", "collect2", "gas", "gold", "ld", "ld.bfd", "ld.gold", "ld.lld", "lld", "objcopy",
    "rust-lld", "strip",
];

/// Returns true if the program with this file name is a linker that may write into the existing
/// output. Such a linker closes the output before it is complete, because it writes through a
/// mapping.
///
/// mold 1.10 does this:
/// 1. It renames the old program away.
/// 2. It opens that file for writing, or a new file if there is none or it cannot be opened, and
///    writes into it.
/// 3. It renames the file to the output's path.
///
/// So the program keeps its inode and its other hard links. A shared library is always a new file.
pub fn rewrites_output(program: &[u8]) -> bool {
    is_listed(program, &["ld.mold", "mold"])
}

/// Returns true if the program with this file name is a linker that opens an existing output
/// without reading it, and then unlinks it. This way the blocks are freed later. If the output is
/// an input as well, the linker has opened it for reading before.
pub fn opens_output(program: &[u8]) -> bool {
    rewrites_output(program) || is_listed(program, &["ld.lld", "lld", "rust-lld"])
}

fn is_listed(program: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| name.as_bytes() == base_name(program))
}

/// Returns true if the program with this file name makes its output executable, as far as the umask
/// allows.
pub fn adds_execute(program: &[u8]) -> bool {
    let base = base_name(program);
    replaces_output(program) && (base.starts_with(b"ld") || base == b"gold" || base == b"collect2")
}

/// Returns true if the program with this file name unlinks an existing output before it opens it. A
/// run without an existing output does not show that. clang is not one of them: its renames are
/// visible, and it writes its other outputs in place.
pub fn unlinks_output(program: &[u8]) -> bool {
    replaces_output(program) && !matches!(family_of(program), Some(Family::Clang))
}

/// Programs whose names end like a compiler's but are none of the above: other caches and
/// distributors (two in a row would hide each other's work), drivers of several compilers at once,
/// and unrelated programs.
const NOT_COMPILERS: &[&str] = &[
    "buildcache",
    "byacc",
    "ccache",
    "distcc",
    "gomacc",
    "hipcc",
    "icecc",
    "javacc",
    "kache",
    "larder",
    "nvcc",
    "sccache",
    "yacc",
];

/// Endings of compiler names. `gcc`, `g++` and `clang++` end in one of these, too.
const COMPILER_ENDINGS: &[&str] = &["cc", "c++", "g++", "clang", "clang++"];

/// Prefixes of targets such as `x86_64-linux-gnu`, after which real toolchains are named.
const ARCHITECTURES: &[&str] = &[
    "aarch64",
    "alpha",
    "amd64",
    "arc",
    "arm",
    "avr",
    "bpf",
    "csky",
    "hppa",
    "i386",
    "i486",
    "i586",
    "i686",
    "ia64",
    "loongarch",
    "m68k",
    "microblaze",
    "mips",
    "msp430",
    "nios2",
    "or1k",
    "powerpc",
    "ppc",
    "pru",
    "riscv",
    "rl78",
    "rx",
    "s390",
    "sh4",
    "sparc",
    "thumb",
    "tricore",
    "v850",
    "wasm32",
    "wasm64",
    "x86_64",
    "xtensa",
];

/// Returns the file name of a program without target and version.
pub(crate) fn base_name(program: &[u8]) -> &[u8] {
    without_target(stem(program))
}

/// Returns the file name without `.exe`, without mingw's thread model, and without a version.
fn stem(name: &[u8]) -> &[u8] {
    let file = [".exe", "-posix", "-win32"]
        .iter()
        .fold(file_name(name), |file, suffix| file.strip_suffix(suffix.as_bytes()).unwrap_or(file));
    let end = file.iter().rposition(|c| !c.is_ascii_digit() && *c != b'.').map_or(0, |at| at + 1);
    let stem = &file[..end];
    if end < file.len() { stem.strip_suffix(b"-").unwrap_or(stem) } else { stem }
}

/// Returns what follows a target prefix such as `x86_64-linux-gnu-`, or the whole name if there is
/// none, as in `my-clang`.
fn without_target(stem: &[u8]) -> &[u8] {
    let Some(dash) = stem.iter().rposition(|&c| c == b'-') else { return stem };
    let first = stem.split(|&c| c == b'-').next().unwrap_or(stem);
    let is_target = ARCHITECTURES.iter().any(|architecture| first.starts_with(architecture.as_bytes()));
    if is_target { &stem[dash + 1..] } else { stem }
}

/// Returns true if one of `names` is the file name of the program, or its file name without target
/// and version. The file name itself counts because
/// `lto1` and `m4` end in a digit that is not a version.
pub(crate) fn is_named(program: &[u8], names: &[&str]) -> bool {
    let base = base_name(program);
    names.iter().any(|name| name.as_bytes() == base || name.as_bytes() == file_name(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families() {
        let check = |name: &str, expect| assert_eq!(family_of(name.as_bytes()), expect, "{name}");
        for name in [
            "gcc",
            "g++",
            "cc",
            "c++",
            "/usr/bin/gcc",
            "gcc-12",
            "g++-4.9.2",
            "gcc12",
            "gcc.exe",
            "x86_64-linux-gnu-gcc",
            "x86_64-linux-gnu-g++-12",
            "aarch64-none-elf-gcc",
            "arm-none-eabi-c++",
            "avr-gcc",
            "x86_64-w64-mingw32-gcc-12-posix",
            "i686-w64-mingw32-g++-win32",
            "../bin/cc",
        ] {
            check(name, Some(Family::Gcc));
        }
        for name in ["clang", "clang++", "clang-14", "clang++-14.0.1", "clang15", "x86_64-pc-linux-gnu-clang-19"] {
            check(name, Some(Family::Clang));
        }
        for name in ["ld", "x86_64-linux-gnu-ld.bfd", "ar", "gcc-ar-12", "as", "llvm-strip-14", "/usr/bin/ranlib"] {
            check(name, Some(Family::Binutils));
        }
        for name in ["rustc", "/usr/bin/rustc", "clippy-driver"] {
            check(name, Some(Family::Rustc));
        }
        for name in ["mycc", "icc", "./my-clang", "xyz-c++", "tcc", "mpicc", "musl-gcc", "c99-gcc", "afl-clang++"] {
            check(name, Some(Family::Generic));
        }
        for name in [
            "ccache",
            "sccache",
            "distcc",
            "icecc",
            "kache",
            "larder",
            "nvcc",
            "cpp",
            "clang-cl",
            "clang-cpp",
            "yacc",
            "make",
            "",
            "-",
            "12",
            "/",
            "clang-tidy-14",
            "clang-format",
        ] {
            check(name, None);
        }
    }

    #[test]
    fn masquerade_names() {
        for name in ["gcc", "cc", "clang++-14", "x86_64-linux-gnu-gcc-12"] {
            assert!(is_masquerade_name(name.as_bytes()), "{name}");
        }
        for name in ["larder", "mycc", "ld", "gcc-ranlib"] {
            assert!(!is_masquerade_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn programs_that_replace_their_output() {
        for name in ["as", "x86_64-linux-gnu-as", "ld", "ld.bfd", "x86_64-linux-gnu-ld.gold", "ld.lld-14", "clang-14"] {
            assert!(replaces_output(name.as_bytes()), "{name}");
            assert_eq!(opens_output(name.as_bytes()), name == "ld.lld-14", "{name}");
        }
        for name in ["cc1", "ar", "gcc", "bash", "", "mold"] {
            assert!(!replaces_output(name.as_bytes()), "{name}");
            assert_eq!(rewrites_output(name.as_bytes()), name == "mold", "{name}");
            assert_eq!(opens_output(name.as_bytes()), name == "mold", "{name}");
        }
    }
}
