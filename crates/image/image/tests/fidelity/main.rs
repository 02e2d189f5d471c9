//! A saved tree comes back unchanged on every way: restored, mounted by the kernel, and through
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
