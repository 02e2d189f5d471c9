//! Images: directories saved under a key, and restored later, or converted into what can be
//! mounted.
//!
//! An image's files are cut into pieces, and pieces are collected in packs, which are compressed
//! blobs. A tree holds the names and metadata of a saved path, and says which piece is where. The
//! uncompressed packs one after the other are the image's device; trees refer to its blocks.
//!
//! | file | holds |
//! |---|---|
//! | `key.rs` | expands key templates like `deps-{{os}}-{{hash package-lock.json}}` |
//! | `tree/` | the names and metadata of a directory, and their encoding |
//! | `save/` | paths → trees and packs in the store, and the record that names them |
//! | `image.rs` | opening an image of the store |
//! | `restore/` | packs → directories |
//! | `packs.rs` | where packs come from |
//! | `erofs/` | a tree → the metadata of a read-only file system, whose data is the device |
//! | `archive/` | tar, zip and squashfs, in and out |
//! | `place.rs` | making something under a temporary name and moving it into place |
//! | `sweep.rs` | finishing or undoing what a killed command had begun |
//! | `device.rs` | writing packs to the file that stands for the device |
//! | `find.rs` | finding the image for a key: exact, fallback or miss |
//! | `compress.rs`, `threads.rs` | compression; work on all processors |
//! | `progress.rs`, `error.rs` | progress for display; errors |
//!
//! Unaware of: remotes, mounting, what is printed.
#![forbid(unsafe_code)]
// Only for Linux so far. On other systems larder runs tools without a cache, and needs no images.
#![cfg(target_os = "linux")]

mod archive;
mod compress;
mod device;
mod erofs;
mod error;
mod find;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod image;
mod key;
mod packs;
mod place;
mod progress;
mod restore;
mod save;
mod sweep;
mod threads;
mod tree;

pub use archive::{Exported, Format, Packing, SQUASHED, Unpacked, can_squash, export, squash, unpack};
pub use device::Device;
pub use erofs::{Whole, metadata, whole};
pub use error::ImageError;
pub use find::{FoundImage, find_here, newest_of};
pub use image::{Image, is_directory, memory_of_trees, unpack_tree};
pub use key::{Facts, KeyError, expand, files_in};
pub use packs::{Arrived, LocalPacks, Packs};
pub use place::{Aside, is_mounted_on};
pub use progress::{Progress, Step};
pub use restore::{Existing, Left, Target, Unset, restore, sweep};
pub use save::{Request, Rights, Saved, name_of, save};
pub use tree::{Attribute, Extent, Node, NodeKind, Span, Tree};
