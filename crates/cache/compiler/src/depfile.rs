//! The paths that a compiler chooses for its outputs if the command line does not name them.
//!
//! Unaware of: flags, and whether an output is requested at all.

use larder_model::path::{ending, file_name};

/// Returns the depfile of `-MD` and `-MMD` without `-MF`: next to the output of `-o`, otherwise in
/// the working directory and named after the source. gcc and clang agree.
pub(crate) fn default_depfile(source: &[u8], output: Option<&[u8]>) -> Vec<u8> {
    match output {
        Some(output) => with_ending(output, b".d"),
        None => with_ending(file_name(source), b".d"),
    }
}

/// Returns the output of `-c` without `-o`, which is in the working directory.
pub(crate) fn default_output(source: &[u8], ending: &[u8]) -> Vec<u8> {
    with_ending(file_name(source), ending)
}

/// Returns the path with another ending.
fn with_ending(path: &[u8], new: &[u8]) -> Vec<u8> {
    [&path[..path.len() - ending(path).len()], new].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depfiles() {
        let check = |source: &str, output: Option<&str>, expect: &str| {
            let name = default_depfile(source.as_bytes(), output.map(str::as_bytes));
            assert_eq!(String::from_utf8_lossy(&name), expect, "{source} {output:?}");
        };
        // These are the names that gcc 12 and clang 14 chose.
        check("x.c", None, "x.d");
        check("src/x.c", None, "x.d");
        check("x.c", Some("o/y.o"), "o/y.d");
        check("x.c", Some("o/y.a.o"), "o/y.a.d");
        check("x.c", Some("y"), "y.d");
        check("x.c", Some("o.d/y"), "o.d/y.d");
        check("x.c", Some(".y"), ".d");
        check("x.c", Some("o/.y"), "o/.d");
    }

    #[test]
    fn outputs() {
        assert_eq!(default_output(b"a/x.y.c", b".o"), b"x.y.o");
        assert_eq!(default_output(b"a.b/x", b".o"), b"x.o");
        assert_eq!(default_output(b"x.c", b".bc"), b"x.bc");
    }
}
