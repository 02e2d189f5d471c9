//! Observations: the facts about files and variables that a result relied on. They are grouped by
//! directory, so that a check opens each directory once and one stamp can cover all its absences.
//!
//! ```text
//! set        = number of directories, directory*, number of variables, variable*,
//!              number of twins, twin*, number of ages, age* (oldest first)
//! directory  = bytes path, u8 links, [bytes real path], number class, number of facts, fact*,
//!              number of absences, [absences]
//! absences   = u8 1 if a name contains a placeholder, else 0 and names_digest;
//!              number of bytes, name*
//! links      = 0 not relevant · 1 the path has none · 2 they lead to the real path
//! fact       = bytes name, u8 tag, …        by tag:
//!    1 content     digest, u8 bits: 1 executable, 2 not through a link, 4 it contains a root;
//!                  [digest with roots replaced]
//!    2 directory
//!    3 link        bytes target
//!    4 error       u8 operation, number errno (or, for `Fact::OWNER`, number owner)
//!    5 listing     digest of the sorted names
//!    6 other kind  u8 kind
//!    7 modified    number nanoseconds since 1970, as two's complement
//!    8 status      number mode, number owner, number group, number of hard links, number inode,
//!                  number nanoseconds as in 7, number size in bytes, number of blocks
//!    9 listing     digest of the names with their kinds, in the directory's own order
//!   10 mode        number permission bits
//!   11 listing     digest of the sorted names, with the kinds of those without a leading dot
//!   12 belongs     number owner, number group, number of hard links or 0
//! variable   = bytes name, u8 1 if it is set, [digest of the value with roots replaced,
//!              keyed by the action (ValueKey)]
//! twin       = bytes path, bytes path, u8 bits: 1 one file, 2 equal mtimes
//! age        = bytes path, u8 1 if its mtime equals that of the age before, else 0
//! ```
//! Roots in paths are replaced (`Roots::encode_path`). An empty name means the directory itself.
//! The name of an error fact or of an absence may contain slashes. It is then recorded for the
//! deepest directory that exists. For example, if `/w/a` does not exist, `/w/a/b.h` is the absence
//! `a/b.h` of `/w`.
//!
//! Unaware of: how facts are found out (`store::InputVerifier`) or checked (`store::Checker`).

use crate::fact::PATH_BYTES_MAX;
use crate::path::join;
use crate::{DecodeError, Digest, Fact, Reader, Writer, is_encoded};

const ABSENT_BYTES_MAX: u64 = 64 << 20;

/// A fact about a name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFact<'a> {
    /// The name, or empty for the directory itself.
    pub name: &'a [u8],
    /// The fact.
    pub fact: Fact<'a>,
}

/// In which way a tool relied on symbolic links in the path of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links<'a> {
    /// Not at all: it only followed them.
    #[default]
    Any,
    /// The path contains no symbolic link.
    None,
    /// With all symbolic links resolved, the path is this one, with its root replaced.
    Real(&'a [u8]),
}

/// All facts about one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirFacts<'a> {
    /// The path as the tool used it, with its root replaced.
    pub path: &'a [u8],
    /// What is recorded of symbolic links in the path.
    pub links: Links<'a>,
    /// 0 if the tool did not `stat` the directory itself. Otherwise the directories of which it did
    /// are counted from 1, and this is the number of the first that is the same directory. For
    /// example, compilers skip an `-I` directory that they already have under another path.
    pub class: u64,
    /// What was found there.
    pub facts: Vec<NamedFact<'a>>,
    /// The names that were looked up there and were absent, sorted.
    pub absent: Vec<&'a [u8]>,
}

