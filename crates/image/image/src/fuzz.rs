//! The decoders of this crate, for the fuzz targets only.

use crate::tree::Tree;

/// Decodes a tree that is not compressed. Returns its bytes when it is encoded again.
pub fn tree(encoded: &[u8]) -> Option<Vec<u8>> {
    Tree::decode(encoded).ok().map(|tree| tree.encode())
}
