//! What the dynamic loader looks at before any preloaded library is there: said by what configures it, until the kernel
//! observer sees it do so. The objects that it found are in the trace.

use larder_model::Looked;

/// The loader's own files, and the directories of `LD_LIBRARY_PATH` with their names: a library that appears in one of
/// them comes before the one that was loaded.
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
    match larder_sys::look_through(path) {
        Ok(_) => looked,
        Err(_) => Looked { absent: true, ..Looked::default() },
    }
}