/// The name of the [`EnvFact`] for the umask. No variable has such a name.
pub const UMASK: &[u8] = b"\0umask";
/// The name of the [`EnvFact`] for all variables, except [`HISTORY_VARIABLES`],
/// [`INTERNAL_VARIABLES`] and the values that differ in each job of a CI service.
pub const ALL_VARIABLES: &[u8] = b"\0all";
/// Variables that say what a shell did before. A command that lists all variables shows them, and
/// hardly any result depends on them.
pub const HISTORY_VARIABLES: &[&[u8]] = &[b"OLDPWD", b"SHLVL"];
/// Variables that larder sets for its own processes, not for people.
pub const INTERNAL_VARIABLES: &[&str] = &["LARDER_PRELOAD_LOG", "LARDER_RECORD", "LARDER_WRAPPER"];
/// The name of the [`EnvFact`] for the variables by which a CI service describes a job. Of those that
/// differ in each job, only the names are part of it.
pub const JOB_VARIABLES: &[u8] = b"\0job";
/// The start of the names that [`OfHistory::fact_name`] makes.
const OF_HISTORY: &[u8] = b"\0history ";

/// How one of [`HISTORY_VARIABLES`], or a variable that differs in each job of a CI service, counts
/// for a command that may have read it unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfHistory {
    /// By its value, which has this length in bytes. It is not set if there is none.
    Value(Option<usize>),
    /// By the length of its value in bytes.
    Length(usize),
    /// By whether it is set.
    IsSet,
}

impl OfHistory {
    /// Returns the name of the [`EnvFact`] that says it of this variable. The value is then that of
    /// the variable, or empty for [`OfHistory::Length`] and [`OfHistory::IsSet`].
    pub fn fact_name(self, variable: &[u8]) -> Vec<u8> {
        let how = match self {
            OfHistory::Value(length) => length.map_or_else(|| "none".to_owned(), |length| length.to_string()),
            OfHistory::Length(length) => format!("length={length}"),
            OfHistory::IsSet => "set".to_owned(),
        };
        [OF_HISTORY, variable, b" ", how.as_bytes()].concat()
    }

    /// Returns the variable in a name that [`OfHistory::fact_name`] made, and how it counts, or
    /// `None` if it is another name.
    pub fn of_fact_name(name: &[u8]) -> Option<(&[u8], OfHistory)> {
        let rest = name.strip_prefix(OF_HISTORY)?;
        let space = rest.iter().rposition(|&byte| byte == b' ')?;
        let how = match &rest[space + 1..] {
            b"set" => OfHistory::IsSet,
            b"none" => OfHistory::Value(None),
            how if how.starts_with(b"length=") => OfHistory::Length(std::str::from_utf8(&how[7..]).ok()?.parse().ok()?),
            length => OfHistory::Value(Some(std::str::from_utf8(length).ok()?.parse().ok()?)),
        };
        Some((&rest[..space], how))
    }
}
/// The start of the names that [`host_field`] makes.
const HOST: &[u8] = b"\0host ";
/// The fields of the answer of `uname`, by the letters of the options of that program, and `d` for the
/// domain.
pub const HOST_FIELDS: &[u8] = b"snrvmd";
/// The name of the host as a variable of [`OfHistory`].
pub const HOST_NAME: &[u8] = b"=host name";

/// Returns the name of the [`EnvFact`] for one of [`HOST_FIELDS`].
pub fn host_field(letter: u8) -> Vec<u8> {
    [HOST, &[letter]].concat()
}

/// Returns the letter in a name that [`host_field`] made, or `None` if it is another name.
pub fn of_host_field(name: &[u8]) -> Option<u8> {
    match name.strip_prefix(HOST)? {
        [letter] => Some(*letter),
        _ => None,
    }
}
/// The name of the [`EnvFact`] for the kinds of sockets that exist.
pub const SOCKETS: &[u8] = b"\0sockets";

/// The name of the [`EnvFact`] for the signals that a terminal or `nohup` concern, ignored or not,
/// and for the niceness.
pub const SIGNALS: &[u8] = b"=signals";
/// The name of the [`EnvFact`] for limits, user, groups, allowed processors and whatever else a
/// program inherits and can ask for.
pub const INHERITED: &[u8] = b"\0inherited";
/// The start of the names that [`found_along_path`] makes. The names of the programs follow, each
/// after a NUL byte.
const FOUND_ALONG_PATH: &[u8] = b"\0path";

/// Returns the name of the [`EnvFact`] for what is found along `PATH` when these programs are
/// looked for. The value is `PATH` without the directories that have none of them.
pub fn found_along_path<'n>(programs: impl Iterator<Item = &'n [u8]>) -> Vec<u8> {
    let parts = programs.flat_map(|program| [b"\0", program]);
    std::iter::once(FOUND_ALONG_PATH).chain(parts).collect::<Vec<_>>().concat()
}

