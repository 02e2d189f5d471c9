//! Tells threads apart.
//!
//! Unaware of: what a thread does.

/// Returns the address of a variable of the calling thread: that of `errno`. One of our own would
/// be one word too many for musl, which maps memory at each start for more than
/// `MUSL_THREAD_LOCAL_BYTES` (`tests/layout.rs`).
#[inline]
pub(crate) fn thread_local_address() -> usize {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::__errno_location() as usize }
}
