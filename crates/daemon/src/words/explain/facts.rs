//! What a record relies on and leaves behind, in words.

use larder_model::{
    ALL_VARIABLES, DirFacts, EnvFact, Fact, HOST, Links, ObservationSet, OutputKind, Roots, SOCKETS, Status, UMASK,
};

use super::secret;
use crate::say;

/// How many facts of each kind a record relies on.
#[derive(Default)]
pub(super) struct FactCounts {
    pub(super) in_directories: usize,
    pub(super) files: usize,
    pub(super) directories: usize,
    pub(super) links: usize,
    pub(super) listings: usize,
    /// Times and owners.
    pub(super) times: usize,
    pub(super) others: usize,
    pub(super) absences: usize,
    pub(super) variables: usize,
}

impl FactCounts {
    pub(super) fn of(set: &ObservationSet) -> FactCounts {
        let mut counts = FactCounts {
            in_directories: set.directories.len(),
            variables: set.environment.len(),
            ..FactCounts::default()
        };
        for directory in &set.directories {
            counts.absences += directory.absent.len();
            for named in &directory.facts {
                *match named.fact {
                    Fact::Content { .. } => &mut counts.files,
                    Fact::Directory => &mut counts.directories,
                    Fact::Link(_) => &mut counts.links,
                    Fact::Listing(_) | Fact::Ordered(_) | Fact::Kinds(_) => &mut counts.listings,
                    Fact::Mode(_) | Fact::Modified(_) | Fact::Status(_) => &mut counts.times,
                    Fact::Error { .. } | Fact::Other(_) => &mut counts.others,
                } += 1;
            }
        }
        counts
    }
}

/// A line a fact.
pub(super) fn lines(set: &ObservationSet, roots: &Roots) -> Vec<String> {
    let mut lines: Vec<String> = set.environment.iter().map(variable).collect();
    for directory in &set.directories {
        directory_lines(directory, roots, &mut lines);
    }
    lines
}

/// What is called so in a record that is no variable.
pub(super) fn inherited(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("all keyed variables"),
        ALL_VARIABLES => Some("all variables"),
        UMASK => Some("the umask"),
        HOST => Some("what uname says"),
        SOCKETS => Some("which sockets can be had"),
        _ => None,
    }
}

fn variable(fact: &EnvFact) -> String {
    let name = inherited(fact.name).map_or_else(|| say::clean(fact.name), |what| format!("({what})"));
    match &fact.value {
        Some(digest) => format!("variable   {name}, a value with digest {}", secret::short(digest)),
        None => format!("variable   {name}, not set"),
    }
}

fn directory_lines(directory: &DirFacts, roots: &Roots, lines: &mut Vec<String>) {
    let path = local(directory.path, roots);
    match directory.links {
        Links::Any => {}
        Links::None => lines.push(format!("no links   in {path}")),
        Links::Real(real) => lines.push(format!("leads to   {path} → {}", local(real, roots))),
    }
    let named = |name: &[u8]| match (name.is_empty(), path.ends_with('/')) {
        (true, _) => path.clone(),
        (false, true) => format!("{path}{}", say::clean(name)),
        (false, false) => format!("{path}/{}", say::clean(name)),
    };
    for fact in &directory.facts {
        let path = named(fact.name);
        lines.push(match &fact.fact {
            Fact::Content { digest, executable, .. } => {
                let kind = if *executable { "program" } else { "file" };
                format!("{kind:<10} {path}, content {}", secret::short(digest))
            }
            Fact::Directory => format!("directory  {path}"),
            Fact::Link(target) => format!("link       {path} → {}", local(target, roots)),
            Fact::Error { errno, .. } => {
                format!("error      {path}: {}", std::io::Error::from_raw_os_error(*errno as i32))
            }
            Fact::Listing(digest) => format!("listing    {path}, names {}", secret::short(digest)),
            Fact::Ordered(digest) => format!("listing    {path}, names in order {}", secret::short(digest)),
            Fact::Kinds(digest) => format!("listing    {path}, names and kinds {}", secret::short(digest)),
            Fact::Mode(mode) => format!("mode       {path}, {mode:o}"),
            Fact::Modified(ns) => format!("modified   {path}, at {}", seconds(*ns)),
            Fact::Status(status) => {
                let Status { mode, owner, group, links, modified_ns, .. } = status;
                let at = seconds(*modified_ns);
                format!("status     {path}, modified at {at}, mode {mode:o}, owner {owner}:{group}, names {links}")
            }
            Fact::Other(_) => format!("special    {path}"),
        });
    }
    lines.extend(directory.absent.iter().map(|name| format!("absent     {}", named(name))));
}

fn seconds(nanoseconds: i64) -> String {
    format!("{:.9} s since 1970", nanoseconds as f64 / 1e9)
}

/// A path of a record as it is in this place.
pub(super) fn local(encoded: &[u8], roots: &Roots) -> String {
    let mut path = Vec::new();
    if roots.decode_path(encoded, &mut path) { say::clean(&path) } else { say::clean(encoded) }
}

/// What an output is, and its size where it has one.
pub(super) fn output_kind(kind: &OutputKind) -> (&'static str, Option<u64>) {
    match kind {
        OutputKind::File { content, .. } => ("file", Some(content.size_bytes())),
        OutputKind::Link(_) => ("link", None),
        OutputKind::Directory(_) => ("directory", None),
        OutputKind::Removed => ("removed", None),
    }
}
