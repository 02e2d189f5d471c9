//! Turns the accesses of a tool into facts, at the end of its run.
//!
//! Every path is looked up again. What is found must be what the tool saw, and no file may be as
//! new as the run, or the result is not recorded. A stamp that has a digest saves reading the file.
//!
//! Unaware of: which observer it was, what happens with the facts.

mod facts;
mod index;
mod leads;
mod open;
mod prior;
mod twins;

use std::io;

use larder_model::path::{join, split};
use larder_model::quick::{Map, Set};
use larder_model::{
    Belongs, Digest, Fact, Looked, PLACEHOLDER, Roots, Seen, Times, Unrecorded, ValueKey, names_digest,
};
use larder_sys::{Dir, FileType, Stat, Trust};

pub use self::facts::VerifiedInputs;
pub(crate) use self::facts::class_of;
use self::facts::{Directory, OwnedAge, OwnedFact};
use crate::StatCache;
use crate::current::{Listing, failure, listing, stat_in, status_of};
use crate::git_index::is_index;
use crate::scan::{Forms, Held, Scan};

/// How many symbolic links are followed from one path.
const LINKS_MAX: usize = 40;

/// A file that was read, with its identity and its mtime.
struct Source {
    path: Vec<u8>,
    file: (u64, u64),
    modified_ns: i64,
}

/// Why a run cannot be recorded, and which path shows it.
#[derive(Debug)]
pub struct Refusal {
    /// The reason, as it is counted.
    pub why: Unrecorded,
    /// The path.
    pub path: Vec<u8>,
}

/// The inputs of the verification.
pub struct InputVerifier<'a> {
    /// The roots of this place.
    pub roots: &'a Roots,
    /// The index of the root by which directories above it are recorded, if they are.
    pub recorded_above: Option<usize>,
    /// Equal content of two files counts only if gcc may read each content once.
    pub only_once_counts: bool,
    /// True if a program may notice that two paths are one file without reading it, as `cp` does.
    pub one_file_counts: bool,
    /// Special forms in which files are compared between places.
    pub forms: Forms<'a>,
    /// The stat cache.
    pub stat_cache: &'a StatCache,
    /// When the run began, in nanoseconds since 1970, by the clock of file times.
    pub started_ns: i64,
    /// True if the `stat` of a file was taken when the tool opened it, and not later.
    pub identities_are_the_tools: bool,
    /// Returns the `stat` and the content of a file before the run, if they are known and nothing
    /// but the number of its hard links has changed since.
    pub before_links: &'a dyn Fn(&Stat) -> Option<(Stat, Digest)>,
    /// The key for digests of the values of variables. It is that of the action.
    pub value_key: ValueKey,
}

/// A directory that the walk has open.
struct Opened {
    dir: Dir,
    /// No symbolic link is in its path.
    plain: bool,
    /// It has not changed since before the run, so a name that was absent then still is.
    unchanged: bool,
}

/// The walk over all paths, with the directories that are open.
struct Walk<'a> {
    witness: &'a InputVerifier<'a>,
    open: Map<Vec<u8>, Opened>,
    /// Directories that could not be opened, and the errno.
    missing: Map<Vec<u8>, i32>,
    /// Paths whose last component is absent. They are kept because tools look for many files in the
    /// same missing directory.
    absent: Set<Vec<u8>>,
    /// The files that were read, by content.
    sources: Map<Digest, Vec<Source>>,
    /// The first path of each file with several hard links.
    linked: Map<(u64, u64), Vec<u8>>,
    scan: Scan<'a>,
    set: VerifiedInputs,
    /// Names that the run added or removed, and whether each was there before.
    names: &'a [(Vec<u8>, bool)],
    /// The last components of these names.
    made_names: Set<&'a [u8]>,
}

