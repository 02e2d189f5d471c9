//! The order of it all: defaults, files, environment, and the store's default place; who set what is kept beside it.
//!
//! Unaware of: what a setting is for, what TOML is, and how problems are shown.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::document::{self, Entry, Typed, Unusable};
use crate::meaning::{Base, Given};
use crate::places::{self, Candidate, Environment, Home, Role};
use crate::problem::{self, Fault, Place, Problem};
use crate::settings::{Kind, SETTINGS, Setting, Settings};
use crate::{FILE_BYTES_MAX, OTHER_VARIABLES};

/// Problems of one file that are listed; more are counted.
const FILE_PROBLEMS_MAX: usize = 20;

/// What [`load`] may look at.
pub struct Surroundings<'a> {
    /// The environment, name and value.
    pub env: &'a [(OsString, OsString)],
    /// Reads a whole file, or a little more than [`FILE_BYTES_MAX`] of it. It should not wait on a pipe or device.
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
    /// The home directory by the password database. Asked at most once, and only where `HOME` is not an absolute path
    /// and something needs it.
    pub home: &'a dyn Fn() -> Option<PathBuf>,
    /// The directory of the wrapper's file, no link at that one's end.
    pub wrapper_dir: Option<&'a Path>,
    /// The working directory: a project's file is looked for here and in no parent, relative paths of the environment
    /// start here.
    pub cwd: Option<&'a Path>,
}

/// What [`load`] found.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings, complete whatever was wrong.
    pub settings: Settings,
    /// What is wrong and was ignored: worth a warning, once.
    pub problems: Vec<Problem>,
    /// What is odd and harmless, such as an unknown `LARDER_*` variable: for `larder config` only.
    pub notes: Vec<Problem>,
    /// Where files were looked for, the one that wins last.
    pub files: Vec<LookedAt>,
    /// One for each of [`SETTINGS`].
    sources: Vec<Source>,
}

/// A place where a configuration file may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// Its path.
    pub path: PathBuf,
    /// There is something, readable or not.
    pub found: bool,
    /// It is the project's own, which may set little.
    pub of_project: bool,
}

