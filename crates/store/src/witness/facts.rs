//! What was witnessed, and how it is encoded.

use std::collections::BTreeMap;

use larder_model::{Age, Digest, DirFacts, EnvFact, Fact, Links, NamedFact, ObservationSet, Status, Twins};
use larder_sys::Look;

/// A set of observations that owns its bytes.
#[derive(Debug, Default)]
pub struct Witnessed {
    pub(super) directories: BTreeMap<Vec<u8>, Directory>,
    pub(super) environment: Vec<(Vec<u8>, Option<Digest>)>,
    pub(super) twins: Vec<([Vec<u8>; 2], bool, bool)>,
    /// Paths whose times were compared, with those.
    pub(super) ages: BTreeMap<Vec<u8>, i64>,
    pub(super) carried: Carried,
}

/// What inputs hold that could carry the path of this place into a result: of each kind but one the first input that
/// holds it.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Texts that were generated here, all of them: a path in each, which is another one elsewhere.
    pub rooted: Vec<Vec<u8>>,
    /// Of these, a text in which it stands elsewhere than in a line for the preprocessor.
    pub loose: Option<Vec<u8>>,
    /// A path that stays the same elsewhere.
    pub fixed: Option<Vec<u8>>,
    /// A word that becomes the name of a file.
    pub names_files: Option<Vec<u8>>,
    /// Objects counted for what they are in any place.
    pub objects: bool,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Which directory it is.
    pub(super) identity: (u64, u64),
    pub(super) real: Option<Vec<u8>>,
    pub(super) links_matter: bool,
    pub(super) wanted: bool,
    /// What the file system said of it, where it has not changed since before the run and would show it.
    pub(super) unchanged: Option<Look>,
    pub(super) facts: BTreeMap<(Vec<u8>, u8), OwnedFact>,
    pub(super) absent: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum OwnedFact {
    Content { digest: Digest, executable: bool, plain: bool, rooted: Option<Digest> },
    Directory,
    Link(Vec<u8>),
    Error(u8, u32),
    Listing(Digest),
    Ordered(Digest),
    Kinds(Digest),
    Modified(i64),
    Mode(u32),
    Status(Status),
    Other(u8),
}

impl Witnessed {
    /// What inputs hold that could carry the path of this place into a result.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// As it is encoded.
    pub fn set(&self) -> ObservationSet<'_> {
        let mut set = ObservationSet::default();
        let mut looked_at: Vec<(u64, u64)> = Vec::new();
        for (path, directory) in &self.directories {
            if directory.facts.is_empty() && directory.absent.is_empty() && !directory.wanted {
                continue;
            }
            let links = match &directory.real {
                _ if !directory.links_matter => Links::Any,
                None => Links::None,
                Some(real) => Links::Real(real),
            };
            let facts = directory.facts.iter().map(|((name, _), fact)| NamedFact { name, fact: fact.borrowed() });
            let class = if directory.wanted { class_of(&mut looked_at, directory.identity) } else { 0 };
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
        let mut ages: Vec<(&Vec<u8>, i64)> = self.ages.iter().map(|(path, modified_ns)| (path, *modified_ns)).collect();
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

/// One more than the place of the first directory that is this one, among those seen so far, to which it is added.
pub(crate) fn class_of(seen: &mut Vec<(u64, u64)>, identity: (u64, u64)) -> u64 {
    seen.push(identity);
    seen.iter().position(|other| *other == identity).map_or(0, |first| first as u64 + 1)
}

impl OwnedFact {
    /// One fact of each way is kept of a name.
    pub(super) fn way(&self) -> u8 {
        match self {
            OwnedFact::Content { .. } | OwnedFact::Directory | OwnedFact::Other(_) => 0,
            OwnedFact::Link(_) => 1,
            OwnedFact::Error(operation, _) => 2 + operation,
            OwnedFact::Listing(_) => 0xff,
            OwnedFact::Ordered(_) => 0xfe,
            OwnedFact::Modified(_) => 0xfd,
            OwnedFact::Mode(_) => 0xfb,
            OwnedFact::Status(_) => 0xfc,
            OwnedFact::Kinds(_) => 0xfa,
        }
    }

    fn borrowed(&self) -> Fact<'_> {
        match self {
            OwnedFact::Content { digest, executable, plain, rooted } => {
                Fact::Content { digest: *digest, executable: *executable, plain: *plain, rooted: *rooted }
            }
            OwnedFact::Directory => Fact::Directory,
            OwnedFact::Link(target) => Fact::Link(target),
            OwnedFact::Error(operation, errno) => Fact::Error { operation: *operation, errno: *errno },
            OwnedFact::Listing(digest) => Fact::Listing(*digest),
            OwnedFact::Ordered(digest) => Fact::Ordered(*digest),
            OwnedFact::Kinds(digest) => Fact::Kinds(*digest),
            OwnedFact::Modified(modified_ns) => Fact::Modified(*modified_ns),
            OwnedFact::Mode(mode) => Fact::Mode(*mode),
            OwnedFact::Status(status) => Fact::Status(*status),
            OwnedFact::Other(kind) => Fact::Other(*kind),
        }
    }
}
