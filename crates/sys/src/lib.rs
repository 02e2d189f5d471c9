//! The operating system, behind one interface. The only crate with unsafe code, besides the preloaded library.
//!
//! `linux/` is the real thing; `elsewhere.rs` is what other platforms have so far: enough to start a tool untouched.
//! Unaware of: what larder is. Paths are bytes, errors are `std::io::Error` with the system's number.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::*;

mod arena;
mod look;
pub use arena::Arena;
pub use look::{Kind, Look, Trust};
