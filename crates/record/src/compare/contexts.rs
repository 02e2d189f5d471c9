//! Lists what differs between the contexts of two records, part by part.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use crate::directory::Record;
use crate::schema::{Git, Machine, Tool};

/// A part of the context, in which two records can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Processor, memory, kernel and limits.
    Machine,
    /// Compilers and build tools.
    Tools,
    /// The project's commit, and its uncommitted changes.
    Project,
    /// The command.
    Command,
    /// Environment variables.
    Environment,
    /// larder's settings.
    Configuration,
    /// larder's programs.
    Larder,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 7] = [
        Part::Machine,
        Part::Tools,
        Part::Project,
        Part::Command,
        Part::Environment,
        Part::Configuration,
        Part::Larder,
    ];

    /// Returns the name of the part, as it is written and shown.
    pub fn name(self) -> &'static str {
        ["machine", "tools", "project", "command", "environment", "configuration", "larder"][self as usize]
    }

    /// Returns the part with this name.
    pub fn named(name: &str) -> Option<Part> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }

    /// Returns true if a difference in this part makes a verdict meaningless, unless the user
    /// expects it. Differences in the other parts are what people want to compare.
    pub fn blocks(self) -> bool {
        matches!(self, Part::Machine | Part::Tools | Part::Project)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// The part.
    pub part: Part,
    /// The name of the value that differs.
    pub what: String,
    /// The values in A and in B.
    pub values: [String; 2],
}

/// Returns all differences, those that block a verdict first.
pub(super) fn unlike(a: &Record, b: &Record) -> Vec<Unlike> {
    let mut found = UnlikeValues::default();
    found.texts(Part::Machine, machine(&a.context.machine), machine(&b.context.machine));
    found.texts(Part::Tools, tools(&a.context.tools), tools(&b.context.tools));
    found.texts(Part::Project, git(a.context.project.as_ref()), git(b.context.project.as_ref()));
    let command = |record: &Record| {
        let header = &record.header;
        let prepare = header.prepare.clone().unwrap_or_default();
        texts([("command", header.command.join(" ")), ("directory", header.cwd.clone()), ("prepare", prepare)])
    };
    found.texts(Part::Command, command(a), command(b));
    found.texts(Part::Environment, a.header.environment.clone(), b.header.environment.clone());
    let digest = |all: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        all.iter().map(|(name, digest)| (name.clone(), format!("(digest {digest})"))).collect()
    };
    found.texts(Part::Environment, digest(&a.header.environment_digests), digest(&b.header.environment_digests));
    let settings = |record: &Record| -> BTreeMap<String, String> {
        record
            .context
            .configuration
            .iter()
            .map(|one| (one.key.clone(), format!("{} ({})", one.value, one.source)))
            .collect()
    };
    found.texts(Part::Configuration, settings(a), settings(b));
    let larder = |record: &Record| {
        let mut all: BTreeMap<String, String> = texts([("version", record.header.larder.clone())]);
        // A name may have several digests: the recorder's own program, and those that the command
        // names.
        let mut named: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for (path, digest) in &record.context.binaries {
            let name = path.rsplit('/').next().unwrap_or(path);
            named.entry(name.to_owned()).or_default().insert(digest);
        }
        let listed = |digests: BTreeSet<&str>| digests.into_iter().collect::<Vec<_>>().join(", ");
        all.extend(named.into_iter().map(|(name, digests)| (name, listed(digests))));
        all.extend(git(record.context.larder.as_ref()));
        all
    };
    found.texts(Part::Larder, larder(a), larder(b));
    found.0
}

#[derive(Default)]
struct UnlikeValues(Vec<Unlike>);

impl UnlikeValues {
    fn texts(&mut self, part: Part, a: BTreeMap<String, String>, b: BTreeMap<String, String>) {
        let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for name in names {
            let values = [a.get(name).cloned().unwrap_or_default(), b.get(name).cloned().unwrap_or_default()];
            if values[0] != values[1] {
                self.0.push(Unlike { part, what: name.clone(), values });
            }
        }
    }
}

fn texts<const N: usize>(all: [(&str, String); N]) -> BTreeMap<String, String> {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn machine(machine: &Machine) -> BTreeMap<String, String> {
    let Machine { host, kernel, system, boot, processor, processors, hypervisor, governor, boost, .. } =
        machine.clone();
    let mut all = texts([
        ("host", host),
        ("kernel", kernel),
        ("system", system),
        ("boot", boot),
        ("processor", processor),
        ("processors", processors.to_string()),
        ("hypervisor", hypervisor.to_string()),
        ("governor", governor),
        ("boost", boost),
        ("memory", machine.memory_bytes.to_string()),
        ("swap", machine.swap_bytes.to_string()),
        ("huge pages", format!("{}, {} kept", machine.huge_pages, machine.huge_pages_kept)),
        ("container", machine.container.clone()),
    ]);
    all.extend(machine.file_systems.iter().map(|(what, system)| (format!("file system of {what}"), system.clone())));
    all.extend(machine.limits.iter().map(|(what, limit)| (format!("limit {what}"), limit.clone())));
    all
}

fn tools(tools: &[Tool]) -> BTreeMap<String, String> {
    tools.iter().map(|tool| (tool.name.clone(), format!("{} {} ({})", tool.path, tool.version, tool.digest))).collect()
}

fn git(git: Option<&Git>) -> BTreeMap<String, String> {
    let Some(git) = git else { return BTreeMap::new() };
    texts([("commit", git.head.clone()), ("uncommitted changes", git.diff_digest.clone())])
}
