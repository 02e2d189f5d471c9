//! A tree that was saved is the same tree again, on every way that it can be had: unpacked, and mounted by the kernel.

mod faults;
mod mounted;
mod tree;
mod unpacked;