/// Returns the programs in a name that [`found_along_path`] made, or `None` if it is another name.
pub fn looked_for_along_path(name: &[u8]) -> Option<impl Iterator<Item = &[u8]> + Clone> {
    Some(name.strip_prefix(FOUND_ALONG_PATH)?.split(|&byte| byte == 0).skip(1))
}

/// A variable that the tool asked for, or something else that a process inherits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvFact<'a> {
    /// The name of the variable. Empty for all variables together, which is recorded if a program
    /// could read any of them unseen. Or one of [`UMASK`], [`ALL_VARIABLES`],
    /// [`SOCKETS`], [`SIGNALS`], [`INHERITED`], [`JOB_VARIABLES`], or a name that [`found_along_path`],
    /// [`host_field`] or [`OfHistory::fact_name`] makes.
    pub name: &'a [u8],
    /// The keyed digest of the value with roots replaced (see [`crate::ValueKey`]), or `None` if it
    /// was not set.
    pub value: Option<Digest>,
}

/// Two files with equal content. For `#pragma once` gcc takes them for one file if their mtimes are
/// equal, clang if they are hard links of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twins<'a> {
    /// The two paths, with roots replaced.
    pub paths: [&'a [u8]; 2],
    /// The paths are hard links of one file.
    pub same_file: bool,
    /// Their mtimes are equal.
    pub same_time: bool,
}

/// A file whose mtime was compared with the mtimes of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age<'a> {
    /// The path, with its root replaced.
    pub path: &'a [u8],
    /// True if its mtime equals that of the file before it in the list. Otherwise it is later.
    pub same: bool,
}

/// Everything that a result relied on, apart from what its Action says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservationSet<'a> {
    /// The facts by directory.
    pub directories: Vec<DirFacts<'a>>,
    /// Variables that the Action does not key.
    pub environment: Vec<EnvFact<'a>>,
    /// Pairs of files with equal content.
    pub twins: Vec<Twins<'a>>,
    /// The files of which a program compared the mtimes, oldest first. All are older than the run.
    pub ages: Vec<Age<'a>>,
}

/// Reads a set directory by directory. A check needs each directory once. Holding all of them would
/// take ten times the memory, and each page of memory costs a hit a microsecond.
#[derive(Clone, Debug)]
pub struct SetReader<'a> {
    directories: Reader<'a>,
    left: usize,
    size: (usize, usize),
    rest: ObservationSet<'a>,
}

impl<'a> SetReader<'a> {
    /// Reads the set except for its directories, which are only passed over.
    pub fn open(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let left = r.count()?;
        let directories = r.clone();
        let (mut facts, mut absent) = (0, 0);
        for _ in 0..left {
            let (of_it, absent_in_it) = DirFacts::pass_over(r)?;
            facts += of_it;
            absent += absent_in_it;
        }
        let rest = ObservationSet::decode_rest(r)?;
        let facts = facts + absent + rest.environment.len() + rest.ages.len();
        Ok(SetReader { directories, left, size: (facts, absent), rest })
    }

    /// Reads the next directory into `directory`, except for its absences, which are returned.
    /// Returns `None` if there is no further directory.
    pub fn next_into(&mut self, directory: &mut DirFacts<'a>) -> Result<Option<Unread<'a>>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        directory.decode_into(&mut self.directories)?;
        Unread::decode(&mut self.directories).map(Some)
    }

    /// Returns the set except for its directories.
    pub fn rest(&self) -> &ObservationSet<'a> {
        &self.rest
    }

    /// Returns the number of facts, and how many of these are absences.
    pub fn size(&self) -> (usize, usize) {
        self.size
    }

    /// Returns the set with the directories that were not read yet. The digests of absences are
    /// checked.
    pub fn whole(mut self) -> Result<ObservationSet<'a>, DecodeError> {
        let mut directories = Vec::with_capacity(self.left.min(1024));
        let mut directory = DirFacts::default();
        while let Some(unread) = self.next_into(&mut directory)? {
            unread.read_into(&mut directory)?;
            if unread.digest != digest_in_record(&directory.absent) {
                return Err(DecodeError::Damaged);
            }
            directories.push(std::mem::take(&mut directory));
        }
        Ok(ObservationSet { directories, ..self.rest })
    }
}

