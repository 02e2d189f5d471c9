//! What a remote sees of a team's builds, by how they ask: one record at a time, a commit's list ahead, bundles ahead.
//!
//! Unaware of: what it costs, how it is shown.

use std::collections::HashMap;

use crate::team::{Build, Version, Work};

/// How builds ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// For each record when it is needed.
    Asked,
    /// For all that a commit's list names, before it is needed, one record at a time.
    Ahead,
    /// The same, in bundles.
    Bundles,
}

/// Sizes and times, as they were measured (docs/scale.md says where).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// A record and its outputs, bytes.
    pub(crate) unit_bytes: u64,
    /// By what a bundle is smaller.
    pub(crate) packs_by: u64,
    /// A bundle, at most, bytes.
    pub(crate) bundle_bytes: u64,
    /// How long a build takes before others find what it recorded.
    pub(crate) published_s: u64,
}

/// What a remote saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) gets: u64,
    pub(crate) puts: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) asked: u64,
    /// Answered by a machine's own store, or by what came ahead into it.
    pub(crate) local: u64,
    /// Of these, so many by what came ahead.
    pub(crate) ahead: u64,
    /// Answered by the remote when they were asked for.
    pub(crate) remote: u64,
    pub(crate) runs: u64,
    /// Round trips that somebody waited for, of all builds.
    pub(crate) waited: u64,
    pub(crate) builds: u64,
}

/// Commits of which a list is asked for, beginning with one's own (`daemon/src/remote/places.rs`).
const COMMITS_ASKED: usize = 12;
/// Compilers at once: so many wait for a round trip together.
const AT_ONCE: u64 = 16;
/// With so many small bundles they are made into larger ones (`remote/src/used.rs`).
const SMALL_ONES_MAX: usize = 32;
/// Of a bundle so many are wanted at least, one in so many, or these come one by one (`daemon/src/remote/ahead.rs`).
const WANTED_OF: usize = 8;
/// A record that is asked for: its list, then what it needs.
const GETS_OF_RECORD: u64 = 2;
/// A record that is published: whether its output is there and its list are asked, both are put.
const GETS_TO_PUBLISH: u64 = 2;
const PUTS_TO_PUBLISH: u64 = 2;

/// The list of a commit: the newest version of each unit that it names, and the bundles, oldest first.
#[derive(Clone)]
struct List {
    names: Vec<Option<Version>>,
    bundles: Vec<usize>,
}

/// A remote, and the stores of all machines.
struct World<'a> {
    way: Way,
    measured: &'a Measured,
    unit_of: &'a [u32],
    /// When others find a version there; none before it was published.
    since_s: Vec<Option<u64>>,
    /// Which machine's store has which version.
    stores: Vec<Bits>,
    /// Which has any version of a unit.
    units: Vec<Bits>,
    /// In which build a version came ahead.
    came_in: Vec<u64>,
    lists: HashMap<usize, List>,
    bundles: Vec<Vec<Version>>,
    seen: Seen,
}

/// A bit for each number.
#[derive(Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, number: u32) -> bool {
        self.0[number as usize / 64] >> (number % 64) & 1 == 1
    }

    fn set(&mut self, number: u32) {
        self.0[number as usize / 64] |= 1 << (number % 64);
    }
}

/// Let a team work.
pub(crate) fn seen(work: &Work, way: Way, measured: &Measured) -> Seen {
    let machines = work.builds.iter().map(|build| build.machine + 1).max().unwrap_or(0);
    let bits = |count: usize| vec![Bits(vec![0; count.div_ceil(64)]); machines];
    let versions = work.unit_of.len();
    let mut world = World {
        way,
        measured,
        unit_of: &work.unit_of,
        since_s: vec![None; versions],
        stores: bits(versions),
        units: bits(work.units),
        came_in: vec![0; versions],
        lists: HashMap::new(),
        bundles: Vec::new(),
        seen: Seen::default(),
    };
    let none = List { names: vec![None; work.units], bundles: Vec::new() };
    work.builds.iter().for_each(|build| world.build(build, &none));
    world.seen
}

