//! System calls that older kernels lack, each with an older way to the same result.
//!
//! Unaware of: which calls these are.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A system call that this kernel may not have, or that the container's seccomp profile may refuse.
///
/// Once the call was refused and the older way gave a result, this process does not make the call
/// again.
pub(super) struct Newer(AtomicBool);

impl Newer {
    pub(super) const fn new() -> Newer {
        Newer(AtomicBool::new(false))
    }

    /// Returns the result of `call`, or of `older` if the call is refused.
    ///
    /// Kernels refuse unknown calls with ENOSYS, old seccomp profiles with EPERM. EPERM can also be
    /// the real result. Then `older` fails with it, too, and the call does not count as refused.
    #[inline]
    pub(super) fn or<T>(
        &self,
        call: impl FnOnce() -> io::Result<T>,
        older: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        if self.0.load(Relaxed) {
            return older();
        }
        let done = call();
        match &done {
            Err(error) if is_refusal(error) => self.was_refused(older),
            _ => done,
        }
    }

    #[cold]
    fn was_refused<T>(&self, older: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let done = older();
        // If both fail with a refusal, the refusal may be real, so the call is tried again next
        // time.
        if !done.as_ref().is_err_and(is_refusal) {
            self.0.store(true, Relaxed);
        }
        done
    }
}

/// Returns true if this error means that the kernel lacks a system call, or that a seccomp profile
/// refuses it.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_made_once() {
        let refused = Newer::new();
        let mut made = 0;
        for _ in 0..3 {
            let call = || {
                made += 1;
                Err(io::Error::from_raw_os_error(libc::EPERM))
            };
            assert_eq!(refused.or(call, || Ok(7)).expect("the older way gives the result"), 7);
        }
        assert_eq!(made, 1);
        // If the older way is refused as well, the call does not count as refused.
        let honest = Newer::new();
        let refuse = || Err::<(), _>(io::Error::from_raw_os_error(libc::EPERM));
        assert!(honest.or(refuse, refuse).is_err());
        assert!(honest.or(|| Ok(()), || unreachable!("the call was never refused")).is_ok());
    }
}
