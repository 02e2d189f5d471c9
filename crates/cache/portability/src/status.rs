//! Finds programs that cannot ask for mtimes, inode numbers and owners of files, because they call
//! no function that returns these.
//!
//! For example, a generator that the build compiled opens its inputs with `fopen`. Its result
//! depends on their contents alone, whatever words the inputs hold.
//!
//! Unaware of: what follows for the result.

use std::collections::{HashMap, HashSet};

use larder_compiler::is_known_program;
use larder_model::path::file_name;
use larder_observe::{RunModel, dynamic_names};

use crate::volatile_ids::{is_still_there, outside_the_system};

/// Functions that return what `stat` does or an inode number, that load code, or that call the
/// kernel by number.
const STATUS: &[&str] = &[
    "__fxstat",
    "__fxstat64",
    "__fxstatat",
    "__fxstatat64",
    "__lxstat",
    "__lxstat64",
    "__xstat",
    "__xstat64",
    "dlmopen",
    "dlopen",
    "dlsym",
    "dlvsym",
    "fstat",
    "fstat64",
    "fstatat",
    "fstatat64",
    "fts64_open",
    "fts64_read",
    "fts_open",
    "fts_read",
    "ftw",
    "ftw64",
    "getdents64",
    "io_uring_setup",
    "lstat",
    "lstat64",
    "name_to_handle_at",
    "nftw",
    "nftw64",
    "readdir",
    "readdir64",
    "readdir64_r",
    "readdir_r",
    "scandir",
    "scandir64",
    "scandirat",
    "scandirat64",
    "stat",
    "stat64",
    "statx",
    "syscall",
];

/// Libraries that call no such function on behalf of a program, except by the functions above or by
/// those of C++'s `std::filesystem`.
const LIBRARIES: &[&str] = &[
    "ld-linux",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
];

/// Returns the file names of programs that are not the system's and cannot ask for the status of a
/// file. If two programs have one file name, this holds for both.
pub(crate) fn programs_without_status(run: &RunModel) -> HashSet<Vec<u8>> {
    let mut known: HashMap<&[u8], bool> = HashMap::new();
    let mut seen = HashSet::new();
    for image in run.images.iter().filter(|image| image.is_program && !is_known_program(file_name(image.path))) {
        if seen.insert((image.path, image.identity.map(|identity| (identity.inode, identity.modified_ns)))) {
            let blind = outside_the_system(image.path) && is_still_there(image) && names_no_status(image.path);
            *known.entry(file_name(image.path)).or_insert(true) &= blind;
        }
    }
    known.into_iter().filter(|(_, blind)| *blind).map(|(name, _)| name.to_vec()).collect()
}

fn names_no_status(program: &[u8]) -> bool {
    dynamic_names(program).is_some_and(|names| {
        let mut names = names.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        names.all(|name| {
            let is_library = name.contains(".so");
            let is_harmless = LIBRARIES.iter().any(|library| name.starts_with(library));
            !STATUS.contains(&&*name) && !name.contains("filesystem") && (!is_library || is_harmless)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(source: &str) -> bool {
        let dir = tempfile::tempdir().expect("a directory");
        let (text, program) = (dir.path().join("x.c"), dir.path().join("x"));
        std::fs::write(&text, source).expect("writes");
        let status = std::process::Command::new("gcc").arg(&text).arg("-o").arg(&program).status().expect("gcc runs");
        assert!(status.success());
        names_no_status(std::os::unix::ffi::OsStrExt::as_bytes(program.as_os_str()))
    }

    #[test]
    fn programs_that_only_read() {
        assert!(compiled("#include <stdio.h>\nint main(void) { return fclose(fopen(\"x\", \"r\")); }\n"));
        assert!(!compiled("#include <sys/stat.h>\nint main(void) { struct stat s; return stat(\"x\", &s); }\n"));
        assert!(!compiled("#include <dlfcn.h>\nint main(void) { return dlopen(\"x\", RTLD_NOW) == 0; }\n"));
        assert!(!names_no_status(b"/nonexistent"));
    }
}
