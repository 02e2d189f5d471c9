//! Checks whether a recorded set of observations still holds. This is most of the work of a hit.
//!
//! The check goes directory by directory: one `open`, one `stat` for the absences if a stamp covers
//! them, and one `stat` for each fact. A file is read only if no stamp has its digest. The check
//! ends at the first difference.
//!
//! Unaware of: which entries are checked, what happens after a difference.

use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::io;

use larder_model::path::join;
use larder_model::{
    ALL_VARIABLES, Age, DecodeError, Digest, DirFacts, Fact, HOST_NAME, JOB_VARIABLES, Links, NamedFact,
    ObservationSet, OfHistory, Roots, SetReader, Twins, Unread, ValueKey, is_encoded, names_digest, of_host_field,
};
use larder_sys::{Dir, FileType, Stat, Trust};

use crate::StatCache;
use crate::current::{Listing, failure, has_metadata, listing, stat_in};
use crate::git_index::entries;
use crate::scan::{Forms, of_uncut};
use crate::verify_inputs::class_of;

/// A directory that changed within this time, in nanoseconds, is likely to change again, for
/// example because each hit puts outputs into it. So its absences are not kept in a stamp.
const SETTLED_NS: i64 = 1_000_000_000;

/// The file name of git's index.
const INDEX: &[u8] = b"index";

/// The first fact that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path, or the name of the variable.
    pub subject: Vec<u8>,
    /// What was recorded and what was found, as a phrase that follows the subject.
    pub what: String,
}

/// How much work a check was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The number of directories that were opened or looked up.
    pub directories: u64,
    /// The number of facts that were compared.
    pub facts: u64,
    /// The number of absences that were checked.
    pub absences: u64,
    /// The number of names that were looked up one by one for that.
    pub absences_looked: u64,
    /// The number of files that were read and hashed, because no stamp had their digest.
    pub hashed: u64,
}

/// The environment of a check. Only for a process that handles one request, because opened
/// directories stay open until it ends.
pub struct Checker<'a> {
    /// The roots of this place.
    pub roots: &'a Roots,
    /// The stat cache.
    pub stat_cache: &'a StatCache,
    /// The set was recorded in this place. So a file that contains a root must have the same bytes.
    pub at_home: bool,
    /// A file that contains a root may also have the very bytes that were recorded. For example, a
    /// build directory was moved. This is safe if the result does not contain the paths. It must be
    /// false if the result is rewritten for this place, because the paths in the file would be
    /// those of the other place.
    pub same_bytes_will_do: bool,
    /// The last file had no stamp, so the next one will probably have none either. It is opened
    /// without a `stat` before.
    pub stampless: Cell<bool>,
    /// Returns the value of a variable in the tool's environment.
    pub variable: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// The key for digests of the values of variables. It is that of the action.
    pub value_key: ValueKey,
    /// Special forms in which files are compared between places: see [`crate::InputVerifier`].
    pub forms: Forms<'a>,
}

