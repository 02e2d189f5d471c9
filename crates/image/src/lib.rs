//! Images: directories saved under a key, and put back, or made into what can be mounted.
//!
//! | file | holds |
//! |---|---|
//! | `key.rs` | `deps-{{os}}-{{hash package-lock.json}}` → the text of a key |
//! | `tree/` | the names of a directory with all that is known of them, and their bytes |
//! | `save/` | paths → trees and packs in the store, and the record that names them |
//! | `image.rs` | an image of the store, opened |
//! | `restore/` | packs as they come → directories |
//! | `erofs/` | a tree → the metadata of a read-only file system whose data is elsewhere |
//! | `archive/` | tar, zip and squashfs, in and out |
//! | `place.rs` | where something is made before it is whole, and how it gets to its place |
//! | `device.rs` | that elsewhere: packs → ranges of a file |
//! | `find.rs` | exact, fallback or miss |
//! | `squeeze.rs`, `progress.rs`, `error.rs` | compression, how far it is, what can go wrong |
//!
//! Unaware of: remotes, who mounts, what is printed.
#![forbid(unsafe_code)]
// Linux by nature so far: elsewhere tools run untouched, and nothing of this is there.
#![cfg(target_os = "linux")]

mod archive;
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
mod squeeze;
mod threads;
mod tree;

pub use archive::{Exported, Format, Packing, SQUASHED, Unpacked, export, squash, unpack};
pub use device::Device;
pub use erofs::{Whole, metadata, whole};
pub use error::ImageError;
pub use find::{Found, find_here, newest_of};
pub use image::{Image, is_directory, unpack_tree};
pub use key::{Facts, KeyError, expand, files_in};
pub use packs::{Arrived, LocalPacks, Packs};
pub use place::{Aside, is_mounted_on};
pub use progress::{Progress, Step};
pub use restore::{Existing, Left, Target, Unset, restore, sweep};
pub use save::{Request, Rights, Saved, name_of, save};
pub use tree::{Attribute, Extent, Kind, Node, Span, Tree};
