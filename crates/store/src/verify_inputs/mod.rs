//! Turns the accesses of a tool into facts, at the end of its run.
//!
//! Every path is looked up again. What is found must be what the tool saw, and no file may be as
//! new as the run. Otherwise the result is not recorded. Contents are hashed unless a stamp has
//! their digest.
//!
//! Unaware of: which observer it was, what happens with the facts.

mod facts;
mod index;
mod leads;
mod twins;

use std::io;

use larder_model::path::join;
use larder_model::quick::{Map, Set};
use larder_model::{Digest, Looked, PLACEHOLDER, Prior, Roots, Seen, Times, Unrecorded, ValueKey, names_digest};
use larder_sys::{Dir, Kind, Look, Trust};

pub use self::facts::VerifiedInputs;
pub(crate) use self::facts::class_of;
use self::facts::{Directory, OwnedFact};
use crate::StatCache;
use crate::check::{Listing, failure, listing_digest, look, status_of};
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
    /// Special forms in which files are compared between places.
    pub forms: Forms<'a>,
    /// The stat cache.
    pub stat_cache: &'a StatCache,
    /// When the run began, in nanoseconds since 1970, by the clock of file times.
    pub started_ns: i64,
    /// True if the `stat` of a file was taken when the tool opened it, and not later.
    pub identities_are_the_tools: bool,
    /// The key for digests of the values of variables. It is that of the action.
    pub value_key: ValueKey,
}

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
    scan: Scan<'a>,
    set: VerifiedInputs,
    /// Names that the run added or removed, and whether each was there before.
    names: &'a [(Vec<u8>, bool)],
    /// The last components of these names.
    made_names: Set<&'a [u8]>,
}