impl Checker<'_> {
    /// Returns the first fact of `set` that does not hold, as an error.
    pub fn check(&self, set: &ObservationSet, effort: &mut Effort) -> Result<(), Difference> {
        self.check_environment(set, effort)?;
        let mut walk = Walk::default();
        let none = Unread::default();
        set.directories.iter().try_for_each(|directory| self.check_next(directory, &none, &mut walk, effort))?;
        self.check_rest(set)
    }

    /// Checks a set as [`Checker::check`] does, and decodes it meanwhile.
    pub fn check_read(&self, mut set: SetReader, effort: &mut Effort) -> Result<(), Difference> {
        self.check_environment(set.rest(), effort)?;
        let (mut walk, mut directory) = (Walk::default(), DirFacts::default());
        loop {
            match set.next_into(&mut directory) {
                Ok(Some(unread)) if unread.digest().is_some() => {
                    self.check_next(&directory, &unread, &mut walk, effort)?;
                }
                Ok(Some(unread)) => {
                    unread.read_into(&mut directory).or_else(unreadable)?;
                    self.check_next(&directory, &Unread::default(), &mut walk, effort)?;
                }
                Ok(None) => return self.check_rest(set.rest()),
                Err(error) => return unreadable(error),
            }
        }
    }

    fn check_environment(&self, set: &ObservationSet, effort: &mut Effort) -> Result<(), Difference> {
        for fact in &set.environment {
            let value = (self.variable)(fact.name).map(|value| self.value_key.digest(&self.roots.encode_text(&value)));
            effort.facts += 1;
            if value != fact.value {
                let subject = match (fact.name, OfHistory::of_fact_name(fact.name)) {
                    (b"" | ALL_VARIABLES, _) => &b"the environment"[..],
                    (JOB_VARIABLES, _) => b"the CI service's description of the job",
                    (_, Some((HOST_NAME, _))) => b"the name of the host",
                    (_, Some((variable, _))) => variable,
                    (name, None) if of_host_field(name) == Some(b'n') => b"the name of the host",
                    (name, None) if of_host_field(name).is_some() => b"the answer of uname",
                    (name, None) => name,
                };
                let all = matches!(fact.name, b"" | ALL_VARIABLES | JOB_VARIABLES);
                let what = if all { "has another variable, or one with another value" } else { "has another value" };
                return differs(subject, what);
            }
        }
        Ok(())
    }

    fn check_next(
        &self,
        directory: &DirFacts,
        unread: &Unread,
        walk: &mut Walk,
        effort: &mut Effort,
    ) -> Result<(), Difference> {
        let Walk { path, looked_at } = walk;
        path.clear();
        if !self.roots.decode_path(directory.path, path) {
            return differs(directory.path, "is in a root that this place does not have");
        }
        let identity = match self.names_in(directory) {
            Names::AsTheyStand => self.check_directory(directory, unread, path, effort)?,
            Names::Decoded(names) => {
                let mut names = names.iter().map(Vec::as_slice);
                let mut decoded = directory.clone();
                let facts = decoded.facts.iter_mut().map(|named| &mut named.name);
                for name in facts.chain(&mut decoded.absent) {
                    *name = names.next().unwrap_or_default();
                }
                self.check_directory(&decoded, unread, path, effort)?
            }
            Names::Unknown => {
                return differs(path, "contains a random name, and this run has none in its place");
            }
        };
        if directory.class != 0 && class_of(looked_at, identity) != directory.class {
            return differs(path, "is now the same directory as another input, or no longer is");
        }
        Ok(())
    }

    fn check_rest(&self, set: &ObservationSet) -> Result<(), Difference> {
        set.twins.iter().try_for_each(|twins| self.check_twins(twins))?;
        self.check_ages(&set.ages)
    }

    /// Checks that the files have the same order of mtimes as recorded, and are older than what the
    /// command makes now.
    fn check_ages(&self, ages: &[Age]) -> Result<(), Difference> {
        let mut before: Option<i64> = None;
        for age in ages {
            let Some(path) = self.roots.decoded_path(age.path) else {
                return differs(age.path, "cannot be accessed");
            };
            let Ok(stat) = larder_sys::stat(&path) else { return differs(&path, "cannot be accessed") };
            let is_as_before = match before {
                None => true,
                Some(before) if age.same => stat.modified_ns == before,
                Some(before) => stat.modified_ns > before,
            };
            if !is_as_before {
                return differs(&path, "has another age relative to another input than before");
            }
            before = Some(stat.modified_ns);
        }
        match (before, ages.last()) {
            (Some(newest), Some(last)) if newest > larder_sys::now_coarse_ns() => differs(
                &self.decoded(last.path),
                "was modified in the future, so it is newer than what the command makes",
            ),
            _ => Ok(()),
        }
    }

    /// Returns the path in this place for a message. If this place does not have its root, returns
    /// it unchanged.
    fn decoded(&self, encoded: &[u8]) -> Vec<u8> {
        self.roots.decoded_path(encoded).unwrap_or_else(|| encoded.to_vec())
    }

    /// Returns the names of facts and absences as they are in this place.
    fn names_in(&self, facts: &DirFacts) -> Names {
        let names = facts.facts.iter().map(|named| named.name).chain(facts.absent.iter().copied());
        if !names.clone().any(is_encoded) {
            return Names::AsTheyStand;
        }
        names.map(|name| self.roots.decoded_names(name)).collect::<Option<_>>().map_or(Names::Unknown, Names::Decoded)
    }

    /// Checks that two files of equal content are one file, and have equal mtimes, if and only if
    /// they did before.
    fn check_twins(&self, twins: &Twins) -> Result<(), Difference> {
        let stat = |encoded: &[u8]| larder_sys::stat(&self.roots.decoded_path(encoded)?).ok();
        let [Some(a), Some(b)] = twins.paths.map(stat) else {
            return differs(&self.decoded(twins.paths[0]), "cannot be accessed");
        };
        let same_file = a.file_id() == b.file_id();
        if same_file != twins.same_file || (a.modified_ns == b.modified_ns) != twins.same_time {
            return differs(
                &self.decoded(twins.paths[1]),
                "has the same content as another input; whether both are one file, or equally old, has changed",
            );
        }
        Ok(())
    }

    /// Checks a directory. Returns its device and inode if these are needed, or zeros.
    fn check_directory(
        &self,
        facts: &DirFacts,
        unread: &Unread,
        path: &[u8],
        effort: &mut Effort,
    ) -> Result<(u64, u64), Difference> {
        effort.directories += 1;
        if facts.links == Links::Any && facts.facts.is_empty() {
            return self.check_unopened(facts, unread, path, effort);
        }
        let dir = match Dir::open(path, facts.links == Links::None) {
            Ok(dir) => dir,
            Err(error) => return differs(path, format!("the directory cannot be opened as before: {error}")),
        };
        if let Links::Real(real) = facts.links {
            let expect = self.roots.decoded_path(real);
            if expect.is_none() || dir.real_path().ok() != expect {
                return differs(path, "leads to another directory");
            }
        }
        let has_absences = unread.count() > 0 || !facts.absent.is_empty();
        let stat = if has_absences || facts.class != 0 { dir.itself().ok() } else { None };
        if has_absences && !stat.is_some_and(|stat| self.knows_absent(&stat, unread, &search(&dir), effort)) {
            let all = all_of(facts, unread)?;
            self.check_absent(&dir, stat, &all, path, effort)?;
        }
        for NamedFact { name, fact } in &facts.facts {
            effort.facts += 1;
            if let Err(what) = self.check_fact(&dir, name, fact, effort) {
                return differs(&join(path, name), what);
            }
        }
        dir.keep_open();
        Ok(stat.map_or((0, 0), |stat| stat.file_id()))
    }

    /// Checks a directory of which only its existence or its absences count. One `stat` is enough
    /// if a stamp covers the absences.
    fn check_unopened(
        &self,
        facts: &DirFacts,
        unread: &Unread,
        path: &[u8],
        effort: &mut Effort,
    ) -> Result<(u64, u64), Difference> {
        let stat = match larder_sys::stat(path) {
            Ok(stat) if stat.kind == FileType::Directory => stat,
            other => return differs(path, format!("was a directory; {}", found(&other))),
        };
        let has_absences = unread.count() > 0 || !facts.absent.is_empty();
        let may_search = || larder_sys::may_access(path, SEARCH as u8, true).is_ok();
        if !has_absences || self.knows_absent(&stat, unread, &may_search, effort) {
            return Ok(stat.file_id());
        }
        match Dir::open(path, false) {
            Ok(dir) => {
                let stat = dir.itself().ok();
                let all = all_of(facts, unread)?;
                self.check_absent(&dir, stat, &all, path, effort)?;
                Ok(stat.map_or((0, 0), |stat| stat.file_id()))
            }
            Err(error) => differs(path, format!("the directory cannot be opened as before: {error}")),
        }
    }

    /// Returns true if a stamp says that all names in `unread` are absent. `may_search` tells whether
    /// this process may look up names in the directory.
    fn knows_absent(&self, stat: &Stat, unread: &Unread, may_search: MaySearch, effort: &mut Effort) -> bool {
        let known = unread.digest().is_some_and(|names| self.is_stamped(stat, names, may_search));
        effort.absences += if known { unread.count() as u64 } else { 0 };
        known
    }

    fn is_stamped(&self, stat: &Stat, names: &Digest, may_search: MaySearch) -> bool {
        self.stat_cache.names_absent(stat, names) && (!larder_sys::may_be_barred(stat, SEARCH) || may_search())
    }

    fn check_absent(
        &self,
        dir: &Dir,
        stat: Option<Stat>,
        facts: &DirFacts,
        path: &[u8],
        effort: &mut Effort,
    ) -> Result<(), Difference> {
        effort.absences += facts.absent.len() as u64;
        let names = names_digest(&facts.absent);
        let now_ns = larder_sys::now_coarse_ns();
        if stat.as_ref().is_some_and(|stat| self.is_stamped(stat, &names, &search(dir))) {
            return Ok(());
        }
        let mut only_by_the_directory = true;
        let mut missing: &[u8] = b"";
        let listed = stat.as_ref().and_then(|stat| self.listed(dir, stat, facts.absent.len()));
        for name in &facts.absent {
            let first = first_component(name);
            if first == missing || listed.as_ref().is_some_and(|names| names.lack(first)) {
                continue;
            }
            effort.absences_looked += 1;
            match dir.lstat(first) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing = first,
                Ok(_) if first.len() < name.len() => {
                    only_by_the_directory = false;
                    self.check_absent_below(dir, name, path)?;
                }
                Ok(_) => return differs(&join(path, name), "was missing and is there now"),
                Err(error) => return differs(&join(path, name), format!("was missing; now: {error}")),
            }
        }
        let settled = |stat: &Stat| now_ns.saturating_sub(stat.changed_ns) > SETTLED_NS;
        if let (Some(stat), true) = (stat.filter(settled), only_by_the_directory) {
            self.stat_cache.keep_absent(&stat, now_ns, &names, || dir.trust().unwrap_or(larder_sys::Trust::NONE));
        }
        Ok(())
    }

    /// Returns the names in a directory if listing it is cheaper than looking up `wanted` names one
    /// by one.
    fn listed(&self, dir: &Dir, stat: &Stat, wanted: usize) -> Option<Listed> {
        const DIRECTORY_BYTES_PER_LOOK: u64 = 256;
        let cheap = wanted > 8 && stat.size_bytes < wanted as u64 * DIRECTORY_BYTES_PER_LOOK;
        if !cheap || !self.stat_cache.trusts_files(stat, || dir.trust().unwrap_or(Trust::NONE)) {
            return None;
        }
        Listed::of(dir.names().ok()?)
    }

    /// Checks an absence in a directory that was missing and now exists. It holds as long as the
    /// file in it does not exist. But then the stamp of the directory above proves nothing.
    fn check_absent_below(&self, dir: &Dir, name: &[u8], path: &[u8]) -> Result<(), Difference> {
        match dir.lstat(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(_) => differs(&join(path, name), "was missing and is there now"),
            Err(error) => differs(&join(path, name), format!("was missing; now: {error}")),
        }
    }

    fn check_fact(&self, dir: &Dir, name: &[u8], fact: &Fact, effort: &mut Effort) -> Result<(), String> {
        match fact {
            Fact::Content { digest, executable, plain, rooted } => {
                let is_read_first = self.stampless.get() && rooted.is_none();
                let open = if *plain { Dir::open_plain_file } else { Dir::open_file };
                if is_read_first && let Ok(file) = open(dir, name) {
                    let stat = larder_sys::fstat(&file);
                    let stat = *file_of_mode(&stat, *executable)?;
                    return self.check_content(&stat, || Ok((file, stat)), digest, effort);
                }
                let stat = if *plain { dir.lstat(name) } else { dir.stat(name) };
                let stat = file_of_mode(&stat, *executable)?;
                match rooted {
                    Some(rooted) if !self.at_home => self.check_rooted(dir, name, (digest, rooted), effort),
                    Some(rooted) if name == INDEX => self
                        .check_content(stat, || opened(dir, name), digest, effort)
                        .or_else(|_| self.check_rooted(dir, name, (digest, rooted), effort)),
                    _ => self.check_content(stat, || opened(dir, name), digest, effort),
                }
            }
            Fact::Directory => match stat_in(dir, name, true) {
                Ok(stat) if stat.kind == FileType::Directory => Ok(()),
                other => Err(format!("was a directory; {}", found(&other))),
            },
            Fact::Other(kind) => match stat_in(dir, name, false) {
                Ok(stat) if stat.kind.code() == *kind => Ok(()),
                other => Err(format!("was {}; {}", kind_name(*kind), found(&other))),
            },
            Fact::Link(target) => {
                let expect = self.roots.decoded_path(target);
                match dir.read_link(name) {
                    Ok(target) if expect.as_ref() == Some(&target) => Ok(()),
                    Ok(_) => Err("is a symbolic link with another target than before".into()),
                    Err(error) => Err(format!("was a symbolic link; {error}")),
                }
            }
            Fact::Error { operation, errno } => {
                let again = failure(dir, name, *operation).unwrap_or(0);
                match *operation {
                    _ if again == *errno => Ok(()),
                    Fact::OWNER => Err("has another owner".into()),
                    _ => Err("has another result of stat, open or access".into()),
                }
            }
            Fact::Listing(_) | Fact::Kinds(_) | Fact::Ordered(_) => {
                let counts = match fact {
                    Fact::Ordered(_) => Listing::Order,
                    Fact::Kinds(_) => Listing::Kinds,
                    _ => Listing::Names,
                };
                match dir.names().map(|names| listing(names, counts)) {
                    Ok(found) if found == *fact => Ok(()),
                    _ => Err("lists other names than before, of other kinds, or in another order".into()),
                }
            }
            Fact::Modified(_) | Fact::Mode(_) | Fact::Belongs { .. } | Fact::Status(_) => has_metadata(dir, name, fact),
        }
    }

    /// Checks the content of a file with this `stat`. `open` opens it and returns its `stat` then.
    fn check_content(
        &self,
        stat: &Stat,
        open: impl FnOnce() -> io::Result<(File, Stat)>,
        digest: &Digest,
        effort: &mut Effort,
    ) -> Result<(), String> {
        let known = self.stat_cache.content(stat);
        self.stampless.set(known.is_none());
        if let Some(known) = known {
            return match known == *digest {
                // The stamp may be of another process with other rights.
                true if larder_sys::may_be_barred(stat, READ) => open().map(drop).map_err(cannot_be_read),
                true => Ok(()),
                false => Err(OTHER_CONTENT.into()),
            };
        }
        effort.hashed += 1;
        let read = open().and_then(|(mut file, stat)| self.stat_cache.hash_for_comparison(&mut file, &stat));
        match read {
            Ok(found) if found == *digest => Ok(()),
            Ok(_) => Err(OTHER_CONTENT.into()),
            Err(error) => Err(cannot_be_read(error)),
        }
    }

    /// Checks a file that was generated in its place. It must be the same except for the paths in
    /// it.
    fn check_rooted(
        &self,
        dir: &Dir,
        name: &[u8],
        (digest, rooted): (&Digest, &Digest),
        effort: &mut Effort,
    ) -> Result<(), String> {
        effort.hashed += 1;
        let read = dir.open_file(name).and_then(|mut file| crate::scan::read_text(&mut file));
        let text = read.map_err(cannot_be_read)?;
        let Some(text) = text else { return Err(OTHER_CONTENT.into()) };
        if name == INDEX && entries(&text).is_some_and(|entries| entries == *rooted) {
            return Ok(());
        }
        let object = || self.forms.object.and_then(|object| object(&text));
        let encoded = self.roots.encode_content(&text).or_else(object);
        let is_the_same = encoded.is_some_and(|encoded| Digest::of(&encoded) == *rooted)
            || self.same_bytes_will_do && Digest::of(&text) == *digest;
        let uncut = || self.roots.encode_content(&(self.forms.uncut)(name, &text)?);
        if is_the_same || uncut().is_some_and(|encoded| of_uncut(&encoded) == *rooted) {
            return Ok(());
        }
        Err("has other content, even with the paths of both places replaced".into())
    }
}

