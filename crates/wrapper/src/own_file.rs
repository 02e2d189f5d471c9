//! The wrapper's own executable.

/// The path that leads to the running executable.
pub(crate) const OWN_FILE: &str = "/proc/self/exe";

/// Returns the path of the wrapper's executable, or an empty path if it is not known.
pub(crate) fn own_path() -> Vec<u8> {
    larder_sys::link_target(OWN_FILE.as_bytes()).unwrap_or_default()
}