type Done = Result<(), Refusal>;

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
            scan: Scan::new(self.roots, self.stat_cache, self.forms),
            set: VerifiedInputs::default(),
            names: &seen.names,
            made_names: seen.names.iter().map(|(path, _)| split(path).1).collect(),
        };
        for (path, looked) in &seen.looked {
            walk.path(path, looked, 0)?;
        }
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
            if let (Some(look), false) = (&directory.unchanged, directory.absent.is_empty()) {
                let names: Vec<&[u8]> = directory.absent.iter().map(Vec::as_slice).collect();
                // Such a name differs in each place.
                if names.iter().any(|name| name.contains(&PLACEHOLDER)) {
                    continue;
                }
                // The trust was asked for when the directory was opened.
                self.stat_cache.keep_absent(look, now_ns, &names_digest(&names), || Trust::NONE);
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
        let (directory, name) = split(path);
        if let Err(error) = self.open(directory) {
            return self.below_missing(path, directory, looked, &error, depth);
        }
        if looked.leads {
            self.leads(path, directory, name, depth)?;
            if *looked == (Looked { leads: true, ..Looked::default() }) {
                return Ok(());
            }
        }
        if let Some(prior) = looked.prior {
            match prior {
                Prior::Absent => self.absent(directory, name),
                Prior::Other { mode } => {
                    self.fact(directory, name, OwnedFact::Other((mode >> 12) as u8));
                    let counts = mode >> 12 == 0o10 && (looked.executed || looked.times >= Times::Mode);
                    match mode & 0o7777 {
                        _ if !counts => {}
                        0 => return refuse(Unrecorded::UpdatesFile, path),
                        mode => self.fact(directory, name, OwnedFact::Mode(mode)),
                    }
                }
                Prior::File { digest, mode } => {
                    let executable = mode.is_some_and(|mode| mode & 0o111 != 0);
                    // Its earlier content cannot be searched any more.
                    self.note_carried(path, &Held::ANYTHING);
                    self.fact(directory, name, OwnedFact::Content { digest, executable, plain: false, rooted: None });
                    match mode {
                        _ if looked.times < Times::Mode => {}
                        Some(mode) => self.fact(directory, name, OwnedFact::Mode(mode)),
                        None => return refuse(Unrecorded::UpdatesFile, path),
                    }
                }
            }
            if let (true, Some(identity)) = (looked.compared && prior != Prior::Absent, looked.identity) {
                self.note_age(path, identity.modified_ns)?;
            }
            if let (Times::Files, Some(identity)) = (looked.times, looked.identity)
                && prior != Prior::Absent
            {
                self.fact(directory, name, OwnedFact::Modified(identity.modified_ns));
            }
            return Ok(());
        }
        if let Some((operation, errno)) = looked.failed {
            self.failed(path, directory, name, operation, errno)?;
            if !(looked.content || looked.kind || looked.link) {
                return Ok(());
            }
        }
        let only_absent = looked.absent && !(looked.content || looked.kind || looked.link || looked.listed);
        if only_absent && !name.is_empty() && self.open.get(directory).is_some_and(|opened| opened.unchanged) {
            self.absent(directory, name);
            return Ok(());
        }
        match look(self.opened(directory), name, false) {
            Ok(found) if found.kind == Kind::Link && !name.is_empty() => {
                self.link(path, directory, name, looked, depth)
            }
            Ok(found) => self.present(path, directory, name, looked, &found, looked.link),
            Err(error) if error.kind() == io::ErrorKind::NotFound && looked.absent => {
                self.absent(directory, name);
                Ok(())
            }
            Err(_) => refuse(Unrecorded::InputChanged, path),
        }
    }

    fn present(
        &mut self,
        path: &[u8],
        directory: &[u8],
        name: &[u8],
        looked: &Looked,
        found: &Look,
        plain: bool,
    ) -> Done {
        if plain {
            self.entry(directory).links_matter = true;
        }
        if looked.absent {
            return refuse(Unrecorded::InputChanged, path);
        }
        match found.kind {
            Kind::File => {
                let fact = self.content(path, directory, name, looked, found, plain)?;
                if looked.content {
                    self.note_source(path, found, &fact);
                }
                self.fact(directory, name, fact);
            }
            Kind::Directory => {
                self.fact(directory, name, OwnedFact::Directory);
                let itself = join(directory, name);
                if plain && self.open(&itself).is_ok() {
                    // Opening the directory without following links shows that it is none.
                    self.entry(&itself).links_matter = true;
                    self.entry(&itself).wanted = true;
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
            other => self.fact(directory, name, OwnedFact::Other(other.code())),
        }
        if looked.compared {
            self.note_age(path, found.modified_ns)?;
        }
        let has_mode = matches!(found.kind, Kind::File | Kind::Directory);
        if (Times::Mode..Times::Status).contains(&looked.times) && has_mode {
            self.fact(directory, name, OwnedFact::Mode(found.mode));
        }
        match looked.times {
            Times::Blind | Times::Mode => {}
            Times::Status | Times::Uses => self.fact(directory, name, OwnedFact::Status(status_of(found))),
            Times::Inputs | Times::Files if found.kind == Kind::File => {
                self.fact(directory, name, OwnedFact::Modified(found.modified_ns));
            }
            Times::Inputs | Times::Files => {}
        }
        Ok(())
    }

    fn content(
        &mut self,
        path: &[u8],
        directory: &[u8],
        name: &[u8],
        looked: &Looked,
        found: &Look,
        plain: bool,
    ) -> Result<OwnedFact, Refusal> {
        let virtual_file = path.starts_with(b"/proc/") || path.starts_with(b"/sys/");
        let is_gits = looked.refreshed && looked.identity.is_some_and(|written| written.inode == found.inode);
        let is_same = is_gits && is_index(path) || self.is_as_the_tool_saw_it(directory, looked, found);
        if !virtual_file && !is_same {
            return refuse(Unrecorded::InputChanged, path);
        }
        let executable = found.mode & 0o111 != 0;
        let open = || self.opened(directory).open_file(name);
        let content = match self.witness.stat_cache.content(found) {
            Some(digest) => Ok((digest, *found)),
            None => open().and_then(|mut file| self.witness.stat_cache.hash_of(&mut file)),
        };
        match content {
            Ok((digest, look)) if virtual_file || look == *found => {
                if virtual_file {
                    return Ok(OwnedFact::Content { digest, executable, plain, rooted: None });
                }
                let held = self.scan.file(path, found, open);
                if !looked.content {
                    // The tool did not read it, so it brings no path into the result. But its
                    // content may differ in each place.
                    let rooted = held.ok().and_then(|held| held.rooted);
                    return Ok(OwnedFact::Content { digest, executable, plain, rooted });
                }
                let Ok(held) = held else { return refuse(Unrecorded::InputChanged, path) };
                self.note_carried(path, &held);
                let entries = self.entries_of_index(path, directory, name, looked)?;
                let rooted = entries.or(held.rooted).or(held.object);
                Ok(OwnedFact::Content { digest, executable, plain, rooted })
            }
            // The tool did not read it and we cannot, so only its kind counts.
            Err(_) if !looked.content => Ok(OwnedFact::Other(Kind::File.code())),
            _ => refuse(Unrecorded::InputChanged, path),
        }
    }

    /// Returns true if a file is still what the tool opened. A file that is as new as the run could
    /// have been changed within the same clock tick. It is only accepted if the file system's times
    /// are exact and the tool's own `stat` of it is known.
    fn is_as_the_tool_saw_it(&self, directory: &[u8], looked: &Looked, found: &Look) -> bool {
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

    fn note_carried(&mut self, path: &[u8], held: &Held) {
        let carried = &mut self.set.carried;
        let kinds = [
            (held.loose, &mut carried.loose),
            (held.fixed, &mut carried.fixed),
            (held.names_files, &mut carried.names_files),
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
        let mut encoded = Vec::new();
        self.witness.roots.encode_path(path, &mut encoded);
        self.set.ages.insert(encoded, modified_ns);
        Ok(())
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
            let (directory, name) = split(changed);
            let is_here = |walk: &Self| walk.opened(directory).itself().ok().map(|l| (l.device, l.inode));
            if self.open(directory).is_err()
                || is_here(self) != self.opened(path).itself().ok().map(|l| (l.device, l.inode))
            {
                continue;
            }
            let at = names.iter().position(|(there, _)| there == name);
            match (at, existed) {
                (Some(at), false) => drop(names.remove(at)),
                // Its position in the order is not known.
                (None, true) if counts == Listing::Order => return refuse(Unrecorded::UpdatesFile, changed),
                // It is assumed to have been a file. If it was something else, the fact does not
                // hold later, which only costs a hit.
                (None, true) => names.push((name.to_vec(), Kind::File.code())),
                _ => {}
            }
        }
        let digest = listing_digest(names, counts);
        let fact = match counts {
            Listing::Names => OwnedFact::Listing(digest),
            Listing::Kinds => OwnedFact::Kinds(digest),
            Listing::Order => OwnedFact::Ordered(digest),
        };
        self.fact(path, b"", fact);
        Ok(())
    }

    /// Verifies a symbolic link. Its target is a fact if the tool accessed the link itself. What
    /// the link leads to is always verified.
    fn link(&mut self, path: &[u8], directory: &[u8], name: &[u8], looked: &Looked, depth: usize) -> Done {
        let Ok(target) = self.opened(directory).read_link(name) else {
            return refuse(Unrecorded::InputChanged, path);
        };
        let through = self.opened(directory).look_through(name);
        if !looked.link
            && let Ok(found) = &through
        {
            return self.present(path, directory, name, looked, found, false);
        }
        let mut encoded = Vec::new();
        self.witness.roots.encode_path(&target, &mut encoded);
        self.entry(directory).links_matter = true;
        self.fact(directory, name, OwnedFact::Link(encoded));
        let next = if target.first() == Some(&b'/') { target } else { join(directory, &target) };
        let mut beyond = looked.clone();
        beyond.kind |= through.is_ok();
        beyond.absent |= through.is_err();
        self.path(&next, &beyond, depth + 1)
    }

    fn failed(&mut self, path: &[u8], directory: &[u8], name: &[u8], operation: u8, errno: u32) -> Done {
        if failure(self.opened(directory), name, operation).unwrap_or(0) != errno {
            return refuse(Unrecorded::InputChanged, path);
        }
        self.fact(directory, name, OwnedFact::Error(operation, errno));
        Ok(())
    }

    /// Verifies a path whose directory cannot be opened. An absence is recorded for the deepest
    /// directory that exists.
    fn below_missing(
        &mut self,
        path: &[u8],
        directory: &[u8],
        looked: &Looked,
        error: &io::Error,
        depth: usize,
    ) -> Done {
        // A failed `access` for execution counts as an access to an existing file. If a directory
        // above may not be searched, that was the reason of the failure.
        let is_barred = error.kind() == io::ErrorKind::PermissionDenied;
        if looked.content || looked.kind && !looked.absent && !is_barred {
            return refuse(Unrecorded::InputChanged, path);
        }
        let mut missing = directory;
        let existing = loop {
            let above = above(missing);
            if above.len() >= missing.len() {
                return refuse(Unrecorded::InputChanged, path);
            }
            if self.open(above).is_ok() {
                break above;
            }
            missing = above;
        };
        if error.kind() == io::ErrorKind::NotFound {
            let absent = Looked { absent: true, link: true, ..Looked::default() };
            let (directory, name) = split(missing);
            if name.is_empty() || directory.len() != existing.len() {
                // `..` or `.` in a directory that exists are never absent, so something has changed
                // meanwhile.
                return refuse(Unrecorded::InputChanged, path);
            }
            if self.is_missing(missing, directory, name) {
                let rest = &path[missing.len()..];
                let plain = rest[1..].split(|&b| b == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
                let name = if plain { [name, rest].concat() } else { name.to_vec() };
                self.absent(directory, &name);
                return Ok(());
            }
            return self.path(missing, &absent, depth + 1);
        }
        let existing = existing.to_vec();
        if is_barred && looked.kind {
            // The directory must not have changed since the run began.
            let changed_ns = self.opened(&existing).itself().map_or(i64::MAX, |look| look.changed_ns);
            if changed_ns >= self.witness.started_ns {
                return refuse(Unrecorded::InputChanged, path);
            }
        }
        // Not a directory, no permission, or too many links. This is recorded as the error of a
        // `stat` of the whole path.
        let name =
            path[existing.len()..].iter().position(|&b| b != b'/').map(|at| path[existing.len() + at..].to_vec());
        let errno = error.raw_os_error().unwrap_or(0) as u32;
        self.failed(path, &existing, &name.unwrap_or_default(), 0, errno)
    }

    /// Returns true if `name` is not in `directory`. `path` is both together.
    fn is_missing(&mut self, path: &[u8], directory: &[u8], name: &[u8]) -> bool {
        if self.absent.contains(path) {
            return true;
        }
        let found = look(self.opened(directory), name, false);
        let is_missing = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_missing {
            self.absent.insert(path.to_vec());
        }
        is_missing
    }

    fn open(&mut self, path: &[u8]) -> io::Result<()> {
        if self.open.contains_key(path) {
            return Ok(());
        }
        if let Some(errno) = self.missing.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        let opened = self.open_new(path);
        if let Some(errno) = opened.as_ref().err().and_then(io::Error::raw_os_error) {
            self.missing.insert(path.to_vec(), errno);
        }
        opened
    }

    fn open_new(&mut self, path: &[u8]) -> io::Result<()> {
        let (above, name) = split(path);
        let parent = self.open.get(above).filter(|above| above.plain && !name.is_empty());
        // Opening relative to the parent directory is cheaper, and it also shows that the name is
        // absent.
        let opened = match parent {
            Some(above) => above.dir.open_in(name),
            None => Dir::open(path, true),
        };
        let (dir, real) = match opened {
            Ok(dir) => (dir, None),
            Err(error) if parent.is_some() && error.kind() == io::ErrorKind::NotFound => {
                self.absent.insert(path.to_vec());
                return Err(error);
            }
            Err(error) if error.raw_os_error() == Some(ELOOP) => {
                let dir = Dir::open(path, false)?;
                let real = dir.real_path()?;
                (dir, Some(real))
            }
            Err(error) => return Err(error),
        };
        let look = dir.itself()?;
        let old = look.changed_ns < self.witness.started_ns;
        let trusted = old && self.witness.stat_cache.trusts_directories(&look, || dir.trust().unwrap_or(Trust::NONE));
        let encode = |path: &[u8]| {
            let mut encoded = Vec::new();
            self.witness.roots.encode_path(path, &mut encoded);
            encoded
        };
        let real = real.as_deref().map(encode);
        let plain = real.is_none();
        let entry = self.entry(path);
        entry.real = real;
        entry.unchanged = trusted.then_some(look);
        entry.identity = (look.device, look.inode);
        self.open.insert(path.to_vec(), Opened { dir, plain, unchanged: trusted });
        Ok(())
    }

    /// Returns a directory that was opened by `open`.
    fn opened(&self, path: &[u8]) -> &Dir {
        match self.open.get(path) {
            Some(opened) => &opened.dir,
            None => unreachable!("{} is opened before it is used", String::from_utf8_lossy(path)),
        }
    }

    fn entry(&mut self, directory: &[u8]) -> &mut Directory {
        let mut encoded = Vec::new();
        let InputVerifier { roots, recorded_above, .. } = self.witness;
        let is_above = recorded_above.is_some_and(|index| roots.encode_above(index, directory, &mut encoded));
        if !is_above {
            roots.encode_path(directory, &mut encoded);
        }
        let entry = self.set.directories.entry(encoded).or_default();
        if is_above && entry.above_root.is_none() {
            entry.above_root = Some(directory.to_vec());
        }
        entry
    }

    /// Returns true if `name` in `directory` is the root, or a directory above it.
    fn leads_to_root(&self, directory: &[u8], name: &[u8]) -> bool {
        let root = self.witness.recorded_above.and_then(|index| self.witness.roots.paths().get(index));
        let next = root.and_then(|root| root.strip_prefix(directory)?.strip_prefix(b"/"));
        next.is_some_and(|next| !name.is_empty() && next.split(|&byte| byte == b'/').next() == Some(name))
    }

    fn fact(&mut self, directory: &[u8], name: &[u8], fact: OwnedFact) {
        if matches!(fact, OwnedFact::Directory) {
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

/// Linux's errno for "too many levels of symbolic links". Opening a path fails with it if symbolic
/// links are refused and the path contains one.
const ELOOP: i32 = 40;

/// Returns the path without its last component, which may also be `.` or `..`.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    let slash = path[..end].iter().rposition(|&b| b == b'/').unwrap_or(0);
    let end = path[..slash].iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end.max(1)]
}

/// Splits a path into directory and name as the kernel does, without normalising it. The name is
/// empty if the path can only be a directory: `/`, or a path that ends in a slash, `.` or `..`.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let Some(slash) = path.iter().rposition(|&b| b == b'/') else { return (b".", path) };
    let name = &path[slash + 1..];
    if name.is_empty() || name == b"." || name == b".." {
        let end = path.iter().rposition(|&b| b != b'/').map_or(1, |last| last + 1);
        return (&path[..end], b"");
    }
    (&path[..slash.max(1)], name)
}
