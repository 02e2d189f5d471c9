//! Running work in several threads.
//!
//! Unaware of: what the work is.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use crate::ImageError;

/// The most threads. With more of them the disk and locks in the kernel are the limit.
const THREADS_MAX: usize = 8;

/// Returns how many threads to use on this machine.
pub(crate) fn count() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Calls `work` for each number below `jobs`, in several threads. Each thread passes the value that
/// `begin` returned for it. Numbers are given out in order. The first error ends all threads.
pub(crate) fn each<T>(
    jobs: usize,
    begin: impl Fn() -> T + Sync,
    work: impl Fn(&mut T, usize) -> Result<(), ImageError> + Sync,
) -> Result<(), ImageError> {
    let next = AtomicUsize::new(0);
    together(|_, ended| {
        let mut own = begin();
        while !ended.load(Relaxed) {
            let job = next.fetch_add(1, Relaxed);
            if job >= jobs {
                break;
            }
            work(&mut own, job)?;
        }
        Ok(())
    })
}

/// Runs `work` in several threads and waits for all of them. `work` gets the number of its thread,
/// and a flag that is set once another thread has failed.
pub(crate) fn together(work: impl Fn(usize, &AtomicBool) -> Result<(), ImageError> + Sync) -> Result<(), ImageError> {
    let ended = AtomicBool::new(false);
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for number in 0..count() {
            let (work, ended, failure) = (&work, &ended, &failure);
            scope.spawn(move || {
                if let Err(error) = work(number, ended) {
                    ended.store(true, Relaxed);
                    let mut first = failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    first.get_or_insert(error);
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_job_is_done_once_and_the_first_error_is_told() {
        let sum = AtomicU64::new(0);
        let add = |_: &mut (), job: usize| {
            sum.fetch_add(job as u64, Relaxed);
            Ok(())
        };
        each(1000, || (), add).expect("works");
        assert_eq!(sum.into_inner(), 499_500);
        let fails = |_: &mut (), job: usize| if job == 7 { Err(ImageError::TooLarge("7")) } else { Ok(()) };
        assert!(matches!(each(1000, || (), fails), Err(ImageError::TooLarge("7"))));
    }
}
