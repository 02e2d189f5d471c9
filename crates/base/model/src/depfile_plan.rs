//! The compiles whose depfile is enough to know all inputs, as the depfile observer needs to know
//! them.
//!
//! Unaware of: which command lines these are (`larder_compiler::depfile_plan`), and how the inputs
//! are worked out (`larder_observe::DepfileObserver`).

impl DepfilePlan {
    /// Macros that expand to the time of the compile, or of the file.
    pub const CLOCKS: [&[u8]; 3] = [b"__DATE__", b"__TIME__", b"__TIMESTAMP__"];
}

/// A compile of one source for which the depfile is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DepfilePlan {
    /// True if the tool is clang, false if it is gcc.
    pub clang: bool,
    /// True if the source is C++, false if it is C.
    pub cxx: bool,
    /// The working directory, as an absolute path.
    pub cwd: Vec<u8>,
    /// The source, as written on the command line.
    pub source: Vec<u8>,
    /// The object file, as written on the command line or as the compiler names it.
    pub object: Vec<u8>,
    /// The depfile, as written on the command line or as the compiler names it.
    pub depfile: Vec<u8>,
    /// The flags that may affect where headers and programs are looked up.
    pub search_flags: Vec<Vec<u8>>,
    /// The directories that are named by `search_flags`.
    pub directories: Vec<Vec<u8>>,
    /// The names after `-include` and `-imacros`.
    pub forced: Vec<Vec<u8>>,
    /// The values of `-D`, as `NAME VALUE`.
    pub definitions: Vec<Vec<u8>>,
}
