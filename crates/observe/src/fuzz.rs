//! The decoders of this crate, for the fuzz targets only.

/// The prerequisites in a depfile.
pub fn depfile(content: &[u8]) -> Option<Vec<Vec<u8>>> {
    crate::depfile::fuzz::prerequisites(content)
}

/// Reads a text as one of the user's and as one of the system's.
pub fn scan(text: &[u8]) {
    crate::depfile::fuzz::scan(text);
}

/// How many bytes of a log are whole events.
pub fn log(log: &[u8]) -> usize {
    crate::preload::whole_bytes(log)
}
