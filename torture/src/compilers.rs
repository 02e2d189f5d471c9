//! The compilers that cases are run with.

/// A pair of compilers that a case is run with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Compilers {
    /// For C.
    pub cc: &'static str,
    /// For C++.
    pub cxx: &'static str,
}

/// GNU's.
pub const GCC: Compilers = Compilers { cc: "gcc", cxx: "g++" };
/// LLVM's.
pub const CLANG: Compilers = Compilers { cc: "clang", cxx: "clang++" };