/// A path, split into directory and name as the kernel does, without normalising it. The name is
/// empty if the path can only be a directory: `/`, or a path that ends in a slash, `.` or `..`.
#[derive(Clone, Copy)]
struct SplitPath<'p> {
    path: &'p [u8],
    directory: &'p [u8],
    name: &'p [u8],
}

impl<'p> SplitPath<'p> {
    fn of(path: &'p [u8]) -> SplitPath<'p> {
        let Some((directory, name)) = split(path) else {
            return SplitPath { path, directory: b".", name: path };
        };
        if matches!(name, b"" | b"." | b"..") {
            let end = path.iter().rposition(|&b| b != b'/').map_or(1, |last| last + 1);
            return SplitPath { path, directory: &path[..end], name: b"" };
        }
        SplitPath { path, directory, name }
    }
}

type Done = Result<(), Refusal>;

/// Returns the reason not to record an operation that failed for the tool and not for us. With EPERM
/// and ENOSYS, a seccomp profile or an old kernel refused the tool's call, as for `faccessat2`: glibc
/// uses the older call only after ENOSYS.
fn why_not_again(errno: u32) -> Unrecorded {
    const EPERM: u32 = 1;
    const ENOSYS: u32 = 38;
    if matches!(errno, EPERM | ENOSYS) { Unrecorded::Refused } else { Unrecorded::InputChanged }
}

fn refuse<T>(why: Unrecorded, path: &[u8]) -> Result<T, Refusal> {
    Err(Refusal { why, path: path.to_vec() })
}

impl InputVerifier<'_> {
    /// Returns the facts for everything in `seen`.
    pub fn witness(&self, seen: &Seen) -> Result<VerifiedInputs, Refusal> {
        let mut walk = Walk {
            witness: self,
            open: Map::default(),
            missing: Map::default(),
            absent: Set::default(),
            sources: Map::default(),
            linked: Map::default(),
            scan: Scan::new(self.roots, self.stat_cache, self.forms),
            set: VerifiedInputs::default(),
            names: &seen.names,
            made_names: seen.names.iter().map(|(path, _)| SplitPath::of(path).name).collect(),
        };
        for (path, looked) in &seen.looked {
            walk.path(path, looked, 0)?;
        }
        walk.links_to_changes();
        walk.links_above_what_was_made();
        walk.find_twins();
        let mut set = walk.set;
        for (name, value) in &seen.environment {
            let digest = value.as_ref().map(|value| self.value_key.digest(&self.roots.encode_text(value)));
            set.environment.push((name.clone(), digest));
        }
        set.environment.sort();
        set.environment.dedup();
        let now_ns = larder_sys::now_coarse_ns();
        for directory in set.directories.values_mut() {
            directory.absent.sort_unstable();
            directory.absent.dedup();
            if let (Some(stat), false) = (&directory.unchanged, directory.absent.is_empty()) {
                let names: Vec<&[u8]> = directory.absent.iter().map(Vec::as_slice).collect();
                // Such a name differs in each place.
                if names.iter().any(|name| name.contains(&PLACEHOLDER)) {
                    continue;
                }
                // The trust was asked for when the directory was opened.
                self.stat_cache.keep_absent(stat, now_ns, &names_digest(&names), || Trust::NONE);
            }
        }
        Ok(set)
    }
}