/// Returns the directory with the names that were not decoded yet.
fn all_of<'f, 'a>(facts: &'f DirFacts<'a>, unread: &Unread<'a>) -> Result<Cow<'f, DirFacts<'a>>, Difference> {
    if unread.count() == 0 {
        return Ok(Cow::Borrowed(facts));
    }
    let mut all = facts.clone();
    unread.read_into(&mut all).or_else(unreadable)?;
    Ok(Cow::Owned(all))
}

/// Returns true if this process may look up names in a directory.
type MaySearch<'f> = &'f dyn Fn() -> bool;

fn search(dir: &Dir) -> impl Fn() -> bool {
    || dir.access(b".", SEARCH as u8).is_ok()
}

fn unreadable<T>(error: DecodeError) -> Result<T, Difference> {
    differs(b"the record", format!("cannot be read: {error}"))
}

/// The state that is kept from one directory to the next.
#[derive(Default)]
struct Walk {
    /// The path of the current directory. Its memory is reused.
    path: Vec<u8>,
    /// The device and inode of each directory that the tool accessed itself.
    looked_at: Vec<(u64, u64)>,
}

/// The names of a directory's facts and absences.
enum Names {
    AsTheyStand,
    /// The names of the facts, then those of the absences.
    Decoded(Vec<Vec<u8>>),
    /// A name by chance has no counterpart in this run.
    Unknown,
}