/// The absences of a directory, not decoded yet. Mostly a stamp says by their digest that all of
/// them are absent, and then no name is decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unread<'a> {
    count: usize,
    digest: Option<Digest>,
    encoded: &'a [u8],
}

impl<'a> Unread<'a> {
    /// Returns the number of absences.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns their [`names_digest`], or `None` if there are none or if a name contains a
    /// placeholder, because such a name differs in each place.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Decodes the names into `directory`.
    pub fn read_into(&self, directory: &mut DirFacts<'a>) -> Result<(), DecodeError> {
        let mut r = Reader::new(self.encoded);
        directory.absent.reserve(self.count.min(4096));
        for _ in 0..self.count {
            directory.absent.push(r.bytes(PATH_BYTES_MAX)?);
        }
        r.finish()
    }

    fn encode(names: &[&[u8]], w: &mut Writer) {
        w.number(names.len() as u64);
        if names.is_empty() {
            return;
        }
        let digest = digest_in_record(names);
        w.u8(digest.is_none().into());
        if let Some(digest) = digest {
            w.digest(&digest);
        }
        let mut encoded = Writer::default();
        names.iter().for_each(|name| encoded.bytes(name));
        w.bytes(&encoded.bytes);
    }

    fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = r.count()?;
        if count == 0 {
            return Ok(Unread::default());
        }
        let digest = if r.flag()? { None } else { Some(r.digest()?) };
        Ok(Unread { count, digest, encoded: r.bytes(ABSENT_BYTES_MAX)? })
    }
}

/// Returns the digest that is recorded before absences, or `None` if there are none or if a name
/// contains a placeholder.
fn digest_in_record(names: &[&[u8]]) -> Option<Digest> {
    let is_one = !names.is_empty() && !names.iter().any(|name| is_encoded(name));
    is_one.then(|| names_digest(names))
}

/// Returns the digest under which a stamp says "this directory has none of these names". `names`
/// must be sorted.
pub fn names_digest(names: &[&[u8]]) -> Digest {
    let mut w = Writer::default();
    w.u8(b'-');
    names.iter().for_each(|name| w.bytes(name));
    Digest::of(&w.bytes)
}

impl<'a> ObservationSet<'a> {
    /// Returns the bytes by which the sets of two runs are compared: contents, listings and the
    /// targets of symbolic links. Content with roots counts with its roots replaced. Facts that
    /// only show the existence, mode or times of something do not count, because they may differ.
    /// For example, part of one run may have been a hit. All facts are checked again when the set
    /// answers.
    pub fn contents(&self) -> Vec<u8> {
        let mut w = Writer::default();
        for (directory, name, fact) in self.compared() {
            w.bytes(directory);
            w.bytes(name);
            fact.encode(&mut w);
        }
        w.bytes
    }

