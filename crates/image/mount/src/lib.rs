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

mod backend;
mod error;
mod image;

#[cfg(target_os = "linux")]
pub mod broker;
#[cfg(target_os = "linux")]
mod confine;
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
mod landlocked;
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

pub use backend::{Backend, Step};
#[cfg(target_os = "linux")]
pub use confine::{Confinement, USER as CONFINED_USER, confine};
pub use error::MountError;
#[cfg(target_os = "linux")]
pub use fill::Fill;
#[cfg(target_os = "linux")]
pub use fuse::{Life, layer as by_fuse, possible as by_fuse_possible};
pub use image::{Image, Owners};

#[cfg(target_os = "linux")]
pub use handle::{Mount, Placed};
#[cfg(target_os = "linux")]
pub use layer::{HARMLESS, erofs, erofs_by_loop_device, erofs_has_data, owned_by, squashfs};
#[cfg(target_os = "linux")]
pub use overlay::{Scratch, overlay};
#[cfg(target_os = "linux")]
pub use places::{Ask, Inside, Lease, Listed, Places, Stay};
#[cfg(target_os = "linux")]
pub use probe::{choose, ladder};
