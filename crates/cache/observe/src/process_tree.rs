//! The process tree of a trace: which program each process runs, and which process forked it.
//!
//! Unaware of: what a program is trusted with.

use larder_model::quick::Map;

use crate::event::{Event, EventKind};

/// The program of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running<'t> {
    /// The path of the program's file.
    pub program: &'t [u8],
    /// The encoded arguments, as in the `path2` of an [`EventKind::Start`] event.
    pub arguments: &'t [u8],
}

/// The process tree, built up event by event.
#[derive(Debug, Default)]
pub(crate) struct ProcessTree<'t> {
    running: Map<u32, Running<'t>>,
    parents: Map<u32, u32>,
    /// The process that started the first process of the trace. It also adopts processes whose
    /// parents have ended.
    outside: u32,
}

/// A new process, and the one whose memory it got a copy of, with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    pub(crate) pid: u32,
    pub(crate) source: u32,
}

/// The new processes that an event shows, parents first.
pub(crate) type Forks = [Option<Fork>; 2];

impl<'t> ProcessTree<'t> {
    /// Updates the tree by one event, and returns the new processes that it shows.
    ///
    /// There can be two, because a process that only forks another one has no event of its own.
    pub(crate) fn learn(&mut self, event: &Event<&'t [u8]>) -> Forks {
        match event.kind {
            EventKind::Start => {
                self.starts(event);
                [None; 2]
            }
            EventKind::Forked => self.forked(event.pid, event.extra, event.mode),
            _ => [None; 2],
        }
    }

    fn starts(&mut self, event: &Event<&'t [u8]>) {
        self.running.insert(event.pid, Running { program: event.path, arguments: event.path2 });
        if event.extra != 0 {
            if self.parents.is_empty() {
                self.outside = event.extra;
            }
            self.parents.insert(event.pid, event.extra);
        }
    }

    fn forked(&mut self, pid: u32, parent: u32, writer: u32) -> Forks {
        // A `Forked` event is either a new process or a known one that resumes after `vfork`:
        // 1. A parent resumes once its `vfork` child has executed a program. The child wrote last
        //    to the memory that they shared, so `writer` is not `parent`, and the tree has this
        //    parent already.
        // 2. If `parent` wrote last, the process is new, even if the tree has both numbers already:
        //    the kernel has reused them.
        if writer != parent && self.parents.get(&pid) == Some(&parent) {
            return [None; 2];
        }
        // The process is known, and its parent has ended, so another process has adopted it.
        const FIRST: u32 = 1;
        let is_adopted = parent == FIRST || parent == self.outside;
        if is_adopted && self.running.contains_key(&pid) {
            return [None; 2];
        }
        // If the parent has no event yet, it still runs the program of the process that wrote
        // before, and descends from it.
        let is_silent = !self.running.contains_key(&parent);
        let of_parent = if is_silent && !is_adopted { self.inherit(parent, writer, writer) } else { None };
        let source = if self.running.contains_key(&parent) { parent } else { writer };
        [of_parent, self.inherit(pid, parent, source)]
    }

    /// Adds a process that runs the program of `source`, if that is known.
    fn inherit(&mut self, pid: u32, parent: u32, source: u32) -> Option<Fork> {
        let running = *self.running.get(&source)?;
        self.running.insert(pid, running);
        self.parents.insert(pid, parent);
        Some(Fork { pid, source })
    }

    /// Returns a process and its ancestors, nearest first. At most 64 are returned.
    pub(crate) fn line(&self, pid: u32) -> impl Iterator<Item = u32> {
        const LONGEST: usize = 64;
        std::iter::successors(Some(pid), |pid| self.parents.get(pid).copied()).take(LONGEST)
    }

    /// Returns the program that a process runs. Both fields are empty if the process is unknown.
    pub(crate) fn runs(&self, pid: u32) -> Running<'t> {
        self.running.get(&pid).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, pid: u32, path: &'static [u8], extra: u32, mode: u32) -> Event<&'static [u8]> {
        Event { mode, extra, ..Event::new(pid, kind, path) }
    }

    /// Learns a `Forked` event of `pid`: its parent, and the process that wrote to its memory last.
    /// Returns each new process with its source.
    fn forked(tree: &mut ProcessTree<'static>, pid: u32, parent: u32, writer: u32) -> Vec<(u32, u32)> {
        let event = event(EventKind::Forked, pid, b"", parent, writer);
        tree.learn(&event).into_iter().flatten().map(|fork| (fork.pid, fork.source)).collect()
    }

    #[test]
    fn forks_and_what_they_become() {
        let mut tree = ProcessTree::default();
        tree.learn(&event(EventKind::Start, 10, b"/sh", 1, 0));
        // A `vfork` child executes a program. The next child then finds the first child's number in
        // the shared memory.
        assert_eq!(forked(&mut tree, 11, 10, 10), [(11, 10)]);
        tree.learn(&event(EventKind::Start, 11, b"/date", 10, 0));
        assert_eq!(forked(&mut tree, 12, 10, 11), [(12, 10)]);
        assert_eq!((tree.runs(11).program, tree.runs(12).program), (&b"/date"[..], &b"/sh"[..]));
        // The parent resumes.
        assert_eq!(forked(&mut tree, 10, 1, 12), []);
        assert_eq!(tree.runs(10).program, b"/sh");
        // A process whose parent ended before the process wrote anything.
        assert_eq!(forked(&mut tree, 13, 1, 12), [(13, 12)]);
        assert_eq!(tree.runs(13).program, b"/sh");
        // A number is reused, and the process that forked it has written no event.
        assert_eq!(forked(&mut tree, 11, 77, 10), [(77, 10), (11, 77)]);
        assert_eq!(tree.runs(11).program, b"/sh");
        assert_eq!(tree.line(11).collect::<Vec<_>>(), [11, 77, 10, 1]);
        tree.learn(&event(EventKind::Start, 11, b"/date", 10, 0));
        // A number is reused, and the process that forked it has written events.
        assert_eq!(forked(&mut tree, 11, 13, 13), [(11, 13)]);
        assert_eq!(tree.runs(11).program, b"/sh");
        assert_eq!(tree.runs(99).program, b"");
        // The numbers of both parent and child are reused.
        tree.learn(&event(EventKind::Start, 20, b"/cc", 10, 0));
        tree.learn(&event(EventKind::Start, 21, b"/cc1", 20, 0));
        tree.learn(&event(EventKind::Start, 20, b"/sh", 10, 0));
        assert_eq!(forked(&mut tree, 21, 20, 20), [(21, 20)]);
        assert_eq!(tree.runs(21).program, b"/sh");
    }
}
