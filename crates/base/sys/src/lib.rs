//! The operating system behind one interface. Besides the preloaded library, this is the only crate
//! with unsafe code.
//!
//! `linux/` is the full implementation. `elsewhere/` only has what is needed on other systems to
//! start a tool untouched, in a class.
//!
//! Unaware of: what larder is. Paths are bytes, errors are `std::io::Error` with the system's
//! number.
#![allow(unsafe_code)]

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::run_and_end;

mod arena;
mod class;
mod stat;
pub use arena::Arena;
pub use class::Class;
pub use stat::{FileType, Stat, Trust};
