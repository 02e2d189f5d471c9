//! Images: a directory, or several, kept under a key. `key.rs` says what such a key is, `record.rs` what lies under it,
//! `packs.rs` where the bytes of its files are, `trace.rs` which of them earlier jobs touched.

mod key;
mod packs;
mod record;
mod trace;

pub use key::{IMAGE_KEY_BYTES_MAX, ImageKey, NotAKey, listed_prefix};
pub use packs::{BLOCK_BYTES, PACK_BLOCKS_MAX, PIECE_BYTES, Pack, PackList, PieceList};
pub use record::{ImageRecord, SAVED_PATHS_MAX, SavedPath, is_saved_name};
pub use trace::AccessTrace;

/// The version of these formats, and of the trees that they name: their first byte. Another one is an image that is not
/// there.
pub const IMAGE_VERSION: u8 = 1;
