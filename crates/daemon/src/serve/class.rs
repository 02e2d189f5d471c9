//! Runs work in the scheduling class of the client that asked for it. For example, recording for a
//! background build must not compete with work that people wait for.
//!
//! `larderd` as a whole is never lowered. Shared work, such as accepting connections and eviction,
//! stays in the daemon's own class.

use larder_sys::Class;
use parking_lot::Mutex;

/// The stack size of each connection's thread, in bytes.
pub(super) const STACK_BYTES: usize = 512 << 10;

/// Runs `work` in a thread of that class and waits for it. If the class is `Inherit`, or if no
/// thread can be started, this thread runs it.
pub(super) fn in_class<T: Send>(class: Class, work: impl FnOnce() -> T + Send) -> T {
    if class == Class::Inherit {
        return work();
    }
    let work = Mutex::new(Some(work));
    let take = || work.lock().take().expect("is taken once");
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

    /// Returns the niceness and the scheduling policy of this thread.
    fn sched_policy() -> (i32, u32) {
        // Indexes into the fields after the process name, counted from the state.
        const NICE: usize = 16;
        const POLICY: usize = 38;
        let text = std::fs::read_to_string("/proc/thread-self/stat").expect("reads");
        let fields: Vec<&str> = text.rsplit_once(')').expect("has a name").1.split_ascii_whitespace().collect();
        (fields[NICE].parse().expect("a number"), fields[POLICY].parse().expect("a number"))
    }

    #[test]
    fn only_that_thread_is_lowered() {
        const IDLE: u32 = 5;
        let (nice, policy) = sched_policy();
        assert_eq!(in_class(Class::Inherit, sched_policy), (nice, policy));
        assert_eq!(in_class(Class::Utility, sched_policy), (nice.max(10), policy));
        let background = if policy == 0 { IDLE } else { policy };
        assert_eq!(in_class(Class::Background, sched_policy), (nice.max(10), background));
        assert_eq!(sched_policy(), (nice, policy), "the calling thread is not changed");
        let score = std::fs::read_to_string("/proc/self/oom_score_adj").expect("reads");
        let again = in_class(Class::Background, || std::fs::read_to_string("/proc/self/oom_score_adj"));
        assert_eq!(again.expect("reads"), score, "the OOM score belongs to the whole process and must not change");
    }
}
