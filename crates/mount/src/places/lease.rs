//! How long a mount stays, and whether whoever it is for still lives.

use std::fs;

/// How long a mount stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// As long as whoever mounted it holds its handle, and lives.
    Held,
    /// Until it is unmounted.
    Kept,
    /// As long as a process lives: its number, and when it began, in ticks since the system began.
    Process(u32, u64),
}

impl Lease {
    /// As long as this process lives; `None` where there is none.
    pub fn of_process(pid: u32) -> Option<Lease> {
        Some(Lease::Process(pid, began(pid)?))
    }

    /// Whether it has run out, of a mount that nobody holds.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Lease::Held => true,
            Lease::Kept => false,
            Lease::Process(pid, start) => began(pid) != Some(start),
        }
    }

    /// As it stands in a record.
    pub(crate) fn text(self) -> String {
        match self {
            Lease::Held => "held".to_owned(),
            Lease::Kept => "kept".to_owned(),
            Lease::Process(pid, start) => format!("process {pid} {start}"),
        }
    }

    /// And read from there.
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

/// When a process began (field 22 of its `stat`); `None` when it is gone, or is only waited for.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, brackets too.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let lease = Lease::of_process(std::process::id()).expect("we live");
        assert!(!lease.is_over());
        let Lease::Process(pid, start) = lease else { panic!("{lease:?}") };
        assert!(Lease::Process(pid, start + 1).is_over(), "another of that number");
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
