//! Normalizes the paths of a trace, so that each file that the command uses has one path.
//!
//! Removed from a path are:
//! * `.` components and repeated slashes;
//! * `..` behind a directory that the command created itself;
//! * symbolic links that the command created itself, which are replaced by their targets.
//!
//! A directory that the command created by a path with `..` keeps that path, also if the command uses
//! the real one. For example, rustc makes `/w/../out/rmetaXyZ` and removes the files in it by a
//! descriptor of the directory.
//!
//! This is sound because the next run creates the same directories and links again. Only the kernel
//! can resolve any other `..` or link, so those stay as the command used them. For example, if the
//! command has created `/w/b`, then `/w/b/../in` becomes `/w/in`.
//!
//! Unaware of: what follows from an event.

use larder_model::path::has_parents;
use larder_model::quick::{Map, Set};

use crate::event::{Event, EventKind, OF_LINK, OpenFlags};
use crate::trace::Trace;

/// The maximum number of links that are followed in one path.
const LINKS_MAX: usize = 40;

/// The normalized first and second path of an event, each `None` if the path is already normalized.
pub(crate) type Names = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Returns the normalized paths of all events, in their order. `real` resolves the directory of a path.
pub(crate) fn names(trace: &Trace, real: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<Names> {
    let mut made = Made { by_parents: by_parents(trace, real), ..Made::default() };
    trace.iter().map(|event| made.names_of(&event)).collect()
}

/// A directory that a command made by a path with `..`.
pub(crate) struct ByParents {
    real: Vec<u8>,
    path: Vec<u8>,
}

/// Returns the directories that the command made by paths with `..`. `real` resolves the directory of
/// a path.
pub(crate) fn by_parents(trace: &Trace, real: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<ByParents> {
    let is_one = |event: &Event<&[u8]>| event.kind == EventKind::MakeDirectory && event.error == 0;
    let made = trace.iter().filter(|event| is_one(event) && has_parents(event.path));
    made.filter_map(|event| Some(ByParents { real: real(event.path)?, path: event.path.to_vec() })).collect()
}

/// Returns the path by which the command made the directory that contains `path`. Returns `None` if
/// `path` is not the real path of a file or directory in one of `directories`.
pub(crate) fn as_made(directories: &[ByParents], path: &[u8]) -> Option<Vec<u8>> {
    let rest = |made: &ByParents| path.strip_prefix(&made.real[..]).filter(|rest| matches!(rest, [] | [b'/', ..]));
    directories.iter().find_map(|made| Some([&made.path, rest(made)?].concat()))
}

/// The directories and symbolic links that the command has created so far.
#[derive(Default)]
struct Made {
    directories: Set<Vec<u8>>,
    links: Map<Vec<u8>, Vec<u8>>,
    by_parents: Vec<ByParents>,
}

impl Made {
    fn names_of(&mut self, event: &Event<&[u8]>) -> Names {
        let (first, second) = (self.first(event), self.second(event));
        if event.error == 0 {
            let path = first.as_deref().unwrap_or(event.path);
            let path2 = second.as_deref().unwrap_or(event.path2);
            self.note(event.kind, path, path2);
        }
        (first, second)
    }

    fn first(&self, event: &Event<&[u8]>) -> Option<Vec<u8>> {
        match event.kind {
            // The path of these events is the name of a variable or the text of a link.
            EventKind::GetEnvironment | EventKind::Symlink => None,
            EventKind::Lstat
            | EventKind::ReadLink
            | EventKind::Unlink
            | EventKind::RemoveDirectory
            | EventKind::Rename(_)
            | EventKind::Link
            | EventKind::MakeDirectory => self.name(event.path, false),
            EventKind::Open(flags) if flags.has(OpenFlags::EXCLUSIVE) => self.name(event.path, false),
            EventKind::SetTimes | EventKind::ChangeOwner | EventKind::ChangeMode if event.mode & OF_LINK != 0 => {
                self.name(event.path, false)
            }
            _ => self.name(event.path, true),
        }
    }

    fn second(&self, event: &Event<&[u8]>) -> Option<Vec<u8>> {
        let is_path = matches!(event.kind, EventKind::Rename(_) | EventKind::Link | EventKind::Symlink);
        if is_path { self.name(event.path2, false) } else { None }
    }

    fn note(&mut self, kind: EventKind, path: &[u8], path2: &[u8]) {
        match kind {
            EventKind::MakeDirectory => drop(self.directories.insert(path.to_vec())),
            EventKind::Symlink => drop(self.links.insert(path2.to_vec(), path.to_vec())),
            EventKind::Unlink => drop(self.links.remove(path)),
            EventKind::RemoveDirectory => drop(self.directories.remove(path)),
            EventKind::Rename(_) => {
                self.links.remove(path2);
                if let Some(target) = self.links.remove(path) {
                    self.links.insert(path2.to_vec(), target);
                }
            }
            _ => {}
        }
    }

    /// Returns the normalized `path`, or `None` if it does not change. If `follow` is true, a link
    /// at its end is replaced by its target as well.
    fn name(&self, path: &[u8], follow: bool) -> Option<Vec<u8>> {
        if let Some(made) = as_made(&self.by_parents, path) {
            return Some(self.name(&made, follow).unwrap_or(made));
        }
        let odd = path.windows(2).any(|pair| matches!(pair, [b'/', b'/' | b'.']));
        if !path.starts_with(b"/") || !odd && self.links.is_empty() {
            return None;
        }
        let mut named = path.to_vec();
        for _ in 0..LINKS_MAX {
            named = self.tidied(&named);
            match self.through_a_link(&named, follow) {
                Some(through) => named = through,
                None => break,
            }
        }
        (named != path).then_some(named)
    }

    fn tidied(&self, path: &[u8]) -> Vec<u8> {
        let mut tidied: Vec<u8> = Vec::with_capacity(path.len());
        for part in path.split(|&b| b == b'/').filter(|part| !matches!(part, [] | [b'.'])) {
            if part == b".." && self.directories.contains(&tidied) {
                tidied.truncate(tidied.iter().rposition(|&b| b == b'/').unwrap_or(0));
                continue;
            }
            tidied.push(b'/');
            tidied.extend_from_slice(part);
        }
        if tidied.is_empty() || matches!(path.rsplit(|&b| b == b'/').next(), Some(b"" | b".")) {
            tidied.push(b'/');
        }
        tidied
    }

    /// Returns `path` with its first known link replaced by the target, or `None` if it contains no
    /// such link.
    fn through_a_link(&self, path: &[u8], follow: bool) -> Option<Vec<u8>> {
        let mut ends = path.iter().enumerate().filter(|(at, b)| *at > 0 && **b == b'/').map(|(at, _)| at);
        let end = ends.find(|end| self.links.contains_key(&path[..*end]));
        let end = end.or_else(|| (follow && self.links.contains_key(path)).then_some(path.len()))?;
        let target = self.links.get(&path[..end])?;
        let slash = path[..end].iter().rposition(|&b| b == b'/').unwrap_or(0);
        let from = if target.starts_with(b"/") { &b""[..] } else { &path[..=slash] };
        Some([from, target, &path[end..]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, path: &str, path2: &str) -> Event {
        Event { path2: path2.into(), ..Event::new(1, kind, path.into()) }
    }

    #[test]
    fn one_thing_has_one_name() {
        let read = EventKind::Open(OpenFlags(OpenFlags::READ));
        let check = |before: &[Event], kind: EventKind, path: &str, expect: &str| {
            let events = before.iter().cloned().chain([event(kind, path, "")]).collect();
            let names = names(&Trace { events, ..Trace::default() }, &|_| None);
            let found = names.last().and_then(|(first, _)| first.clone()).unwrap_or(path.into());
            assert_eq!(String::from_utf8_lossy(&found), expect, "{path}");
        };
        check(&[], read, "/w/./a//b", "/w/a/b");
        check(&[], read, "/w/a/", "/w/a/");
        check(&[], read, "/w/a//", "/w/a/");
        check(&[], read, "/w/a/../b", "/w/a/../b");
        check(&[], read, "/", "/");
        let directory = [event(EventKind::MakeDirectory, "/w/b", "")];
        check(&directory, read, "/w/b/../in", "/w/in");
        check(&directory, read, "/w/c/../in", "/w/c/../in");
        let link = [event(EventKind::Symlink, "in", "/w/l")];
        check(&link, read, "/w/l", "/w/in");
        check(&link, EventKind::Lstat, "/w/l", "/w/l");
        check(&link, EventKind::SetTimes, "/w/l", "/w/in");
        check(&link, EventKind::Stat, "/w/l/x", "/w/in/x");
        check(&[event(EventKind::Symlink, "/abs", "/w/l")], read, "/w/l/x", "/abs/x");
        check(&[event(EventKind::Symlink, "l", "/w/l")], EventKind::Lstat, "/w/l", "/w/l");
        let gone = [event(EventKind::Symlink, "in", "/w/l"), event(EventKind::Unlink, "/w/l", "")];
        check(&gone, read, "/w/l", "/w/l");
    }

    #[test]
    fn a_directory_that_was_made_by_its_parents() {
        let check = |path: &str, expect: &str| {
            let events = vec![event(EventKind::MakeDirectory, "/w/a/../t", ""), event(EventKind::Unlink, path, "")];
            let real = |path: &[u8]| (path == b"/w/a/../t").then(|| b"/w/t".to_vec());
            let names = names(&Trace { events, ..Trace::default() }, &real);
            let found = names.last().and_then(|(first, _)| first.clone()).unwrap_or(path.into());
            assert_eq!(String::from_utf8_lossy(&found), expect, "{path}");
        };
        check("/w/t/x", "/w/a/../t/x");
        check("/w/t", "/w/a/../t");
        check("/w/a/../t/x", "/w/a/../t/x");
        check("/w/t2/x", "/w/t2/x");
    }
}
