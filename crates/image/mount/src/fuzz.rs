//! The decoders of this crate, for the fuzz targets only.

/// Decodes a request or a reply of the broker, without its length. Returns its bytes when it is encoded again.
pub fn broker_message(bytes: &[u8]) -> Option<Vec<u8>> {
    crate::broker::again(bytes)
}
