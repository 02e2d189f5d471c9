//! State of a fold: which processes set mtimes, and from which processes these may come.
//!
//! Unaware of: events, and which paths processes accessed.

use larder_model::quick::{Map, Set};

use super::process_state::Life;

/// Which processes set mtimes, and whose mtimes they may have copied.
#[derive(Default)]
pub(super) struct Dates {
    /// The processes that set mtimes, and whether each runs a program that only copies them.
    pub(super) setters: Map<Life, bool>,
    /// For each process, those that set an mtime that it saw.
    pub(super) saw: Map<Life, Vec<Life>>,
    /// The groups of processes that set the mtime of an output. There is mostly one process.
    pub(super) groups: Vec<Vec<Life>>,
    /// The index of each group.
    numbers: Map<Vec<Life>, usize>,
}

impl Dates {
    /// Returns the index in [`larder_model::Seen::date_sources`] for an output whose mtime these
    /// processes set, or `None` if there are none.
    pub(super) fn source(&mut self, setters: &[Life]) -> Option<usize> {
        if setters.is_empty() {
            return None;
        }
        let next = self.groups.len();
        let at = *self.numbers.entry(setters.to_vec()).or_insert(next);
        if at == next {
            self.groups.push(setters.to_vec());
        }
        Some(at)
    }

    /// Returns these processes and all whose mtimes they may have copied.
    pub(super) fn with_seen(&self, setters: &[Life]) -> Set<Life> {
        let mut found = Set::default();
        let mut next = setters.to_vec();
        while let Some(life) = next.pop() {
            if found.insert(life) {
                next.extend(self.saw.get(&life).into_iter().flatten());
            }
        }
        found
    }
}
