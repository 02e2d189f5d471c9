//! A tree that was saved is the same tree again, on every way that it can be had: unpacked, mounted by the kernel, and through
//! archives.

mod archives;
mod faults;
#[cfg(target_os = "linux")]
mod hostile;
mod killed;
mod mounted;
mod rights;
mod tree;
mod unpacked;
