//! Work in the class of whoever asked for it: what a build in the background has recorded must not come before what
//! people wait for.
//!
//! `larderd` as a whole is never lowered. What all share (who is served, what is evicted) is done by threads as they
//! were.

use std::sync::{Mutex, PoisonError};

use larder_sys::Class;

use super::STACK_BYTES;

/// Do it in a thread of that class, where it is not our own, and wait for that. Where there can be no further thread it
/// is done by this one.
pub(super) fn in_class<T: Send>(class: Class, work: impl FnOnce() -> T + Send) -> T {
    if class == Class::Inherit {
        return work();
    }
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take().expect("is taken once");
    std::thread::scope(|scope| {
        let lowered = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || {
            let work = take();
            larder_sys::lower_thread(class);
            work()
        });
        match lowered {
            Ok(lowered) => lowered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => take()(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Niceness and policy of this thread.
    fn manner() -> (i32, u32) {
        // Of the fields after the name, counted from the state.
        const NICE: usize = 16;
        const POLICY: usize = 38;
        let text = std::fs::read_to_string("/proc/thread-self/stat").expect("reads");
        let fields: Vec<&str> = text.rsplit_once(')').expect("has a name").1.split_ascii_whitespace().collect();
        (fields[NICE].parse().expect("a number"), fields[POLICY].parse().expect("a number"))
    }

    #[test]
    fn only_that_thread_is_lowered() {
        const IDLE: u32 = 5;
        let (nice, policy) = manner();
        assert_eq!(in_class(Class::Inherit, manner), (nice, policy));
        assert_eq!(in_class(Class::Utility, manner), (nice.max(10), policy));
        let background = if policy == 0 { IDLE } else { policy };
        assert_eq!(in_class(Class::Background, manner), (nice.max(10), background));
        assert_eq!(manner(), (nice, policy), "we are as we were");
        let score = std::fs::read_to_string("/proc/self/oom_score_adj").expect("reads");
        let again = in_class(Class::Background, || std::fs::read_to_string("/proc/self/oom_score_adj"));
        assert_eq!(again.expect("reads"), score, "that is of the whole process");
    }
}