/// The names in a directory, in lower case and sorted.
struct Listed(Vec<Vec<u8>>);

impl Listed {
    /// Returns `None` if a name is not ASCII. A file system may ignore case, and its rules beyond
    /// ASCII are not known.
    fn of(names: Vec<(Vec<u8>, u8)>) -> Option<Listed> {
        let mut names: Vec<Vec<u8>> = names.into_iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        names.iter().all(|name| name.is_ascii()).then_some(Listed(names))
    }

    fn lack(&self, name: &[u8]) -> bool {
        name.is_ascii() && self.0.binary_search(&name.to_ascii_lowercase()).is_err()
    }
}

/// The rights of a file's mode to read it, and to look up names in a directory.
const READ: u32 = 4;
const SEARCH: u32 = 1;

const OTHER_CONTENT: &str = "has other content";

fn cannot_be_read(error: io::Error) -> String {
    format!("cannot be read: {error}")
}

/// Returns the `stat` if it is that of a file that is executable or not, as recorded.
#[inline]
fn file_of_mode(stat: &io::Result<Stat>, executable: bool) -> Result<&Stat, String> {
    match stat {
        Ok(stat) if stat.kind == FileType::File && (stat.mode & 0o111 != 0) == executable => Ok(stat),
        Ok(stat) if stat.kind == FileType::File => Err("has become executable, or is no longer".into()),
        other => Err(format!("was a file; {}", found(other))),
    }
}