    /// Returns the facts that are in [`ObservationSet::contents`]: directory, name, and the part of
    /// the fact that counts.
    pub fn compared(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8], Fact<'a>)> {
        self.directories.iter().flat_map(|directory| {
            let compared =
                directory.facts.iter().filter_map(|NamedFact { name, fact }| Some((*name, fact.compared()?)));
            compared.map(|(name, fact)| (directory.path, name, fact))
        })
    }

    /// Returns the files that have other content than in `before`, as encoded paths. Returns `None`
    /// if anything else differs between the sets.
    pub fn changed_contents(&self, before: &ObservationSet) -> Option<Vec<Vec<u8>>> {
        let is_framed_alike = self.directories.len() == before.directories.len()
            && self.environment == before.environment
            && self.twins == before.twins
            && self.ages == before.ages;
        if !is_framed_alike {
            return None;
        }
        let mut changed = Vec::new();
        for (now, before) in self.directories.iter().zip(&before.directories) {
            let is_alike = (now.path, now.links, now.class) == (before.path, before.links, before.class)
                && now.facts.len() == before.facts.len()
                && now.absent == before.absent;
            if !is_alike {
                return None;
            }
            for (fact, old) in now.facts.iter().zip(&before.facts).filter(|(fact, old)| fact != old) {
                let (Fact::Content { digest, .. }, Fact::Content { rooted: None, .. }) = (&fact.fact, &old.fact) else {
                    return None;
                };
                let mut alike = old.clone();
                if let Fact::Content { digest: old, .. } = &mut alike.fact {
                    *old = *digest;
                }
                if alike != *fact {
                    return None;
                }
                changed.push(join(now.path, fact.name));
            }
        }
        Some(changed)
    }

    /// Leaves out the contents of these files, given as encoded paths.
    pub fn leave_out_contents(&mut self, files: &[&[u8]]) {
        for DirFacts { path, facts, .. } in &mut self.directories {
            let is_one = |fact: &NamedFact| {
                matches!(fact.fact, Fact::Content { .. }) && files.contains(&&*join(path, fact.name))
            };
            facts.retain(|fact| !is_one(fact));
        }
    }

    /// Appends the encoded set.
    pub fn encode(&self, w: &mut Writer) {
        w.number(self.directories.len() as u64);
        for directory in &self.directories {
            directory.encode(w);
        }
        w.number(self.environment.len() as u64);
        for variable in &self.environment {
            w.bytes(variable.name);
            w.u8(variable.value.is_some().into());
            if let Some(digest) = &variable.value {
                w.digest(digest);
            }
        }
        w.number(self.twins.len() as u64);
        for twins in &self.twins {
            twins.paths.iter().for_each(|path| w.bytes(path));
            w.u8(u8::from(twins.same_file) | u8::from(twins.same_time) << 1);
        }
        w.number(self.ages.len() as u64);
        for age in &self.ages {
            w.bytes(age.path);
            w.u8(age.same.into());
        }
    }

    /// Reads a set.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        SetReader::open(r)?.whole()
    }

    fn decode_rest(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut set = ObservationSet::default();
        for _ in 0..r.count()? {
            let name = r.bytes(PATH_BYTES_MAX)?;
            let value = if r.flag()? { Some(r.digest()?) } else { None };
            set.environment.push(EnvFact { name, value });
        }
        for _ in 0..r.count()? {
            let paths = [r.bytes(PATH_BYTES_MAX)?, r.bytes(PATH_BYTES_MAX)?];
            let bits = r.u8()?;
            if bits > 3 {
                return Err(r.unknown_tag(bits));
            }
            set.twins.push(Twins { paths, same_file: bits & 1 != 0, same_time: bits & 2 != 0 });
        }
        for _ in 0..r.count()? {
            set.ages.push(Age { path: r.bytes(PATH_BYTES_MAX)?, same: r.flag()? });
        }
        Ok(set)
    }

    /// Returns the number of facts, and how many of these are absences.
    pub fn size(&self) -> (usize, usize) {
        let facts: usize = self.directories.iter().map(|d| d.facts.len()).sum();
        let absent: usize = self.directories.iter().map(|d| d.absent.len()).sum();
        (facts + absent + self.environment.len() + self.ages.len(), absent)
    }
}

impl<'a> DirFacts<'a> {
    fn encode(&self, w: &mut Writer) {
        w.bytes(self.path);
        match self.links {
            Links::Any => w.u8(0),
            Links::None => w.u8(1),
            Links::Real(real) => {
                w.u8(2);
                w.bytes(real);
            }
        }
        w.number(self.class);
        w.number(self.facts.len() as u64);
        for fact in &self.facts {
            w.bytes(fact.name);
            fact.fact.encode(w);
        }
        Unread::encode(&self.absent, w);
    }

    /// Reads a directory except for its absences into this value, and reuses its memory.
    fn decode_into(&mut self, r: &mut Reader<'a>) -> Result<(), DecodeError> {
        self.path = r.bytes(PATH_BYTES_MAX)?;
        self.links = match r.u8()? {
            0 => Links::Any,
            1 => Links::None,
            2 => Links::Real(r.bytes(PATH_BYTES_MAX)?),
            other => return Err(r.unknown_tag(other)),
        };
        self.class = r.number()?;
        self.facts.clear();
        let count = r.count()?;
        self.facts.reserve(count.min(4096));
        for _ in 0..count {
            let name = r.bytes(PATH_BYTES_MAX)?;
            self.facts.push(NamedFact { name, fact: Fact::decode(r)? });
        }
        self.absent.clear();
        Ok(())
    }

