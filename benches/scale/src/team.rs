//! A team: what its commits change, which machines build when. The same seed gives the same team.
//!
//! Unaware of: caches, remotes.

use larder_samples::Drawn;

/// A version of a unit: a source with all that its compile reads. Each has a record of its own.
pub(crate) type Version = u32;

/// What kind of team it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Team {
    pub(crate) machines: usize,
    /// Builds of each machine a day.
    pub(crate) builds: usize,
    pub(crate) days: usize,
    /// Units of the project.
    pub(crate) units: usize,
}

/// Of ten machines so many are CI's: each of their builds begins with an empty store. The others are developers'.
const CI_OF_TEN: usize = 4;
/// Commits that a developer lands a day.
const COMMITS_A_DAY: usize = 2;
/// Of ten builds of a developer so many are of a newer commit than the one before it.
const PULLS_OF_TEN: usize = 2;
/// Units that a developer changes between two builds, at most.
const EDITED_MAX: usize = 6;
const DAY_S: u64 = 24 * 3600;

/// One build.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) at_s: u64,
    pub(crate) machine: usize,
    /// Its store is empty.
    pub(crate) fresh: bool,
    /// Which commit it is of, as it is or with changes of one's own.
    pub(crate) commit: usize,
    /// The versions that it asks for: those that differ from what this machine built before.
    pub(crate) asks: Vec<Version>,
}

/// What a team does, in the order of time.
pub(crate) struct Work {
    pub(crate) builds: Vec<Build>,
    /// The unit of each version.
    pub(crate) unit_of: Vec<u32>,
    /// How many units there are.
    pub(crate) units: usize,
}

struct Commits {
    /// When each landed.
    at_s: Vec<u64>,
    /// The version of each unit, commit by commit.
    tree: Vec<Vec<Version>>,
}

impl Team {
    pub(crate) fn work(&self, seed: u64) -> Work {
        let mut drawn = Drawn::from(seed);
        let mut versions: Vec<u32> = (0..self.units as u32).collect();
        let commits = self.commits(&mut drawn, &mut versions);
        let mut starts: Vec<(u64, usize)> = Vec::new();
        for machine in 0..self.machines {
            let all = self.builds * self.days;
            starts.extend((0..all).map(|_| (drawn.below(self.days * DAY_S as usize) as u64, machine)));
        }
        starts.sort_unstable();
        let mut desks: Vec<Option<Desk>> = vec![None; self.machines];
        let builds = starts
            .into_iter()
            .map(|(at_s, machine)| {
                let newest = commits.at_s.partition_point(|landed| *landed <= at_s) - 1;
                if machine * CI_OF_TEN % 10 < CI_OF_TEN {
                    return Build { at_s, machine, fresh: true, commit: newest, asks: commits.tree[newest].clone() };
                }
                let (commit, asks) = edit(&mut desks[machine], &commits, newest, &mut drawn, &mut versions);
                Build { at_s, machine, fresh: false, commit, asks }
            })
            .collect();
        Work { builds, unit_of: versions, units: self.units }
    }

    fn commits(&self, drawn: &mut Drawn, versions: &mut Vec<u32>) -> Commits {
        let developers = (self.machines * (10 - CI_OF_TEN)).div_ceil(10);
        let count = developers * COMMITS_A_DAY * self.days;
        let mut at_s: Vec<u64> = (0..count).map(|_| drawn.below(self.days * DAY_S as usize) as u64).collect();
        at_s.push(0);
        at_s.sort_unstable();
        let mut now: Vec<Version> = (0..self.units as Version).collect();
        let mut tree = vec![now.clone()];
        for _ in 1..at_s.len() {
            for _ in 0..changed(self.units, drawn) {
                change(&mut now, drawn.below(self.units), versions);
            }
            tree.push(now.clone());
        }
        Commits { at_s, tree }
    }
}

fn change(now: &mut [Version], unit: usize, versions: &mut Vec<u32>) {
    now[unit] = versions.len() as Version;
    versions.push(unit as u32);
}

/// How many units a commit changes: most few, some a header that many read.
fn changed(units: usize, drawn: &mut Drawn) -> usize {
    match drawn.below(100) {
        0..80 => 1 + drawn.below(10),
        80..95 => 10 + drawn.below(90),
        _ => units / 10 + drawn.below(units / 2),
    }
}

/// What lies on a developer's desk: the commit, and the versions that were built last.
#[derive(Clone)]
struct Desk {
    commit: usize,
    built: Vec<Version>,
}

/// The next build of a developer: of a newer commit now and then, with changes of one's own.
fn edit(
    desk: &mut Option<Desk>,
    commits: &Commits,
    newest: usize,
    drawn: &mut Drawn,
    versions: &mut Vec<u32>,
) -> (usize, Vec<Version>) {
    let pulls = drawn.below(10) < PULLS_OF_TEN;
    let commit = desk.as_ref().map_or(newest, |desk| if pulls { newest } else { desk.commit });
    let mut now = match desk.as_ref() {
        Some(desk) if desk.commit == commit => desk.built.clone(),
        _ => commits.tree[commit].clone(),
    };
    for _ in 0..drawn.below(EDITED_MAX + 1) {
        let unit = drawn.below(now.len());
        change(&mut now, unit, versions);
    }
    // What was built before and is as it was, `make` does not ask for.
    let before = desk.take().map(|desk| desk.built);
    let differs = |(unit, version): (usize, &Version)| before.as_ref().is_none_or(|before| before[unit] != *version);
    let asks = now.iter().enumerate().filter(|one| differs(*one)).map(|(_, version)| *version).collect();
    *desk = Some(Desk { commit, built: now });
    (commit, asks)
}