impl World<'_> {
    fn build(&mut self, build: &Build, none: &List) {
        self.seen.builds += 1;
        if build.fresh {
            self.stores[build.machine].0.fill(0);
            self.units[build.machine].0.fill(0);
        }
        self.seen.asked += build.asks.len() as u64;
        let lacks = build.asks.iter().any(|version| !self.stores[build.machine].has(*version));
        let list = (lacks && self.way != Way::Asked).then(|| self.begin(build, none));
        let (mut waits, mut recorded) = (0, Vec::new());
        for &version in &build.asks {
            if self.stores[build.machine].has(version) {
                self.seen.local += 1;
                self.seen.ahead += u64::from(self.came_in[version as usize] == self.seen.builds);
                continue;
            }
            waits += 1;
            self.seen.gets += 1;
            if self.is_there(version, build.at_s) {
                self.seen.gets += GETS_OF_RECORD - 1;
                self.seen.bytes_out += self.measured.unit_bytes;
                self.seen.remote += 1;
                waits += GETS_OF_RECORD - 1;
            } else {
                self.seen.runs += 1;
                self.publish(version, build.at_s);
                recorded.push(version);
            }
            self.keep(build.machine, version);
        }
        self.seen.waited += u64::div_ceil(waits, AT_ONCE);
        if let Some(list) = list.filter(|_| !recorded.is_empty()) {
            self.end(build, list, &recorded);
        }
    }

    /// The newest list of these commits, and what it names into the store.
    fn begin(&mut self, build: &Build, none: &List) -> List {
        let first = (build.commit + 1).saturating_sub(COMMITS_ASKED);
        self.seen.gets += (build.commit + 1 - first) as u64;
        self.seen.waited += 1;
        let found = (first..=build.commit).rev().find_map(|commit| self.lists.get(&commit).cloned());
        let Some(list) = found else { return none.clone() };
        if self.way == Way::Bundles {
            self.seen.waited += 1;
            for &bundle in list.bundles.iter().rev() {
                self.open(build, &list, bundle);
            }
        }
        // Without bundles it is not known which version is the newest: only what no record is here of at all.
        let lacks = |version: &Version| match self.way {
            Way::Bundles => !self.stores[build.machine].has(*version),
            _ => !self.units[build.machine].has(self.unit_of[*version as usize]),
        };
        let rest: Vec<Version> = list.names.iter().flatten().copied().filter(lacks).collect();
        let rest: Vec<Version> = rest.into_iter().filter(|version| self.is_there(*version, build.at_s)).collect();
        // They come while the build goes on; it waits for the first of them.
        self.seen.waited += if rest.is_empty() { 0 } else { GETS_OF_RECORD };
        self.seen.gets += rest.len() as u64 * GETS_OF_RECORD;
        self.seen.bytes_out += rest.len() as u64 * self.measured.unit_bytes;
        rest.iter().for_each(|version| self.came(build, *version));
        list
    }

    /// A bundle, where it holds the newest of something that the store lacks.
    fn open(&mut self, build: &Build, list: &List, bundle: usize) {
        let held = std::mem::take(&mut self.bundles[bundle]);
        let lacks = |version: &Version| {
            let newest = list.names[self.unit_of[*version as usize] as usize] == Some(*version);
            newest && !self.stores[build.machine].has(*version) && self.is_there(*version, build.at_s)
        };
        let wanted: Vec<Version> = held.iter().copied().filter(lacks).collect();
        if wanted.len() * WANTED_OF >= held.len() {
            self.seen.gets += 1;
            self.seen.bytes_out += held.len() as u64 * self.measured.unit_bytes / self.measured.packs_by;
            wanted.iter().for_each(|version| self.came(build, *version));
        }
        self.bundles[bundle] = held;
    }

    fn came(&mut self, build: &Build, version: Version) {
        self.keep(build.machine, version);
        self.came_in[version as usize] = self.seen.builds;
    }

    fn publish(&mut self, version: Version, at_s: u64) {
        self.since_s[version as usize].get_or_insert(at_s + self.measured.published_s);
        self.seen.gets += GETS_TO_PUBLISH;
        self.seen.puts += PUTS_TO_PUBLISH;
        self.seen.bytes_in += self.measured.unit_bytes;
    }

    /// The commit's list grows by what was recorded.
    fn end(&mut self, build: &Build, base: List, recorded: &[Version]) {
        let mut list = self.lists.remove(&build.commit).unwrap_or(base);
        self.seen.gets += 1;
        self.seen.puts += 1;
        recorded.iter().for_each(|&version| list.names[self.unit_of[version as usize] as usize] = Some(version));
        if self.way == Way::Bundles {
            let in_one =
                (self.measured.bundle_bytes * self.measured.packs_by / self.measured.unit_bytes).max(1) as usize;
            list.bundles.retain(|bundle| is_needed(&list.names, &self.bundles[*bundle], self.unit_of));
            let (small, large): (Vec<usize>, Vec<usize>) =
                list.bundles.iter().partition(|bundle| self.bundles[**bundle].len() < in_one / 4);
            let mut due = recorded.to_vec();
            if small.len() > SMALL_ONES_MAX {
                let again = small.iter().flat_map(|bundle| self.bundles[*bundle].iter().copied());
                due.extend(
                    again.filter(|version| list.names[self.unit_of[*version as usize] as usize] == Some(*version)),
                );
                list.bundles = large;
            }
            for chunk in due.chunks(in_one) {
                self.seen.puts += 1;
                self.seen.bytes_in += chunk.len() as u64 * self.measured.unit_bytes / self.measured.packs_by;
                list.bundles.push(self.bundles.len());
                self.bundles.push(chunk.to_vec());
            }
        }
        self.lists.insert(build.commit, list);
    }

    fn is_there(&self, version: Version, at_s: u64) -> bool {
        self.since_s[version as usize].is_some_and(|since| since <= at_s)
    }

    fn keep(&mut self, machine: usize, version: Version) {
        self.stores[machine].set(version);
        self.units[machine].set(self.unit_of[version as usize]);
    }
}

/// Whether a bundle holds the newest of something.
fn is_needed(names: &[Option<Version>], held: &[Version], unit_of: &[u32]) -> bool {
    held.iter().any(|version| names[unit_of[*version as usize] as usize] == Some(*version))
}