impl Walk<'_> {
    fn path(&mut self, path: &[u8], looked: &Looked, depth: usize) -> Done {
        if depth > LINKS_MAX {
            return refuse(Unrecorded::InputChanged, path);
        }
        let at = SplitPath::of(path);
        let SplitPath { directory, name, .. } = at;
        if let Err(error) = self.open(directory) {
            return self.below_missing(at, looked, &error, depth);
        }
        if looked.leads {
            self.leads(at, depth)?;
            if *looked == (Looked { leads: true, ..Looked::default() }) {
                return Ok(());
            }
        }
        if let Some(target) = &looked.target_before {
            return self.replaced_link(at, looked, target, depth);
        }
        if let Some(prior) = looked.prior {
            return self.prior(at, looked, prior);
        }
        if let Some((operation, errno)) = looked.failed {
            self.failed(at, operation, errno)?;
            if !(looked.content || looked.kind || looked.link) {
                return Ok(());
            }
        }
        let only_absent = looked.absent && !(looked.content || looked.kind || looked.link || looked.listed);
        if only_absent && !name.is_empty() && self.open.get(directory).is_some_and(|opened| opened.unchanged) {
            self.absent(directory, name);
            return Ok(());
        }
        match stat_in(self.opened(directory), name, false) {
            Ok(found) if found.kind == FileType::Link && !name.is_empty() => self.link(at, looked, depth),
            Ok(found) => self.present(at, looked, &found, looked.link),
            Err(error) if error.kind() == io::ErrorKind::NotFound && looked.absent => {
                self.absent(directory, name);
                Ok(())
            }
            Err(_) => refuse(Unrecorded::InputChanged, path),
        }
    }

    fn present(&mut self, at: SplitPath<'_>, looked: &Looked, found: &Stat, plain: bool) -> Done {
        let SplitPath { path, directory, name } = at;
        if plain {
            self.entry(directory).links_matter = true;
        }
        if looked.absent {
            return refuse(Unrecorded::InputChanged, path);
        }
        match found.kind {
            FileType::File => {
                let fact = self.content(at, looked, found, plain)?;
                if looked.content {
                    self.note_source(path, found, &fact);
                }
                self.note_linked(path, found);
                self.fact(directory, name, fact);
            }
            FileType::Directory => {
                self.fact(directory, name, Fact::Directory);
                let itself = join(directory, name);
                if self.open(&itself).is_ok() {
                    let only_read_as_link = *looked == Looked { link: true, ..Looked::default() };
                    let entry = self.entry(&itself);
                    entry.identified |= !only_read_as_link;
                    // Opening the directory without following links shows that it is none.
                    entry.links_matter |= plain;
                }
                if looked.listed {
                    let counts = match (looked.order, looked.kinds) {
                        (true, _) => Listing::Order,
                        (false, true) => Listing::Kinds,
                        (false, false) => Listing::Names,
                    };
                    self.listing(path, counts)?;
                }
            }
            other => self.fact(directory, name, Fact::Other(other.code())),
        }
        if looked.owner {
            self.fact(directory, name, Fact::Error { operation: Fact::OWNER, errno: found.owner });
        }
        self.belongs(at, looked, found);
        if looked.compared {
            self.note_age(path, found.modified_ns)?;
        }
        if let Some(modified_ns) = looked.directory_ns {
            self.note_directory_age(path, modified_ns)?;
        }
        let has_mode = matches!(found.kind, FileType::File | FileType::Directory);
        if (Times::Mode..Times::Status).contains(&looked.times) && has_mode {
            self.fact(directory, name, Fact::Mode(found.mode));
        }
        match looked.times {
            Times::Blind | Times::Mode => {}
            Times::Status | Times::Uses => match status_of(self.opened(directory), name, found) {
                Ok(status) => self.fact(directory, name, Fact::Status(status)),
                Err(_) => return refuse(Unrecorded::InputChanged, path),
            },
            Times::Inputs | Times::Files if found.kind == FileType::File => {
                self.fact(directory, name, Fact::Modified(found.modified_ns));
            }
            Times::Files => {
                if let Some(modified_ns) = looked.directory_ns {
                    self.fact(directory, name, Fact::Modified(modified_ns));
                }
            }
            Times::Inputs => {}
        }
        Ok(())
    }

    fn content(
        &mut self,
        at: SplitPath<'_>,
        looked: &Looked,
        found: &Stat,
        plain: bool,
    ) -> Result<Fact<'static>, Refusal> {
        let SplitPath { path, directory, name } = at;
        let virtual_file = path.starts_with(b"/proc/") || path.starts_with(b"/sys/");
        let is_gits = looked.refreshed && looked.identity.is_some_and(|written| written.inode == found.inode);
        let is_same = is_gits && is_index(path) || self.is_as_the_tool_saw_it(directory, looked, found);
        let linked = if virtual_file || is_same { None } else { self.before_links(looked, found) };
        if !virtual_file && !is_same && linked.is_none() {
            return refuse(Unrecorded::InputChanged, path);
        }
        let executable = found.mode & 0o111 != 0;
        let open = || self.opened(directory).open_file(name);
        let content = match self.witness.stat_cache.content(found) {
            Some(digest) => Ok((digest, *found)),
            None => open().and_then(|mut file| self.witness.stat_cache.hash_of(&mut file)),
        };
        match content {
            Ok((digest, _)) if linked.is_some_and(|before| before != digest) => refuse(Unrecorded::InputChanged, path),
            Ok((digest, stat)) if virtual_file || stat == *found => {
                if virtual_file {
                    return Ok(Fact::Content { digest, executable, plain, rooted: None });
                }
                let held = self.scan.file(path, found, open);
                if !looked.content {
                    // The tool did not read it, so it brings no path into the result. But its
                    // content may differ in each place.
                    let rooted = held.ok().and_then(|held| held.rooted);
                    return Ok(Fact::Content { digest, executable, plain, rooted });
                }
                let Ok(held) = held else { return refuse(Unrecorded::InputChanged, path) };
                self.note_carried(path, &held);
                let entries = self.entries_of_index(path, directory, name, looked)?;
                let rooted = entries.or(held.rooted).or(held.object);
                Ok(Fact::Content { digest, executable, plain, rooted })
            }
            // The tool did not read it and we cannot, so only its kind counts.
            Err(_) if !looked.content => Ok(Fact::Other(FileType::File.code())),
            _ => refuse(Unrecorded::InputChanged, path),
        }
    }

    /// Returns true if a file is still what the tool opened. A file that is as new as the run could
    /// have been changed within the same clock tick. It is only accepted if the file system's times
    /// are exact and the tool's own `stat` of it is known.
    fn is_as_the_tool_saw_it(&self, directory: &[u8], looked: &Looked, found: &Stat) -> bool {
        let same = looked.identity.is_none_or(|seen| {
            seen.inode == found.inode
                && seen.size_bytes == found.size_bytes
                && seen.modified_ns == found.modified_ns
                && seen.changed_ns == found.changed_ns
        });
        let started_ns = self.witness.started_ns;
        let old = found.changed_ns < started_ns && found.modified_ns < started_ns;
        let ask = || self.opened(directory).trust().unwrap_or(Trust::NONE);
        let known = self.witness.identities_are_the_tools && looked.identity.is_some();
        same && (old || known && self.witness.stat_cache.times_are_exact(found, ask))
    }

    /// Returns the content of a file before the run, if only its number of hard links, and with it the
    /// ctime, changed during the run. The content must be the same now. Another content in between
    /// would show in the mtime, unless both were set back, and then in the ctime that the tool saw.
    fn before_links(&self, looked: &Looked, found: &Stat) -> Option<Digest> {
        let seen = looked.identity.filter(|_| self.witness.identities_are_the_tools)?;
        let (before, digest) = (self.witness.before_links)(found)?;
        let is_same = seen.inode == found.inode
            && seen.size_bytes == found.size_bytes
            && seen.modified_ns == found.modified_ns
            && [before.changed_ns, found.changed_ns].contains(&seen.changed_ns);
        (is_same && found.modified_ns < self.witness.started_ns).then_some(digest)
    }

    fn note_carried(&mut self, path: &[u8], held: &Held) {
        let carried = &mut self.set.carried;
        let kinds = [
            (held.loose, &mut carried.loose),
            (held.fixed, &mut carried.fixed),
            (held.names_files, &mut carried.names_files),
            (held.compares_dates, &mut carried.compares_dates),
        ];
        carried.objects |= held.object.is_some();
        if held.rooted.is_some() {
            carried.rooted.push(path.to_vec());
        }
        for (_, first) in kinds.into_iter().filter(|(is, first)| *is && first.is_none()) {
            *first = Some(path.to_vec());
        }
    }

    /// Notes the mtime of a path. A file that is as new as the run is refused, because it could be
    /// older or newer than what the command makes.
    fn note_age(&mut self, path: &[u8], modified_ns: i64) -> Done {
        if modified_ns >= self.witness.started_ns {
            return refuse(Unrecorded::ComparesTimes, path);
        }
        let (encoded, is_above) = self.encoded_directory(path);
        let above_root = is_above.then(|| path.to_vec());
        self.set.ages.insert(encoded, OwnedAge { modified_ns, above_root });
        Ok(())
    }

    /// Notes the mtime that a program saw of a directory. If the command had added or removed a
    /// name by then, the directory is newer than every input, in each run.
    fn note_directory_age(&mut self, path: &[u8], modified_ns: i64) -> Done {
        if modified_ns >= self.witness.started_ns && self.is_changed(path, None) {
            return Ok(());
        }
        self.note_age(path, modified_ns)
    }

    /// Returns true if the command added, replaced or removed this name of the directory, or, without
    /// a name, any of its names.
    fn is_changed(&mut self, directory: &[u8], name: Option<&[u8]>) -> bool {
        if self.open(directory).is_err() {
            return false;
        }
        let names = self.names;
        names.iter().any(|(changed, _)| {
            let SplitPath { directory: there, name: its_name, .. } = SplitPath::of(changed);
            let is_here = |walk: &mut Self| walk.open(there).is_ok() && walk.is_one_directory(there, directory);
            name.is_none_or(|name| name == its_name) && (there == directory || is_here(self))
        })
    }

    /// Records the names that a directory had before the run.
    fn listing(&mut self, path: &[u8], counts: Listing) -> Done {
        if self.open(path).is_err() {
            return refuse(Unrecorded::InputChanged, path);
        }
        let Ok(mut names) = self.opened(path).names() else {
            return refuse(Unrecorded::InputChanged, path);
        };
        for (changed, existed) in self.names {
            let SplitPath { directory, name, .. } = SplitPath::of(changed);
            if self.open(directory).is_err() {
                continue;
            }
            let is_here = self.is_one_directory(directory, path);
            if directory != path {
                // Links decide whether the name is listed here.
                self.links_matter(directory, is_here);
                self.links_matter(path, is_here);
            }
            if !is_here {
                continue;
            }
            let at = names.iter().position(|(there, _)| there == name);
            match (at, existed) {
                (Some(at), false) => drop(names.remove(at)),
                // Its position in the order is not known.
                (None, true) if counts == Listing::Order => return refuse(Unrecorded::UpdatesFile, changed),
                // It is assumed to have been a file. If it was something else, the fact does not
                // hold later, which only costs a hit.
                (None, true) => names.push((name.to_vec(), FileType::File.code())),
                _ => {}
            }
        }
        self.fact(path, b"", listing(names, counts));
        Ok(())
    }

    /// Verifies a symbolic link. Its target is a fact if the tool accessed the link itself. What
    /// the link leads to is always verified.
    fn link(&mut self, at: SplitPath<'_>, looked: &Looked, depth: usize) -> Done {
        let SplitPath { path, directory, name } = at;
        let Ok(target) = self.opened(directory).read_link(name) else {
            return refuse(Unrecorded::InputChanged, path);
        };
        let through = self.opened(directory).stat(name);
        if !looked.link
            && let Ok(found) = &through
        {
            return self.present(at, looked, found, false);
        }
        self.entry(directory).links_matter = true;
        self.fact(directory, name, OwnedFact::Link(self.witness.roots.encoded_path(&target)));
        let next = if target.first() == Some(&b'/') { target } else { join(directory, &target) };
        if looked.owner || looked.belongs != Belongs::Blind {
            let owner = failure(self.opened(directory), name, Fact::OWNER).unwrap_or(u32::MAX);
            self.fact(directory, name, Fact::Error { operation: Fact::OWNER, errno: owner });
        }
        let (kind, absent) = (looked.kind || through.is_ok(), looked.absent || through.is_err());
        let beyond = Looked { kind, absent, owner: false, ..looked.clone() };
        self.path(&next, &beyond, depth + 1)
    }

    fn failed(&mut self, at: SplitPath<'_>, operation: u8, errno: u32) -> Done {
        let SplitPath { path, directory, name } = at;
        if failure(self.opened(directory), name, operation).unwrap_or(0) != errno {
            return refuse(why_not_again(errno), path);
        }
        self.fact(directory, name, Fact::Error { operation, errno });
        Ok(())
    }

    pub(super) fn entry(&mut self, directory: &[u8]) -> &mut Directory {
        let (encoded, is_above) = self.encoded_directory(directory);
        let entry = self.set.directories.entry(encoded).or_default();
        if is_above && entry.above_root.is_none() {
            entry.above_root = Some(directory.to_vec());
        }
        entry
    }

    /// Returns the path with its root replaced, or as its distance from a root below it. Returns true
    /// for the latter.
    pub(super) fn encoded_directory(&self, directory: &[u8]) -> (Vec<u8>, bool) {
        let mut encoded = Vec::new();
        let InputVerifier { roots, recorded_above, .. } = self.witness;
        let is_above = recorded_above.is_some_and(|index| roots.encode_above(index, directory, &mut encoded));
        if !is_above {
            roots.encode_path(directory, &mut encoded);
        }
        (encoded, is_above)
    }

    /// Returns true if `name` in `directory` is the root, or a directory above it.
    fn leads_to_root(&self, directory: &[u8], name: &[u8]) -> bool {
        let root = self.witness.recorded_above.and_then(|index| self.witness.roots.paths().get(index));
        let next = root.and_then(|root| root.strip_prefix(directory)?.strip_prefix(b"/"));
        next.is_some_and(|next| !name.is_empty() && next.split(|&byte| byte == b'/').next() == Some(name))
    }

    fn fact(&mut self, directory: &[u8], name: &[u8], fact: impl Into<OwnedFact>) {
        let fact = fact.into();
        if matches!(fact, OwnedFact::Plain(Fact::Directory)) {
            // That it can be opened as a directory is recorded with the directory itself.
            let path = join(directory, name);
            if self.open(&path).is_ok() {
                self.entry(&path).wanted = true;
                return;
            }
        }
        if self.leads_to_root(directory, name) {
            // Its name differs in each place, so the fact is recorded of the directory itself.
            let path = join(directory, name);
            if self.open(&path).is_ok() {
                self.entry(&path).facts.insert((Vec::new(), fact.way()), fact);
                return;
            }
        }
        let name = self.encoded(name);
        self.entry(directory).facts.insert((name, fact.way()), fact);
    }

    fn absent(&mut self, directory: &[u8], name: &[u8]) {
        let (first, last) = (name.split(|&b| b == b'/').next(), name.rsplit(|&b| b == b'/').next());
        let is_made = last.is_some_and(|last| self.made_names.contains(last));
        if is_made {
            // With a symbolic link on the way, the path could lead to what the command makes.
            self.entry(directory).links_matter = true;
        }
        let name = self.encoded(first.filter(|_| is_made).unwrap_or(name));
        self.entry(directory).absent.push(name);
    }

    fn encoded(&self, name: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        self.witness.roots.encode_names(name, &mut encoded);
        encoded
    }
}

#[cfg(test)]
mod tests;
