//! The model of a run: what one pass over its trace shows of its programs, and of the files that
//! they opened. Everything after the run reads the model, so that the trace is decoded and the
//! process tree is built only once for all of that.
//!
//! [`fold()`](crate::fold()) is another pass. Its rules need every event, and the words in texts
//! that are found by this model.
//!
//! Unaware of: what follows from any of it.

use larder_model::Identity;
use larder_model::quick::Map;
use larder_sys::FileType;

use crate::event::{Event, EventKind, OpenFlags, REPORTED_WHOLE};
use crate::process_tree::{ProcessTree, Running};
use crate::trace::Trace;

/// What one pass over a trace shows. `'t` is the lifetime of the trace: all paths are slices of it.
///
/// For example, if a shell runs `cc -c x.c < in`, then `starts` has the shell and `cc`, and `opens`
/// has `in` by the shell and `x.c` by `cc`.
#[derive(Debug, Default)]
pub struct RunModel<'t> {
    /// Every start of a program, in order.
    pub starts: Vec<Start<'t>>,
    /// Every program that began and every shared object that was loaded, in order.
    pub images: Vec<Image<'t>>,
    /// Every shared object that a program loaded after its start, by `dlopen`: the program and the
    /// object. An object may be listed more than once.
    pub plugins: Vec<(&'t [u8], &'t [u8])>,
    /// Every attempt to open a file, in order.
    pub opens: Vec<Open<'t>>,
    /// The path of the first call that failed because the system does not have it or refuses it
    /// (ENOSYS).
    pub first_unknown_call: Option<&'t [u8]>,
    /// The programs that each process ran, in the order in which they first appear.
    pub phases: Vec<Phase<'t>>,
}

/// One start of a program.
#[derive(Clone, Copy, Debug)]
pub struct Start<'t> {
    /// The process.
    pub pid: u32,
    /// The path of the program's file.
    pub program: &'t [u8],
    /// The encoded arguments, as in the `path2` of an [`EventKind::Start`] event.
    pub arguments: &'t [u8],
    /// What `stat` reported of the program's file.
    pub identity: Option<Identity>,
    /// The path of the program that started this one: that of the parent, or the earlier program of
    /// the same process if the parent is unknown. It is empty if it was not observed.
    pub starter: &'t [u8],
    /// The event says that the start failed.
    pub failed: bool,
    /// A nested wrapper reported everything that the program did.
    pub is_reported_whole: bool,
}

/// A program that began, or a shared object that was loaded.
#[derive(Clone, Copy, Debug)]
pub struct Image<'t> {
    /// The path of the file.
    pub path: &'t [u8],
    /// What `stat` reported of the file.
    pub identity: Option<Identity>,
    /// False for a shared object.
    pub is_program: bool,
}

/// An attempt to open a file.
#[derive(Clone, Copy, Debug)]
pub struct Open<'t> {
    /// The path, as the process used it.
    pub path: &'t [u8],
    /// How the file was to be opened.
    pub flags: OpenFlags,
    /// True if that failed.
    pub failed: bool,
    /// True if it is known to be a regular file.
    pub is_regular: bool,
    /// The answer of `stat` for the opened file. It is `None` if the observer does not know it.
    pub identity: Option<Identity>,
    phase: u32,
}

/// The time during which a process runs one program.
#[derive(Clone, Copy, Debug)]
pub struct Phase<'t> {
    /// The process.
    pub pid: u32,
    /// The program.
    pub running: Running<'t>,
    /// The program began in this process. Otherwise it runs here because the process was forked.
    pub began: bool,
}

/// The shared objects that the loader loaded when a program started.
#[derive(Debug, Default)]
struct Loading<'t> {
    firsts: Vec<&'t [u8]>,
    is_done: bool,
}

impl<'t> Loading<'t> {
    /// Takes the next event of a process. Returns true if it is an object that was loaded later.
    /// The objects of the start come right after it, and all objects are repeated after each
    /// `dlopen`.
    fn is_late(&mut self, event: &Event<&'t [u8]>) -> bool {
        match event.kind {
            EventKind::Start => *self = Loading::default(),
            EventKind::Object if !self.is_done => self.firsts.push(event.path),
            EventKind::Object => return !self.firsts.contains(&event.path),
            _ => self.is_done = true,
        }
        false
    }
}

