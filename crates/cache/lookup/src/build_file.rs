//! Finds the file that says what a build tool does: a makefile, `build.ninja` or the like. The key
//! of a whole command has its content. Without it, a bare `make -j2` would have the same key in all
//! packages, which then push each other out of one manifest and share what is learned about the
//! programs of the command.
//!
//! Unaware of: what the file says.

use larder_model::path::{absolute, file_name, join};
use larder_sys::FileType;

/// Build tools, and the files that each looks for.
const TOOLS: [(&[u8], &[&[u8]]); 6] = [
    (b"cmake", &[b"CMakeLists.txt"]),
    (b"gmake", &[b"GNUmakefile", b"makefile", b"Makefile"]),
    (b"make", &[b"GNUmakefile", b"makefile", b"Makefile"]),
    (b"meson", &[b"meson.build"]),
    (b"ninja", &[b"build.ninja"]),
    (b"samu", &[b"build.ninja"]),
];

/// Returns the path of the file for a command that runs in `cwd`. It need not be exactly the file
/// that the tool reads, because that is an observation.
pub(crate) fn build_file(argv: &[Vec<u8>], cwd: &[u8]) -> Option<Vec<u8>> {
    let (_, names) = TOOLS.iter().find(|(tool, _)| argv.first().is_some_and(|name| file_name(name) == *tool))?;
    let is_file = |path: &Vec<u8>| larder_sys::stat(path).is_ok_and(|stat| stat.kind == FileType::File);
    let words = argv[1..].iter().map(|word| {
        let attached = [&b"-C"[..], b"-f", b"-S"].iter().find_map(|option| word.strip_prefix(*option));
        attached.filter(|rest| !rest.is_empty()).unwrap_or(word)
    });
    let told = words.filter(|word| !word.starts_with(b"-")).map(|word| absolute(cwd, word));
    told.chain([cwd.to_vec()]).find_map(|path| {
        let inside = names.iter().map(|name| join(&path, name));
        [path.clone()].into_iter().chain(inside).find(is_file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_build_tools() {
        let dir = tempfile::tempdir().expect("a directory");
        let top = dir.path().to_str().expect("is text");
        for name in ["sub", "build"] {
            std::fs::create_dir(format!("{top}/{name}")).expect("makes");
        }
        for name in ["Makefile", "other.mk", "sub/makefile", "build/build.ninja", "CMakeLists.txt"] {
            std::fs::write(format!("{top}/{name}"), "").expect("writes");
        }
        for (line, expect) in [
            ("make -j2", Some("Makefile")),
            ("/usr/bin/make all", Some("Makefile")),
            ("make -C sub", Some("sub/makefile")),
            ("make -Csub all", Some("sub/makefile")),
            ("make -f other.mk", Some("other.mk")),
            ("ninja -C build", Some("build/build.ninja")),
            ("ninja", None),
            ("cmake -S . -B build", Some("./CMakeLists.txt")),
            ("cmake -E copy x y", Some("CMakeLists.txt")),
            ("sh Makefile", None),
        ] {
            let argv: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let found = build_file(&argv, top.as_bytes()).map(|path| String::from_utf8_lossy(&path).into_owned());
            assert_eq!(found, expect.map(|name| format!("{top}/{name}")), "{line}");
        }
    }
}
