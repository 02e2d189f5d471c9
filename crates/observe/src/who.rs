//! Which program each process runs, as a trace tells it.
//!
//! Unaware of: what a program is trusted with.

use larder_model::quick::Map;

use crate::trace::{Event, Kind};

/// The program of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running<'t> {
    /// Its file.
    pub program: &'t [u8],
    /// Its arguments, as a `Kind::Start` has them.
    pub arguments: &'t [u8],
}

/// All processes that have been seen.
#[derive(Debug, Default)]
pub struct Who<'t> {
    running: Map<u32, Running<'t>>,
    parents: Map<u32, u32>,
    /// Who started the first of all, and adopts those whose parents have ended.
    outside: u32,
}

impl<'t> Who<'t> {
    /// Learn from an event. Where a process was forked: from whom it has its program.
    pub fn learn(&mut self, event: &Event<&'t [u8]>) -> Option<u32> {
        match event.kind {
            Kind::Start => {
                self.running.insert(event.pid, Running { program: event.path, arguments: event.path2 });
                if event.extra != 0 {
                    if self.parents.is_empty() {
                        self.outside = event.extra;
                    }
                    self.parents.insert(event.pid, event.extra);
                }
                None
            }
            Kind::Forked => self.forked(event.pid, event.extra, event.mode),
            _ => None,
        }
    }

    fn forked(&mut self, pid: u32, parent: u32, writer: u32) -> Option<u32> {
        // It goes on after its child has begun another program. Where its parent wrote before it, it is new, and both
        // numbers come again.
        if writer != parent && self.parents.get(&pid) == Some(&parent) {
            return None;
        }
        // It goes on after its parent has ended.
        const FIRST: u32 = 1;
        if (parent == FIRST || parent == self.outside) && self.running.contains_key(&pid) {
            return None;
        }
        // A parent that has done nothing yet has its own parent's program.
        let source = if self.running.contains_key(&parent) { parent } else { writer };
        self.running.insert(pid, *self.running.get(&source)?);
        self.parents.insert(pid, parent);
        Some(source)
    }

    /// A process and those that it comes from.
    pub fn line(&self, pid: u32) -> impl Iterator<Item = u32> {
        const LONGEST: usize = 64;
        std::iter::successors(Some(pid), |pid| self.parents.get(pid).copied()).take(LONGEST)
    }

    /// What a process runs.
    pub fn runs(&self, pid: u32) -> Running<'t> {
        self.running.get(&pid).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, pid: u32, path: &'static [u8], extra: u32, mode: u32) -> Event<&'static [u8]> {
        Event { pid, error: 0, kind, path, path2: b"", identity: None, mode, extra }
    }

    #[test]
    fn forks_and_what_they_become() {
        let mut who = Who::default();
        who.learn(&event(Kind::Start, 10, b"/sh", 1, 0));
        // A child that shares its memory becomes another program; the next child finds that one's number there.
        assert_eq!(who.learn(&event(Kind::Forked, 11, b"", 10, 10)), Some(10));
        who.learn(&event(Kind::Start, 11, b"/date", 10, 0));
        assert_eq!(who.learn(&event(Kind::Forked, 12, b"", 10, 11)), Some(10));
        assert_eq!((who.runs(11).program, who.runs(12).program), (&b"/date"[..], &b"/sh"[..]));
        // The parent goes on.
        assert_eq!(who.learn(&event(Kind::Forked, 10, b"", 1, 12)), None);
        assert_eq!(who.runs(10).program, b"/sh");
        // Its parent has ended before it wrote anything.
        assert_eq!(who.learn(&event(Kind::Forked, 13, b"", 1, 12)), Some(12));
        assert_eq!(who.runs(13).program, b"/sh");
        // A number comes again, forked by one that has done nothing itself.
        assert_eq!(who.learn(&event(Kind::Forked, 11, b"", 77, 10)), Some(10));
        assert_eq!(who.runs(11).program, b"/sh");
        who.learn(&event(Kind::Start, 11, b"/date", 10, 0));
        // And by one that has.
        assert_eq!(who.learn(&event(Kind::Forked, 11, b"", 13, 13)), Some(13));
        assert_eq!(who.runs(11).program, b"/sh");
        assert_eq!(who.runs(99).program, b"");
        // Both numbers come again.
        who.learn(&event(Kind::Start, 20, b"/cc", 10, 0));
        who.learn(&event(Kind::Start, 21, b"/cc1", 20, 0));
        who.learn(&event(Kind::Start, 20, b"/sh", 10, 0));
        assert_eq!(who.learn(&event(Kind::Forked, 21, b"", 20, 20)), Some(20));
        assert_eq!(who.runs(21).program, b"/sh");
    }
}
