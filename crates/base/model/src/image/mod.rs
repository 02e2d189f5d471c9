//! Images: directories that are saved together under a key. `key` has the key, `record` what is
//! stored under it, `packs` where the bytes of the files are, and `trace` which packs earlier jobs
//! touched.

mod key;
mod packs;
mod record;
mod trace;

pub use key::{IMAGE_KEY_BYTES_MAX, ImageKey, NotAKey, listed_prefix};
pub use packs::{BLOCK_BYTES, PACK_BLOCKS_MAX, PIECE_BYTES, Pack, PackList, PieceList};
pub use record::{ImageRecord, SAVED_PATHS_MAX, SavedPath, is_saved_name};
pub use trace::AccessTrace;

/// The version of the formats of images and of the trees that they refer to, which is their first
/// byte. An image of another version is treated as absent.
pub const IMAGE_VERSION: u8 = 1;
