//! Loads the defaults, the files, the environment and the default path of the store, in this order.
//! Records the source of each value.
//!
//! Unaware of: what a setting is for, what TOML is, and how problems are shown.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::document::{self, ConfigEntry, Typed, Unusable};
use crate::meaning::{Base, Given};
use crate::places::{self, Candidate, Environment, Home, Role};
use crate::problem::{self, Fault, Position, Problem};
use crate::settings::{SETTINGS, Setting, Settings, ValueKind};
use crate::surroundings::{Source, Surroundings};
use crate::{FILE_BYTES_MAX, OTHER_VARIABLES};

/// How many problems of one file are listed. Further ones are only counted.
const FILE_PROBLEMS_MAX: usize = 20;

/// The result of [`load`].
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings. They are complete even if there are problems.
    pub settings: Settings,
    /// Mistakes that were ignored. Each set of problems deserves one warning.
    pub problems: Vec<Problem>,
    /// Harmless oddities, such as an unknown `LARDER_*` variable. Only `larder config` and `larder
    /// doctor` show them.
    pub notes: Vec<Problem>,
    /// The paths of the configuration files, where the last one has precedence.
    pub files: Vec<LookedAt>,
    /// The source of each of [`SETTINGS`].
    sources: Vec<Source>,
}

/// The path of a possible configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// The path.
    pub path: PathBuf,
    /// True if something exists there, readable or not.
    pub found: bool,
    /// True for the project's own file, which may set only some keys.
    pub of_project: bool,
}

/// A setting with its value in force, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The key.
    pub name: &'static str,
    /// The value as it could be written in a file; `none` for a path that is not set.
    pub shown: String,
    /// The source of the value.
    pub source: Source,
}

/// Reads the configuration. For each file that does not exist, this costs one failed `open`.
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
    // A setting about trust or uploads could not be understood, so no remote is used at all.
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

/// The index of `dir` in [`SETTINGS`]. It is the only setting whose default depends on the
/// surroundings.
pub(crate) const DIR: usize = 3;

impl Loaded {
    /// Returns each setting with its value in force, in the order of [`SETTINGS`].
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

    /// Applies a file. Returns true if it exists.
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

    /// Applies the entries of a file, and lists the first of its problems.
    fn entries(&mut self, candidate: &Candidate, entries: &[ConfigEntry], base: &Base) {
        let before = self.problems.len();
        let mut more = 0;
        for entry in entries {
            match self.entry(candidate, entry, base) {
                Ok(()) => {}
                Err(_) if self.problems.len() - before >= FILE_PROBLEMS_MAX => more += 1,
                Err(fault) => {
                    let place = Position::Line(candidate.path.clone(), entry.line);
                    self.problems.push(Problem { place, fault });
                }
            }
        }
        if more > 0 {
            self.problems.push(Problem { place: Position::File(candidate.path.clone()), fault: Fault::More(more) });
        }
    }

    fn entry(&mut self, candidate: &Candidate, entry: &ConfigEntry, base: &Base) -> Result<(), Fault> {
        let Some(at) = SETTINGS.iter().position(|setting| entry.is(setting.key)) else {
            let keys = || SETTINGS.iter().map(|setting| setting.key);
            // A key that is in the wrong table by mistake is recognised by its last part.
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

    /// Applies the environment. An empty switch means off; any other empty variable counts as not
    /// set.
    fn environment(&mut self, environment: &Environment, base: &Base) {
        for (at, setting) in SETTINGS.iter().enumerate() {
            let text = environment.settings[at].filter(|text| !text.is_empty() || setting.kind() == ValueKind::Switch);
            let Some(text) = text else { continue };
            match setting.put(&mut self.settings, Given::Text(text), base) {
                Ok(()) => self.sources[at] = Source::Environment(setting.variable),
                Err(advice) => self.problems.push(Problem {
                    place: Position::Variable(setting.variable.to_owned()),
                    fault: bad_value(setting, Given::Text(text), advice),
                }),
            }
        }
        let known =
            || SETTINGS.iter().map(|setting| setting.variable).chain(OTHER_VARIABLES.iter().map(|other| other.0));
        for name in environment.unknown.iter().rev() {
            let name = name.to_string_lossy().into_owned();
            let fault = Fault::UnknownVariable { meant: problem::nearest(&name, known()) };
            self.notes.push(Problem { place: Position::Variable(name), fault });
        }
    }
}

/// Returns the entries of the file at `path`, given the result of reading it.
fn entries(path: &Path, read: io::Result<Vec<u8>>) -> Result<Vec<ConfigEntry>, Problem> {
    let file = |fault| Problem { place: Position::File(path.to_owned()), fault };
    let line = |line, fault| Problem { place: Position::Line(path.to_owned(), line), fault };
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
        advice += "; no remote is used until this is corrected";
    }
    let value = match given {
        Given::Text(_) | Given::List(_) if setting.kind() == ValueKind::Urls => "this value".to_owned(),
        Given::Text(text) => problem::quoted(&text.to_string_lossy()),
        Given::List(_) => "an array".to_owned(),
        Given::Plain(text) => text.to_owned(),
        Given::Other(what) => what.to_owned(),
    };
    Fault::BadValue { key: setting.key, value, advice }
}

/// Returns true if there is no such file. If `HOME` is `/dev/null`, the error is `NotADirectory`.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
