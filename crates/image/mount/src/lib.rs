//! Mounts images: turns an image's local files into a directory that can be read and written.
//!
//! | file | holds |
//! |---|---|
//! | `image.rs` | the files that make up an image, and the mapping of file owners |
//! | `backend.rs` | the ways to get an image's tree, and what each of them needs |
//! | `fill.rs` | the trait that fetches bytes of an image which are not local yet |
//! | `error.rs` | what can go wrong, with messages that say what to do |
//! | `handle.rs` | mounts as handles, which unmount when they are dropped |
//! | `layer.rs` | read-only mounts by the kernel: EROFS or squashfs, by file or loop device |
//! | `erofs/` | a reader of EROFS metadata |
//! | `dev_fuse.rs` | opens `/dev/fuse` and mounts a FUSE file system on it |
//! | `fuse.rs` | read-only mounts by an installed FUSE program, such as `squashfuse` |
//! | `overlay.rs` | makes a mount writable by an overlay, and manages its scratch space |
//! | `places/` | larder's own mounts: made, listed, removed, and swept after jobs that died |
//! | `probe/` | which backends work on this machine, tried with a tiny image |
//! | `serve/` | larder's own FUSE server, which fetches bytes when they are read |
//! | `lazy/` | files that can be read before all of their bytes are local |
//! | `confine.rs` | confines a process that parses what a broker mounts |
//! | `broker/` | a privileged process that mounts for jobs without the right to mount |
//!
//! Unaware of: cache keys, records, packs, remotes, how an image is made.
#![forbid(unsafe_code)]
// Only for Linux so far. On other systems larder runs tools without a cache, and needs no images.
#![cfg(target_os = "linux")]

mod backend;
mod error;
mod image;

pub mod broker;
mod confine;
mod dev_fuse;
mod erofs;
mod fill;
mod fuse;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod handle;
mod landlocked;
mod layer;
pub mod lazy;
mod overlay;
mod places;
mod probe;
pub mod serve;

pub use backend::{Backend, Step};
pub use confine::{Confinement, USER as CONFINED_USER, confine};
pub use error::MountError;
pub use fill::Fill;
pub use fuse::{Life, layer as by_fuse, possible as by_fuse_possible};
pub use image::{Image, Owners};

pub use handle::{Mount, Placed};
pub use layer::{HARMLESS, erofs, erofs_by_loop_device, erofs_has_data, owned_by, squashfs};
pub use overlay::{Scratch, overlay};
pub use places::{Ask, Inside, Lease, Listed, Places, Stay};
pub use probe::{choose, ladder};
