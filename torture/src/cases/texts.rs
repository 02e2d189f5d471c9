//! The sources and headers that many cases use.

/// A source that returns the value of a header.
pub(crate) const X_C: &str = "#include \"h.h\"\nint f(void){return H;}\n";
/// A source that finds the header only on the search path.
pub(crate) const ANGLE_C: &str = "#include <h.h>\nint f(void){return H;}\n";
pub(crate) const H1: &str = "#define H 1\n";
pub(crate) const H2: &str = "#define H 2\n";
pub(crate) const H3: &str = "#define H 3\n";
/// A source with a warning under `-Wall`.
pub(crate) const WARNS_C: &str = "#include \"h.h\"\nint f(void){int unused; return H;}\n";
/// A whole program.
pub(crate) const MAIN_C: &str = "int main(void){return 0;}\n";