/// Opens a file, and returns its `stat` as well: another file may have come there since it was
/// looked up.
fn opened(dir: &Dir, name: &[u8]) -> io::Result<(File, Stat)> {
    let file = dir.open_file(name)?;
    let stat = larder_sys::fstat(&file)?;
    Ok((file, stat))
}

fn first_component(name: &[u8]) -> &[u8] {
    name.split(|&b| b == b'/').next().unwrap_or(name)
}

fn differs<T>(subject: &[u8], what: impl Into<String>) -> Result<T, Difference> {
    Err(Difference { subject: subject.to_vec(), what: what.into() })
}

fn kind_name(code: u8) -> &'static str {
    match code {
        0o10 => "a file",
        0o04 => "a directory",
        0o12 => "a symbolic link",
        0o01 => "a FIFO",
        0o02 | 0o06 => "a device",
        0o14 => "a socket",
        _ => "something else",
    }
}

fn found(stat: &io::Result<Stat>) -> String {
    match stat {
        Ok(stat) => format!("is now {}", kind_name(stat.kind.code())),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::scan::Words;

    fn checker<'a>(roots: &'a Roots, stat_cache: &'a StatCache) -> Checker<'a> {
        Checker {
            roots,
            stat_cache,
            at_home: true,
            same_bytes_will_do: false,
            stampless: Cell::new(false),
            variable: &|_| None,
            value_key: ValueKey::ZERO,
            forms: Forms::plain(Words { names_files: |_| false, compares_dates: |_| false }),
        }
    }

    #[test]
    fn a_difference_names_the_path_in_this_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().to_str().expect("is a text");
        let roots = Roots::new([root.as_bytes().to_vec()]);
        let [mut a, mut b] = [Vec::new(), Vec::new()];
        roots.encode_path(format!("{root}/a").as_bytes(), &mut a);
        roots.encode_path(format!("{root}/b").as_bytes(), &mut b);
        let subject = |set: &ObservationSet| {
            let found = checker(&roots, &StatCache::none()).check(set, &mut Effort::default());
            String::from_utf8(found.expect_err("differs").subject).expect("is a text")
        };
        let ages = ObservationSet { ages: vec![Age { path: &a, same: false }], ..ObservationSet::default() };
        assert_eq!(subject(&ages), format!("{root}/a"), "it does not exist");
        let twins = Twins { paths: [&a, &b], same_file: true, same_time: true };
        let twins = ObservationSet { twins: vec![twins], ..ObservationSet::default() };
        assert_eq!(subject(&twins), format!("{root}/a"), "it does not exist");
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), "").expect("writes");
        }
        assert_eq!(subject(&twins), format!("{root}/b"), "they are two files");
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9999);
        let file = std::fs::File::options().write(true).open(dir.path().join("a")).expect("opens");
        file.set_modified(later).expect("sets");
        assert_eq!(subject(&ages), format!("{root}/a"), "it is from the future");
    }

    /// Returns how many names are looked up in a directory that was changed this long ago, and how
    /// many in a second check.
    fn looked_for(changed_before: std::time::Duration) -> [u64; 2] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("store")).expect("opens");
        let stat_cache = StatCache::open(&store, true);
        let path = dir.path().join("d");
        std::fs::create_dir(&path).expect("makes");
        std::thread::sleep(changed_before);
        let path = path.to_str().expect("is a text").as_bytes();
        let directory = DirFacts { path, absent: vec![b"a", b"b"], ..DirFacts::default() };
        let set = ObservationSet { directories: vec![directory], ..ObservationSet::default() };
        let roots = Roots::new([]);
        let checker = checker(&roots, &stat_cache);
        [(); 2].map(|()| {
            let mut effort = Effort::default();
            checker.check(&set, &mut effort).expect("holds");
            effort.absences_looked
        })
    }

    #[test]
    fn what_is_missing_is_noted_where_nothing_changes() {
        // On a busy machine the check may come too late.
        let mut tries = (0..20).map(|_| looked_for(std::time::Duration::from_millis(40)));
        assert!(tries.any(|looked| looked == [2, 2]), "it changed just now");
        let dir = tempfile::tempdir().expect("a directory");
        let trust = Dir::open(dir.path().to_str().expect("is a text").as_bytes(), false).and_then(|dir| dir.trust());
        if trust.is_ok_and(|trust| trust.directories) {
            assert_eq!(looked_for(std::time::Duration::from_millis(1100)), [2, 0]);
        } else {
            println!("skipped: the times of this file system are not believed");
        }
    }
}
