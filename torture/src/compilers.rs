//! The compilers that cases are run with.

/// A C and a C++ compiler of one vendor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Compilers {
    /// The name of the C compiler.
    pub cc: &'static str,
    /// The name of the C++ compiler.
    pub cxx: &'static str,
}

/// The GNU compilers.
pub const GCC: Compilers = Compilers { cc: "gcc", cxx: "g++" };
/// The LLVM compilers.
pub const CLANG: Compilers = Compilers { cc: "clang", cxx: "clang++" };