    /// Passes over a directory. Returns the number of its facts and of its absences.
    fn pass_over(r: &mut Reader<'a>) -> Result<(usize, usize), DecodeError> {
        r.bytes(PATH_BYTES_MAX)?;
        if r.u8()? == 2 {
            r.bytes(PATH_BYTES_MAX)?;
        }
        r.number()?;
        let facts = r.count()?;
        for _ in 0..facts {
            r.bytes(PATH_BYTES_MAX)?;
            Fact::pass_over(r)?;
        }
        Ok((facts, Unread::decode(r)?.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn names_of_what_is_found_along_path() {
        let (some, none) = (found_along_path([&b"as"[..], b"ld"].into_iter()), found_along_path(std::iter::empty()));
        assert_eq!(some, b"\0path\0as\0ld");
        for (name, expect) in [(&some[..], Some(vec![&b"as"[..], b"ld"])), (&none, Some(Vec::new())), (UMASK, None)] {
            assert_eq!(looked_for_along_path(name).map(|programs| programs.collect()), expect);
        }
    }

    #[test]
    fn every_fact_there_and_back() {
        let facts = [
            Fact::Content { digest: Digest::of(b"x"), executable: true, plain: false, rooted: None },
            Fact::Content { digest: Digest::of(b"x"), executable: false, plain: true, rooted: Some(Digest::of(b"y")) },
            Fact::Directory,
            Fact::Link(b"../y"),
            Fact::Error { operation: 1, errno: 13 },
            Fact::Listing(Digest::of(b"l")),
            Fact::Other(2),
            Fact::Ordered(Digest::of(b"o")),
            Fact::Kinds(Digest::of(b"k")),
            Fact::Modified(-1),
            Fact::Mode(0o4755),
            Fact::Status(Status {
                mode: 0o644,
                owner: 1,
                group: 2,
                links: 3,
                inode: 4,
                modified_ns: 1 << 60,
                size_bytes: 5,
                blocks: 6,
            }),
            Fact::Belongs { owner: 1000, group: 100, links: Some(2) },
            Fact::Belongs { owner: 0, group: 0, links: None },
        ];
        let set = ObservationSet {
            directories: vec![
                DirFacts {
                    path: b"\0\x01/inc",
                    links: Links::Real(b"/real"),
                    class: 3,
                    facts: facts.into_iter().map(|fact| NamedFact { name: b"n", fact }).collect(),
                    absent: vec![b"a", b"b"],
                },
                DirFacts { absent: vec![b"\0\x80.gch", b"x"], ..DirFacts::default() },
            ],
            environment: vec![
                EnvFact { name: b"A", value: None },
                EnvFact { name: b"B", value: Some(Digest::of(b"v")) },
            ],
            twins: vec![Twins { paths: [b"a", b"b"], same_file: true, same_time: false }],
            ages: vec![Age { path: b"a", same: false }, Age { path: b"b", same: true }],
        };
        let mut w = Writer::default();
        set.encode(&mut w);
        let mut r = Reader::new(&w.bytes);
        assert_eq!(ObservationSet::decode(&mut r), Ok(set.clone()));
        assert_eq!(r.finish(), Ok(()));
        let name_at = w.bytes.windows(2).position(|bytes| bytes == b"\x01b").expect("stands there") + 1;
        let mut other_name = w.bytes.clone();
        other_name[name_at] = b'c';
        assert_eq!(ObservationSet::decode(&mut Reader::new(&other_name)), Err(DecodeError::Damaged));
        let reader = SetReader::open(&mut Reader::new(&w.bytes)).expect("own bytes");
        assert_eq!(reader.size(), set.size());
        assert_eq!(reader.rest().ages, set.ages);
        for cut in 0..w.bytes.len() {
            assert!(ObservationSet::decode(&mut Reader::new(&w.bytes[..cut])).is_err(), "cut at {cut}");
        }
    }
}
