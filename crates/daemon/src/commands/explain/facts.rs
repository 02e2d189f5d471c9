//! Describes in words what a record relies on and which outputs it has.

use larder_model::{
    ALL_VARIABLES, DirFacts, EnvFact, Fact, INHERITED, JOB_VARIABLES, Links, NamedFact, ObservationSet, OfHistory,
    OutputKind, Roots, SIGNALS, SOCKETS, Status, UMASK, looked_for_along_path, of_host_field,
};

use super::secret;
use crate::say;

/// The number of facts of each kind on which a record relies.
#[derive(Default)]
pub(super) struct FactCounts {
    pub(super) in_directories: usize,
    pub(super) files: usize,
    pub(super) directories: usize,
    pub(super) links: usize,
    pub(super) listings: usize,
    /// Facts about modes, mtimes and owners.
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
                    Fact::Error { .. } | Fact::Other(_) | Fact::Belongs { .. } => &mut counts.others,
                } += 1;
            }
        }
        counts
    }
}

/// Returns one line for each fact.
pub(super) fn lines(set: &ObservationSet, roots: &Roots) -> Vec<String> {
    let mut lines: Vec<String> = set.environment.iter().map(variable).collect();
    for directory in &set.directories {
        directory_lines(directory, roots, &mut lines);
    }
    lines
}

/// Returns a description of a name in the environment facts that is no variable, for example
/// [`UMASK`].
pub(super) fn inherited(name: &[u8]) -> Option<&'static str> {
    match name {
        b"" => Some("all keyed variables"),
        ALL_VARIABLES => Some("all variables"),
        JOB_VARIABLES => Some("variables of the CI service"),
        name if OfHistory::of_fact_name(name).is_some() => Some("a variable that differs between jobs or shells"),
        UMASK => Some("the umask"),
        SOCKETS => Some("the available kinds of sockets"),
        name if of_host_field(name).is_some() => Some("a field of the output of uname"),
        SIGNALS => Some("ignored signals and niceness"),
        INHERITED => Some("limits, users and allowed processors"),
        name if looked_for_along_path(name).is_some() => Some("directories of PATH with programs that were looked for"),
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
    for NamedFact { name, fact } in &directory.facts {
        let (kind, what) = fact_words(fact, roots);
        lines.push(format!("{kind:<10} {}{what}", joined(&path, name)));
    }
    lines.extend(directory.absent.iter().map(|name| format!("absent     {}", joined(&path, name))));
}

/// Joins a directory and a name. If the name is empty, returns the directory.
pub(super) fn joined(directory: &str, name: &[u8]) -> String {
    match (name.is_empty(), directory.ends_with('/')) {
        (true, _) => directory.to_owned(),
        (false, true) => format!("{directory}{}", say::clean(name)),
        (false, false) => format!("{directory}/{}", say::clean(name)),
    }
}

/// Describes a fact about this path, for use within a sentence.
pub(super) fn fact_line(path: &str, fact: &Fact, roots: &Roots) -> String {
    let (kind, what) = fact_words(fact, roots);
    format!("{kind} {path}{what}")
}

/// Returns the words before and after the path.
fn fact_words(fact: &Fact, roots: &Roots) -> (&'static str, String) {
    match fact {
        Fact::Content { digest, executable, .. } => {
            (if *executable { "program" } else { "file" }, format!(", content {}", secret::short(digest)))
        }
        Fact::Directory => ("directory", String::new()),
        Fact::Link(target) => ("link", format!(" → {}", local(target, roots))),
        Fact::Error { operation: Fact::OWNER, errno: owner } => ("owner of", format!(", user {owner}")),
        Fact::Error { operation, errno: 0 } => {
            let rights = [(4, "reading"), (2, "writing"), (1, "executing")];
            let rights: Vec<&str> =
                rights.iter().filter(|(bit, _)| operation & bit != 0).map(|(_, word)| *word).collect();
            ("permitted", format!(", {}", rights.join(" and ")))
        }
        Fact::Error { errno, .. } => ("error", format!(": {}", std::io::Error::from_raw_os_error(*errno as i32))),
        Fact::Listing(digest) => ("listing", format!(", names {}", secret::short(digest))),
        Fact::Ordered(digest) => ("listing", format!(", names in order {}", secret::short(digest))),
        Fact::Kinds(digest) => ("listing", format!(", names and kinds {}", secret::short(digest))),
        Fact::Mode(mode) => ("mode", format!(", {mode:o}")),
        Fact::Modified(ns) => ("modified", format!(", at {}", seconds(*ns))),
        Fact::Belongs { owner, group, links } => {
            let names = links.map_or_else(String::new, |links| format!(", names {links}"));
            ("owner of", format!(", {owner}:{group}{names}"))
        }
        Fact::Status(status) => {
            let Status { mode, owner, group, links, modified_ns, size_bytes, .. } = status;
            let at = seconds(*modified_ns);
            let whose = format!("owner {owner}:{group}, names {links}");
            ("status", format!(", modified at {at}, {size_bytes} bytes, mode {mode:o}, {whose}"))
        }
        Fact::Other(_) => ("special", String::new()),
    }
}

pub(super) fn seconds(nanoseconds: i64) -> String {
    format!("{:.9} s since 1970", nanoseconds as f64 / 1e9)
}

/// Decodes a path of a record: its placeholders become the roots of this checkout.
pub(super) fn local(encoded: &[u8], roots: &Roots) -> String {
    let mut path = Vec::new();
    if roots.decode_path(encoded, &mut path) { say::clean(&path) } else { say::clean(encoded) }
}

/// Returns the kind of an output in words, and its size in bytes if it is a file.
pub(super) fn output_kind(kind: &OutputKind) -> (&'static str, Option<u64>) {
    match kind {
        OutputKind::File { content, .. } => ("file", Some(content.size_bytes())),
        OutputKind::Link(_) => ("link", None),
        OutputKind::Directory(_) => ("directory", None),
        OutputKind::Removed => ("removed", None),
    }
}
