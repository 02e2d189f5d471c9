//! The decoders of this crate, made public for the fuzz targets only.

/// Returns the prerequisites in a depfile, or `None` if it cannot be parsed.
pub fn depfile(content: &[u8]) -> Option<Vec<Vec<u8>>> {
    crate::depfile::fuzz::prerequisites(content)
}

/// Scans a text both as a user's source file and as a system header.
pub fn scan(text: &[u8]) {
    crate::depfile::fuzz::scan(text);
}

/// Returns how many bytes at the start of a log are whole events.
pub fn log(log: &[u8]) -> usize {
    crate::encoding::whole_bytes(log)
}
