//! The facts that were verified at the end of a run, and their encoding as an `ObservationSet`.

use std::collections::BTreeMap;

use larder_model::{Age, Carried, Digest, DirFacts, EnvFact, Fact, Links, NamedFact, ObservationSet, Twins};
use larder_sys::Stat;

/// The verified observations of a run. Unlike `ObservationSet`, it owns its bytes.
#[derive(Debug, Default)]
pub struct VerifiedInputs {
    pub(super) directories: BTreeMap<Vec<u8>, Directory>,
    pub(super) environment: Vec<(Vec<u8>, Option<Digest>)>,
    pub(super) twins: Vec<([Vec<u8>; 2], bool, bool)>,
    /// Paths whose mtimes were compared.
    pub(super) ages: BTreeMap<Vec<u8>, OwnedAge>,
    pub(super) carried: Carried,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// The device and inode of the directory.
    pub(super) identity: (u64, u64),
    pub(super) real: Option<Vec<u8>>,
    /// Its path in this place, if it is recorded by its distance from a root below it.
    pub(super) above_root: Option<Vec<u8>>,
    pub(super) links_matter: bool,
    pub(super) wanted: bool,
    /// Its inode number may have been compared with that of another directory. `readlink`, which
    /// `realpath` calls for each directory of a path, does not show that number.
    pub(super) identified: bool,
    /// Its `stat`, if it has not changed since before the run and a change would have been visible.
    pub(super) unchanged: Option<Stat>,
    pub(super) facts: BTreeMap<(Vec<u8>, u8), OwnedFact>,
    pub(super) absent: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct OwnedAge {
    pub(super) modified_ns: i64,
    /// Its path in this place, if it is recorded by its distance from a root below it.
    pub(super) above_root: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum OwnedFact {
    Link(Vec<u8>),
    Plain(Fact<'static>),
}

impl From<Fact<'static>> for OwnedFact {
    fn from(fact: Fact<'static>) -> OwnedFact {
        OwnedFact::Plain(fact)
    }
}

impl VerifiedInputs {
    /// Returns what the inputs contain that could bring the path of this place into a result.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// Returns the observations in the form that is encoded. Directories above the root are
    /// recorded by their distance from it.
    pub fn set(&self) -> ObservationSet<'_> {
        self.set_if(|_| true)
    }

    /// Returns the observations with only these directories recorded by their distance from the
    /// root. Any other directory is recorded by its path, because it may be a path that a text
    /// names.
    pub fn set_moving(&self, moving: &[Vec<u8>]) -> ObservationSet<'_> {
        self.set_if(|encoded| moving.iter().any(|path| path == encoded))
    }

    fn set_if<'s>(&'s self, moves: impl Fn(&[u8]) -> bool) -> ObservationSet<'s> {
        let as_recorded = |encoded: &'s Vec<u8>, above_root: &'s Option<Vec<u8>>| {
            above_root.as_ref().filter(|_| !moves(encoded)).unwrap_or(encoded)
        };
        let mut set = ObservationSet::default();
        let mut looked_at: Vec<(u64, u64)> = Vec::new();
        for (path, directory) in &self.directories {
            if directory.facts.is_empty() && directory.absent.is_empty() && !directory.wanted {
                continue;
            }
            let path = as_recorded(path, &directory.above_root);
            let links = match &directory.real {
                _ if !directory.links_matter => Links::Any,
                None => Links::None,
                Some(real) => Links::Real(real),
            };
            let facts = directory.facts.iter().map(|((name, _), fact)| NamedFact { name, fact: fact.borrowed() });
            let class = if directory.identified { class_of(&mut looked_at, directory.identity) } else { 0 };
            set.directories.push(DirFacts {
                path,
                links,
                class,
                facts: facts.collect(),
                absent: directory.absent.iter().map(Vec::as_slice).collect(),
            });
        }
        for ([a, b], same_file, same_time) in &self.twins {
            set.twins.push(Twins { paths: [a, b], same_file: *same_file, same_time: *same_time });
        }
        let age = |(path, age): (&'s Vec<u8>, &'s OwnedAge)| (as_recorded(path, &age.above_root), age.modified_ns);
        let mut ages: Vec<(&Vec<u8>, i64)> = self.ages.iter().map(age).collect();
        ages.sort_by_key(|(_, modified_ns)| *modified_ns);
        let mut before = None;
        for (path, modified_ns) in ages {
            set.ages.push(Age { path, same: before == Some(modified_ns) });
            before = Some(modified_ns);
        }
        set.environment = self.environment.iter().map(|(name, value)| EnvFact { name, value: *value }).collect();
        set
    }
}

/// Adds a directory to `seen`. Returns one more than the index of the first element of `seen` that
/// is the same directory.
pub(crate) fn class_of(seen: &mut Vec<(u64, u64)>, identity: (u64, u64)) -> u64 {
    seen.push(identity);
    seen.iter().position(|other| *other == identity).map_or(0, |first| first as u64 + 1)
}

impl OwnedFact {
    /// Returns the kind of the fact. For one name, at most one fact of each kind is kept.
    pub(super) fn way(&self) -> u8 {
        match self.borrowed() {
            Fact::Content { .. } | Fact::Directory | Fact::Other(_) => 0,
            Fact::Link(_) => 1,
            Fact::Error { operation, .. } => 2 + operation,
            Fact::Listing(_) => 0xff,
            Fact::Ordered(_) => 0xfe,
            Fact::Modified(_) => 0xfd,
            Fact::Mode(_) => 0xfb,
            Fact::Status(_) => 0xfc,
            Fact::Kinds(_) => 0xfa,
            Fact::Belongs { .. } => 0xf9,
        }
    }

    fn borrowed(&self) -> Fact<'_> {
        match self {
            OwnedFact::Link(target) => Fact::Link(target),
            OwnedFact::Plain(fact) => fact.clone(),
        }
    }
}
