//! The command lines that the depfile observer can prove, as the caller describes them.
//!
//! Unaware of: how anything is proved.

/// A command line for which the caller knows that the depfile is enough.
#[derive(Clone, Debug, Default)]
pub struct DepfilePlan {
    /// True if the tool is clang, false if it is gcc.
    pub clang: bool,
    /// True if the source is C++, false if it is C.
    pub cxx: bool,
    /// The working directory, as an absolute path.
    pub cwd: Vec<u8>,
    /// The path of the source, as on the command line.
    pub source: Vec<u8>,
    /// The path of the object file, as on the command line.
    pub object: Vec<u8>,
    /// The path of the depfile, as on the command line.
    pub depfile: Vec<u8>,
    /// The flags that may affect where headers and programs are looked up.
    pub search_flags: Vec<Vec<u8>>,
    /// The directories that are named by `search_flags`.
    pub directories: Vec<Vec<u8>>,
    /// The names after `-include` and `-imacros`.
    pub forced: Vec<Vec<u8>>,
    /// The values of `-D`, for example `NAME=1`.
    pub definitions: Vec<Vec<u8>>,
}
