//! Mounting images: local files become a directory that can be used, and written to.
//!
//! | file | holds |
//! |---|---|
//! | `image.rs` | which files make an image, and whom its files belong to |
//! | `rung.rs` | the ladder: each way to have an image's tree, and what it needs |
//! | `fill.rs` | where bytes come from that are not there yet |
//! | `error.rs` | what can go wrong, and what to do then |
//! | `handle.rs` | mounts as handles: made, placed, taken away when dropped |
//! | `layer.rs` | an image as a mount that cannot be written to: EROFS, squashfs, by file or loop device |
//! | `erofs.rs` | the metadata of an EROFS image, read |
//! | `dev_fuse.rs` | the device by which a process answers for a FUSE file system |
//! | `fuse.rs` | the same by a program, where `/dev/fuse` may be opened |
//! | `overlay.rs` | what makes it writable, and where what is written goes |
//! | `places/` | what is mounted by us: asked for, listed, taken away, swept after jobs that died |
//! | `probe/` | which rungs there are here, found by trying each on a tiny image |
//! | `serve/` | an image answered for by a FUSE server of our own, its bytes fetched when they are read |
//! | `lazy/` | reading files before they have arrived |
//! | `broker/` | mounting for those who may not |
//!
//! Unaware of: keys, records, packs, remotes, how an image is made.
#![forbid(unsafe_code)]

mod error;
mod image;
mod rung;

#[cfg(target_os = "linux")]
pub mod broker;
#[cfg(target_os = "linux")]
mod dev_fuse;
#[cfg(target_os = "linux")]
mod erofs;
#[cfg(target_os = "linux")]
mod fill;
#[cfg(target_os = "linux")]
mod fuse;
#[cfg(all(target_os = "linux", feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(target_os = "linux")]
mod handle;
#[cfg(target_os = "linux")]
mod layer;
#[cfg(target_os = "linux")]
pub mod lazy;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod places;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
pub mod serve;

pub use error::MountError;
#[cfg(target_os = "linux")]
pub use fill::Fill;
#[cfg(target_os = "linux")]
pub use fuse::{Life, layer as by_fuse, possible as by_fuse_possible};
pub use image::{Image, Owners};
pub use rung::{Rung, Step};

#[cfg(target_os = "linux")]
pub use handle::{Mount, Placed};
#[cfg(target_os = "linux")]
pub use layer::{erofs, erofs_by_loop_device, erofs_has_data, owned_by, squashfs};
#[cfg(target_os = "linux")]
pub use overlay::{Scratch, overlay};
#[cfg(target_os = "linux")]
pub use places::{Ask, Inside, Lease, Listed, Places, Stay};
#[cfg(target_os = "linux")]
pub use probe::{choose, ladder};
