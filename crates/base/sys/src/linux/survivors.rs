//! Checks whether a tool left processes running that can still do something.
//!
//! When a process ends, the kernel takes it apart before its parent can wait for it. Unmapping the
//! memory that a linker wrote takes long. From the moment that the kernel marks a thread as exiting
//! (`PF_EXITING`), the thread executes no more instruction of its program. So if all threads of a
//! process are marked, it cannot write, open or start anything more, although it still exists.
//!
//! Unaware of: what the processes are, how long they are waited for.

use std::fs;
use std::io;

use super::process::{Collected, collect};
use super::stop::{Shown, descendants, shown, shown_at};

/// The state of the processes below this one that were not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// There are none.
    None,
    /// There are some, and all of them are exiting. None executes its program any more.
    Exiting,
    /// One of them was killed by a signal, or is exiting because of one.
    Killed,
    /// One of them may still do something, or this cannot be determined.
    Alive,
}

/// Checks the processes below this one, and collects those that have ended. Orphans below this
/// process must become its children (`become_subreaper`).
pub fn survivors() -> Survivors {
    match collect() {
        Collected { killed: true, .. } => Survivors::Killed,
        Collected { left: false, .. } => Survivors::None,
        // A process moves in the tree when its parent ends, so one check may miss it on its way to
        // us:
        //
        // 1. The first check finds only exiting processes, so none of those can start another one.
        // 2. A process that it missed has become our child by then, and the second check finds it.
        Collected { left: true, .. } => match below() {
            Survivors::Exiting => below(),
            found => found,
        },
    }
}

/// Checks every process below this one once.
fn below() -> Survivors {
    let own = super::process_id() as i32;
    let Some(mut rest) = children(own) else { return below_of_all() };
    // Our own helper processes have no signal for their end. They are skipped.
    rest.retain(|pid| shown(*pid).is_none_or(|child| child.end_signal != 0));
    let mut found = Survivors::Alive;
    while let Some(pid) = rest.pop() {
        match state(pid) {
            // It has gone, and its children have become ours.
            None => continue,
            Some(Survivors::Exiting) => found = Survivors::Exiting,
            Some(other) => return other,
        }
        // The children are listed after the threads were checked, because exiting threads start no
        // more.
        match children(pid) {
            Some(children) => rest.extend(children),
            None if is_there(pid) => return Survivors::Alive,
            None => {}
        }
    }
    found
}

/// Checks every process below this one by reading all of `/proc`. It is used if the kernel keeps no
/// lists of children (`CONFIG_PROC_CHILDREN`).
fn below_of_all() -> Survivors {
    of_all(descendants().into_iter().filter_map(|process| state(process.pid)))
}

/// What processes in these states are together: exiting only if each of them is.
fn of_all(states: impl Iterator<Item = Survivors>) -> Survivors {
    let mut found = None;
    for state in states {
        found = match (found, state) {
            (_, Survivors::Killed) => return Survivors::Killed,
            (Some(Survivors::Alive), _) | (_, Survivors::Alive) => Some(Survivors::Alive),
            _ => Some(Survivors::Exiting),
        };
    }
    found.unwrap_or(Survivors::Alive)
}

/// Returns the processes that a process has started and not yet waited for. Returns `None` if the
/// lists cannot be read.
fn children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for thread in threads(pid)? {
        match fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")) {
            Ok(text) => found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok())),
            Err(error) if is_gone(&error) && thread != pid => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

/// Returns whether all threads of a process are exiting. Returns `None` if the process is gone.
fn state(pid: i32) -> Option<Survivors> {
    // A process of another user may be hidden (`hidepid`).
    let unknown = || is_there(pid).then_some(Survivors::Alive);
    let Some(threads) = threads(pid) else { return unknown() };
    let mut state = None;
    for thread in threads {
        match shown_at(&format!("/proc/{pid}/task/{thread}/stat")) {
            Ok(Shown { is_exiting: false, .. }) => return Some(Survivors::Alive),
            Ok(Shown { signal, .. }) if signal != 0 => state = Some(Survivors::Killed),
            Ok(_) => state = state.or(Some(Survivors::Exiting)),
            Err(error) if is_gone(&error) => {}
            Err(_) => return Some(Survivors::Alive),
        }
    }
    state.or_else(unknown)
}

fn is_there(pid: i32) -> bool {
    super::is_thread_of(pid as u32, pid as u32)
}

fn threads(pid: i32) -> Option<Vec<i32>> {
    let names = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    Some(names.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::Survivors::{Alive, Exiting, Killed};
    use super::*;

    #[test]
    fn one_process_that_is_alive_decides() {
        for (states, together) in [
            (&[][..], Alive),
            (&[Exiting, Exiting], Exiting),
            (&[Alive, Exiting], Alive),
            (&[Exiting, Alive], Alive),
            (&[Alive, Killed, Exiting], Killed),
        ] {
            assert_eq!(of_all(states.iter().copied()), together, "{states:?}");
        }
    }
}
