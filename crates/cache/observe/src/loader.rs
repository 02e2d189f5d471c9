//! What the dynamic loader reads before any preloaded library is loaded, derived from its
//! configuration. The objects that it loaded are in the trace itself.
//!
//! Unaware of: which program is loaded.

use larder_model::Looked;

/// Returns what the loader looks at for a program whose `LD_LIBRARY_PATH` is `library_path`: its
/// own files, and the names in each directory of `library_path`. The names matter because a library
/// that appears in one of these directories is found before the library that was loaded. For
/// example, `/etc/ld.so.cache` is one of its own files.
pub fn loader_looks(library_path: Option<&[u8]>, cwd: &[u8]) -> Vec<(Vec<u8>, Looked)> {
    let mut looks = Vec::new();
    for path in [&b"/etc/ld.so.cache"[..], b"/etc/ld.so.preload"] {
        looks.push((path.to_vec(), if_there(path, Looked { content: true, kind: true, ..Looked::default() })));
    }
    let directories = library_path.unwrap_or_default().split(|&b| b == b':' || b == b';').filter(|d| !d.is_empty());
    for directory in directories {
        let directory = if directory[0] == b'/' { directory.to_vec() } else { [cwd, b"/", directory].concat() };
        for subdirectory in [&b""[..], b"/glibc-hwcaps"] {
            let path = [&directory, subdirectory].concat();
            let looked = if_there(&path, Looked { listed: true, kind: true, ..Looked::default() });
            looks.push((path, looked));
        }
    }
    looks
}

fn if_there(path: &[u8], looked: Looked) -> Looked {
    match larder_sys::stat(path) {
        Ok(_) => looked,
        Err(_) => Looked::absent(),
    }
}
