//! What a tool leaves running: whether any process below this one can still do something.
//!
//! A process that ends is taken apart by the kernel before its parent can wait for it, and unmapping what a linker wrote
//! takes long. From the moment that the kernel marks a thread as exiting (`PF_EXITING`), the thread executes no more
//! instruction of its program. So a process all of whose threads are marked writes nothing more, opens nothing more and
//! starts nothing more, although it is still there.
//!
//! Unaware of: what the processes are, how long they are waited for.

use std::fs;
use std::io;

use super::stop::{Shown, descendants, shown, shown_at};

/// The processes below this one that were not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// There are none.
    None,
    /// There are some, and each of them is exiting: none executes its program any more.
    Exiting,
    /// One of them died by a signal, or is dying of one.
    Killed,
    /// One of them may still do something, or this cannot be told.
    Alive,
}

/// Look at what is left below this process, to which orphans come (`become_subreaper`). Collects those that have ended.
pub fn survivors() -> Survivors {
    match collect() {
        Collected { killed: true, .. } => Survivors::Killed,
        Collected { left: false, .. } => Survivors::None,
        // A process moves in the tree when its parent ends: the first look may miss it on its way to us, and then the
        // second one finds it here. The first look shows that nothing is left that could start another one.
        Collected { left: true, .. } => match below() {
            Survivors::Exiting => below(),
            found => found,
        },
    }
}

struct Collected {
    /// A child has not ended.
    left: bool,
    /// One that has ended did so by a signal.
    killed: bool,
}

fn collect() -> Collected {
    let mut killed = false;
    loop {
        let mut status = 0;
        // SAFETY: writes to our own integer.
        match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
            0 => return Collected { left: true, killed },
            pid if pid > 0 => killed |= libc::WIFSIGNALED(status),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Collected { left: false, killed },
        }
    }
}

/// One look at every process below this one.
fn below() -> Survivors {
    let own = super::process_id() as i32;
    let Some(mut rest) = children(own) else { return below_of_all() };
    // Helpers of ours have no signal at their end.
    rest.retain(|pid| shown(*pid).is_none_or(|child| child.end_signal != 0));
    let mut found = Survivors::Alive;
    while let Some(pid) = rest.pop() {
        match state(pid) {
            // What it had started has come to us.
            None => continue,
            Some(Survivors::Exiting) => found = Survivors::Exiting,
            Some(other) => return other,
        }
        // Asked after the threads: none of them could start anything in between.
        match children(pid) {
            Some(children) => rest.extend(children),
            None if is_there(pid) => return Survivors::Alive,
            None => {}
        }
    }
    found
}

/// The same where the kernel keeps no lists of children (`CONFIG_PROC_CHILDREN`).
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

/// The processes that a process has started and that have not been waited for.
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

/// Whether all threads of a process are exiting; `None` if it is gone.
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
