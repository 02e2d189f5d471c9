//! How long a mount stays, and whether that time is over.
//!
//! Unaware of: what is mounted.

use std::fs;

/// How long a mount stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// As long as the process that mounted it lives and holds the handle.
    Held,
    /// Until it is unmounted.
    Kept,
    /// As long as a process lives. It is identified by its process ID and its start time, in clock
    /// ticks since the system started.
    Process(u32, u64),
}

impl Lease {
    /// A lease for this process, or `None` if it does not exist.
    pub fn of_process(pid: u32) -> Option<Lease> {
        Some(Lease::Process(pid, began(pid)?))
    }

    /// Returns true if the lease is over. The caller has checked that no process holds the mount.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Lease::Held => true,
            Lease::Kept => false,
            Lease::Process(pid, start) => began(pid) != Some(start),
        }
    }

    /// Returns the text form of the lease in a record.
    pub(crate) fn text(self) -> String {
        match self {
            Lease::Held => "held".to_owned(),
            Lease::Kept => "kept".to_owned(),
            Lease::Process(pid, start) => format!("process {pid} {start}"),
        }
    }

    /// Parses the text form of a lease.
    pub(crate) fn read(text: &str) -> Option<Lease> {
        let mut words = text.split(' ');
        Some(match words.next()? {
            "held" => Lease::Held,
            "kept" => Lease::Kept,
            "process" => Lease::Process(words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            _ => return None,
        })
    }
}

/// Returns the start time of a process (field 22 of its `stat`). Returns `None` if it does not
/// exist or is a zombie.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name may hold any byte, including brackets and spaces.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let lease = Lease::of_process(std::process::id()).expect("this process exists");
        assert!(!lease.is_over());
        let Lease::Process(pid, start) = lease else { panic!("{lease:?}") };
        assert!(Lease::Process(pid, start + 1).is_over(), "another process with the same process ID");
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        let of_child = Lease::of_process(child.id());
        child.wait().expect("ends");
        assert!(of_child.is_none_or(Lease::is_over));
        for lease in [Lease::Held, Lease::Kept, lease] {
            assert_eq!(Lease::read(&lease.text()), Some(lease));
        }
        assert_eq!(Lease::read("process 1"), None);
    }
}