/// Who set a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody.
    Default,
    /// Nobody; it follows from the home directory in the password database.
    PasswordDatabase,
    /// This variable, or it follows from it (`HOME`, `XDG_CACHE_HOME`).
    Environment(&'static str),
    /// This file.
    File {
        /// Its path.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// A setting as it is in force, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its key.
    pub name: &'static str,
    /// Its value, as it could be written in a file; `none` for a path that is not set.
    pub shown: String,
    /// Who set it.
    pub source: Source,
}

/// Read the configuration. Costs one failed open for each place without a file.
pub fn load(around: &Surroundings) -> Loaded {
    let environment = Environment::of(around.env);
    let home = Home::new(&environment, around.home);
    let home_path = || home.get().map(|(path, _)| path.to_owned());
    let mut loaded = Loaded::new();
    for candidate in places::candidates(around, &environment, &home) {
        let found = loaded.file(&candidate, around.read, &home_path);
        let Candidate { path, role } = candidate;
        loaded.files.push(LookedAt { path, found, of_project: role == Role::Project });
    }
    loaded.environment(&environment, &Base { dir: around.cwd, home: &home_path });
    // Whom to believe, and whether to send, was said and not understood: nobody is asked and nothing is sent.
    if loaded.problems.iter().chain(&loaded.notes).any(Problem::keeps_from_remotes) {
        loaded.settings.remote.clear();
    }
    if loaded.settings.dir.is_none()
        && let Some((dir, source)) = places::default_store(&environment, &home)
    {
        loaded.settings.dir = Some(dir);
        loaded.sources[DIR] = source;
    }
    loaded
}

/// The place of `dir` in [`SETTINGS`], the one setting whose default depends on the surroundings.
pub(crate) const DIR: usize = 3;

impl Loaded {
    /// Each setting as it is in force, in the order of [`SETTINGS`].
    pub fn values(&self) -> Vec<Value> {
        let value = |(setting, source): (&Setting, &Source)| Value {
            name: setting.key,
            shown: setting.shown(&self.settings),
            source: source.clone(),
        };
        SETTINGS.iter().zip(&self.sources).map(value).collect()
    }

    fn new() -> Self {
        Loaded {
            settings: Settings::default(),
            problems: Vec::new(),
            notes: Vec::new(),
            files: Vec::new(),
            sources: vec![Source::Default; SETTINGS.len()],
        }
    }

    /// Take what a file sets. Whether there is one.
    fn file(
        &mut self,
        candidate: &Candidate,
        read: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
        home: &dyn Fn() -> Option<PathBuf>,
    ) -> bool {
        let read = read(&candidate.path);
        if candidate.role != Role::Named && read.as_ref().is_err_and(is_missing) {
            return false;
        }
        let found = !read.as_ref().is_err_and(is_missing);
        match entries(&candidate.path, read) {
            Err(problem) => self.problems.push(problem),
            Ok(entries) => self.entries(candidate, &entries, &Base { dir: candidate.path.parent(), home }),
        }
        found
    }

    /// Take the entries of a file, and list the first of its problems.
    fn entries(&mut self, candidate: &Candidate, entries: &[Entry], base: &Base) {
        let before = self.problems.len();
        let mut more = 0;
        for entry in entries {
            match self.entry(candidate, entry, base) {
                Ok(()) => {}
                Err(_) if self.problems.len() - before >= FILE_PROBLEMS_MAX => more += 1,
                Err(fault) => {
                    let place = Place::Line(candidate.path.clone(), entry.line);
                    self.problems.push(Problem { place, fault });
                }
            }
        }
        if more > 0 {
            self.problems.push(Problem { place: Place::File(candidate.path.clone()), fault: Fault::More(more) });
        }
    }

    fn entry(&mut self, candidate: &Candidate, entry: &Entry, base: &Base) -> Result<(), Fault> {
        let Some(at) = SETTINGS.iter().position(|setting| entry.is(setting.key)) else {
            let keys = || SETTINGS.iter().map(|setting| setting.key);
            // What comes after the header of a table that has nothing to do with it was meant all the same.
            let last = || keys().find(|key| Some(*key) == entry.key.rsplit('.').next());
            let meant = problem::nearest(&entry.key.replace('.', "_"), keys()).or_else(last);
            return Err(Fault::UnknownKey { key: problem::quoted(&entry.key), meant });
        };
        let setting = &SETTINGS[at];
        let of_project = candidate.role == Role::Project;
        if of_project && !setting.project_may_set {
            return Err(Fault::NotForProjects(setting.key));
        }
        let given = match &entry.value {
            Typed::Text(text) => Given::Text(OsStr::new(text)),
            Typed::Plain(text) => Given::Plain(text),
            Typed::List(list) => Given::List(list),
            Typed::Other(what) => Given::Other(what),
        };
        let mut after = self.settings.clone();
        setting.put(&mut after, given, base).map_err(|advice| bad_value(setting, given, advice))?;
        if of_project && setting.goes_off(&mut self.settings, &mut after) {
            return Err(Fault::NotOff(setting.key));
        }
        self.settings = after;
        self.sources[at] = Source::File { path: candidate.path.clone(), line: entry.line };
        Ok(())
    }

    /// Take what the environment sets. An empty switch is off, any other empty variable as one that is not set.
    fn environment(&mut self, environment: &Environment, base: &Base) {
        for (at, setting) in SETTINGS.iter().enumerate() {
            let text = environment.settings[at].filter(|text| !text.is_empty() || setting.kind() == Kind::Switch);
            let Some(text) = text else { continue };
            match setting.put(&mut self.settings, Given::Text(text), base) {
                Ok(()) => self.sources[at] = Source::Environment(setting.variable),
                Err(advice) => self.problems.push(Problem {
                    place: Place::Variable(setting.variable.to_owned()),
                    fault: bad_value(setting, Given::Text(text), advice),
                }),
            }
        }
        let known =
            || SETTINGS.iter().map(|setting| setting.variable).chain(OTHER_VARIABLES.iter().map(|other| other.0));
        for name in environment.unknown.iter().rev() {
            let name = name.to_string_lossy().into_owned();
            let fault = Fault::UnknownVariable { meant: problem::nearest(&name, known()) };
            self.notes.push(Problem { place: Place::Variable(name), fault });
        }
    }
}

/// The entries of the file at `path`, which was read so.
fn entries(path: &Path, read: io::Result<Vec<u8>>) -> Result<Vec<Entry>, Problem> {
    let file = |fault| Problem { place: Place::File(path.to_owned()), fault };
    let line = |line, fault| Problem { place: Place::Line(path.to_owned(), line), fault };
    let bytes = read.map_err(|error| file(Fault::Unreadable(error.to_string())))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(file(Fault::TooLarge));
    }
    document::entries(&bytes).map_err(|unusable| match unusable {
        Unusable::NotUtf8 { line: at } => line(at, Fault::NotUtf8),
        Unusable::Syntax { line: at, reason } => line(at, Fault::Syntax(reason)),
    })
}

fn bad_value(setting: &Setting, given: Given, mut advice: String) -> Fault {
    if problem::DECIDES_ON_REMOTES.contains(&setting.key) {
        advice += "; until then no remote is used";
    }
    let value = match given {
        Given::Text(_) | Given::List(_) if setting.kind() == Kind::Urls => "what it is".to_owned(),
        Given::Text(text) => problem::quoted(&text.to_string_lossy()),
        Given::List(_) => "an array".to_owned(),
        Given::Plain(text) => text.to_owned(),
        Given::Other(what) => what.to_owned(),
    };
    Fault::BadValue { key: setting.key, value, advice }
}

/// There is no such file. `HOME` may be `/dev/null`, and then the error is another one.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
