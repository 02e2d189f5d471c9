//! The operating system behind one interface. Besides the preloaded library, this is the only crate
//! with unsafe code.
//!
//! `linux/` is the full implementation. `macos.rs`, `windows.rs` and `elsewhere.rs` only have what
//! is needed to start a tool untouched, in a class, and to copy a file in the cheapest way.
//!
//! Unaware of: what larder is. Paths are bytes, errors are `std::io::Error` with the system's
//! number.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
pub use macos::*;

#[cfg(windows)]
mod windows;
#[cfg(windows)]
pub use windows::*;

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
mod elsewhere;
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
pub use elsewhere::*;

mod arena;
mod class;
mod stat;
// On Linux the kernel copies, so only this module's test is built there.
#[cfg(any(test, not(target_os = "linux")))]
mod pieces;
#[cfg(not(target_os = "linux"))]
mod remove_std;
pub use arena::Arena;
pub use class::Class;
#[cfg(not(target_os = "linux"))]
pub use remove_std::remove_tree;
pub use stat::{FileType, Stat, Trust};