impl<'t> RunModel<'t> {
    /// Builds the model of a run from its trace.
    pub fn of(trace: &'t Trace) -> RunModel<'t> {
        let mut model = RunModel::default();
        let mut tree = ProcessTree::default();
        let mut current: Map<u32, u32> = Map::default();
        let mut loading: Map<u32, Loading> = Map::default();
        for event in trace.iter() {
            if event.kind == EventKind::Start {
                // The parent is 0 if the process already belonged to the command: it executes
                // another program.
                let parent = if event.extra == 0 { event.pid } else { event.extra };
                model.starts(&event, tree.runs(parent).program);
            }
            tree.learn(&event);
            let phase = model.phase(&event, tree.runs(event.pid), &mut current);
            if loading.entry(event.pid).or_default().is_late(&event) {
                model.plugins.push((tree.runs(event.pid).program, event.path));
            }
            match event.kind {
                EventKind::Start | EventKind::Object => model.images.push(Image {
                    path: event.path,
                    identity: event.identity,
                    is_program: event.kind == EventKind::Start,
                }),
                EventKind::Open(flags) => model.opens.push(Open {
                    path: event.path,
                    flags,
                    failed: event.error != 0,
                    is_regular: event.file_type() == FileType::File,
                    identity: event.identity,
                    phase,
                }),
                _ => {}
            }
            if event.error == libc::ENOSYS {
                model.first_unknown_call.get_or_insert(event.path);
            }
        }
        model
    }

    fn starts(&mut self, event: &Event<&'t [u8]>, starter: &'t [u8]) {
        self.starts.push(Start {
            pid: event.pid,
            program: event.path,
            arguments: event.path2,
            identity: event.identity,
            starter,
            failed: event.error != 0,
            is_reported_whole: event.mode & REPORTED_WHOLE != 0,
        });
    }

    /// Returns the index of the phase that an event belongs to, which may begin with it.
    fn phase(&mut self, event: &Event<&'t [u8]>, running: Running<'t>, current: &mut Map<u32, u32>) -> u32 {
        let began = event.kind == EventKind::Start;
        let is_same = |phase: &Phase| {
            std::ptr::eq(phase.running.program, running.program)
                && std::ptr::eq(phase.running.arguments, running.arguments)
        };
        if let Some(&at) = current.get(&event.pid).filter(|_| !began)
            && let Some(phase) = self.phases.get(at as usize)
            && is_same(phase)
        {
            return at;
        }
        let at = self.phases.len() as u32;
        self.phases.push(Phase { pid: event.pid, running, began });
        current.insert(event.pid, at);
        at
    }

    /// Returns the program that opened a file. Both fields are empty if it was not observed.
    pub fn opener(&self, open: &Open<'t>) -> Running<'t> {
        self.phases.get(open.phase as usize).map(|phase| phase.running).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, pid: u32, path: &str, extra: u32) -> Event {
        Event { extra, ..Event::new(pid, kind, path.into()) }
    }

    #[test]
    fn programs_and_what_they_open() {
        let open = EventKind::Open(OpenFlags(OpenFlags::READ));
        let events = vec![
            event(EventKind::Start, 10, "/sh", 1),
            event(open, 10, "/script", 0),
            Event { mode: 10, ..event(EventKind::Forked, 11, "", 10) },
            event(open, 11, "/in", 0),
            event(EventKind::Start, 11, "/cc", 10),
            event(EventKind::Object, 11, "/libc.so", 0),
            event(open, 11, "/x.c", 0),
            event(EventKind::Object, 11, "/libc.so", 0),
            event(EventKind::Object, 11, "/p.so", 0),
            Event { error: libc::ENOSYS, ..event(EventKind::Stat, 11, "/x.h", 0) },
            event(EventKind::Start, 11, "/cc1", 0),
            event(open, 99, "/y", 0),
        ];
        let trace = Trace { events, ..Trace::default() };
        let model = RunModel::of(&trace);
        let starts: Vec<_> = model.starts.iter().map(|start| (start.pid, start.program, start.starter)).collect();
        assert_eq!(starts, [(10, &b"/sh"[..], &b""[..]), (11, b"/cc", b"/sh"), (11, b"/cc1", b"/cc")]);
        let opens: Vec<_> = model.opens.iter().map(|open| (open.path, model.opener(open).program)).collect();
        assert_eq!(opens, [(&b"/script"[..], &b"/sh"[..]), (b"/in", b"/sh"), (b"/x.c", b"/cc"), (b"/y", b"")]);
        let images: Vec<_> = model.images.iter().map(|image| (image.path, image.is_program)).collect();
        assert_eq!(
            images,
            [
                (&b"/sh"[..], true),
                (b"/cc", true),
                (b"/libc.so", false),
                (b"/libc.so", false),
                (b"/p.so", false),
                (b"/cc1", true)
            ]
        );
        assert_eq!(model.plugins, [(&b"/cc"[..], &b"/p.so"[..])]);
        let phases: Vec<_> = model.phases.iter().map(|phase| (phase.pid, phase.began)).collect();
        let expect = [(10, true), (11, false), (11, true), (11, true), (99, false)];
        assert_eq!(phases, expect);
        assert_eq!(model.first_unknown_call, Some(&b"/x.h"[..]));
    }
}
