//! The paths of the configuration files and of the store, and the environment variables that belong
//! to larder.
//!
//! Unaware of: what is in a file, and whether it exists.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use larder_model::INTERNAL_VARIABLES;

use crate::settings::SETTINGS;
use crate::surroundings::{Source, Surroundings};

/// The name of every configuration file.
const FILE_NAME: &str = "larder.toml";

/// The file for all users of this machine.
const SYSTEM_FILE: &str = "/etc/larder/larder.toml";

/// The relevant part of the environment. An empty variable counts as not set, except for settings,
/// where it can switch something off.
pub(crate) struct Environment<'a> {
    /// The value for each of [`SETTINGS`].
    pub(crate) settings: [Option<&'a OsStr>; SETTINGS.len()],
    /// `LARDER_CONFIG`.
    pub(crate) config: Option<&'a Path>,
    /// Variables that begin like larder's but are unknown.
    pub(crate) unknown: Vec<&'a OsStr>,
    cache_home: Option<&'a Path>,
    config_home: Option<&'a Path>,
    home: Option<&'a Path>,
}

impl<'a> Environment<'a> {
    /// Scans `variables` once. If a name occurs twice, the first one counts, as in `getenv`.
    pub(crate) fn of(variables: &'a [(OsString, OsString)]) -> Self {
        let mut found = Environment {
            settings: [None; SETTINGS.len()],
            config: None,
            unknown: Vec::new(),
            cache_home: None,
            config_home: None,
            home: None,
        };
        for (name, value) in variables.iter().rev() {
            // Only few variables of a build start with `L`. The others cost the comparison of one
            // byte.
            match name.as_encoded_bytes() {
                [b'L', ..] => found.ours(name, value),
                b"HOME" => found.home = absolute(value),
                b"XDG_CACHE_HOME" => found.cache_home = absolute(value),
                b"XDG_CONFIG_HOME" => found.config_home = absolute(value),
                _ => {}
            }
        }
        found
    }

    /// Handles a variable whose name starts with `L`.
    fn ours(&mut self, name: &'a OsStr, value: &'a OsStr) {
        let bytes = name.as_encoded_bytes();
        if !bytes.starts_with(b"LARDER_") {
            return;
        }
        if let Some(at) = SETTINGS.iter().position(|setting| setting.variable.as_bytes() == bytes) {
            self.settings[at] = Some(value);
        } else if bytes == b"LARDER_CONFIG" {
            self.config = Some(value).filter(|value| !value.is_empty()).map(Path::new);
        } else if !INTERNAL_VARIABLES.iter().any(|internal| internal.as_bytes() == bytes) {
            self.unknown.push(name);
        }
    }
}

/// The home directory, which is determined only when needed. In a sandbox without `HOME`, this
/// means reading a file.
pub(crate) struct Home<'a> {
    variable: Option<&'a Path>,
    database: &'a dyn Fn() -> Option<PathBuf>,
    answer: OnceCell<Option<PathBuf>>,
}

impl<'a> Home<'a> {
    pub(crate) fn new(environment: &Environment<'a>, database: &'a dyn Fn() -> Option<PathBuf>) -> Self {
        Home { variable: environment.home, database, answer: OnceCell::new() }
    }

    /// Returns the home directory, which need not exist, and its source.
    pub(crate) fn get(&self) -> Option<(&Path, Source)> {
        if let Some(path) = self.variable {
            return Some((path, Source::Environment("HOME")));
        }
        let answer = self.answer.get_or_init(|| (self.database)().filter(|path| path.is_absolute()));
        answer.as_deref().map(|path| (path, Source::PasswordDatabase))
    }
}

/// The path of a possible configuration file.
pub(crate) struct Candidate {
    pub(crate) path: PathBuf,
    pub(crate) role: Role,
}

/// What kind of configuration file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The administrator's or the user's file, which need not exist.
    Usual,
    /// The file named by `LARDER_CONFIG`. If it does not exist, that is a problem.
    Named,
    /// The file that comes with the sources being built. It may set only some keys.
    Project,
}

/// Returns the paths of the configuration files; the last one has precedence. No path occurs twice:
/// if the user's file is also the project's, it counts as the user's.
pub(crate) fn candidates(around: &Surroundings, environment: &Environment, home: &Home) -> Vec<Candidate> {
    if let Some(named) = environment.config {
        let path = around.cwd.map_or(named.to_owned(), |cwd| cwd.join(named));
        return vec![Candidate { path, role: Role::Named }];
    }
    let user = match environment.config_home {
        Some(config_home) => Some(config_home.join("larder").join(FILE_NAME)),
        None => home.get().map(|(home, _)| home.join(".config/larder").join(FILE_NAME)),
    };
    let usual = [Some(PathBuf::from(SYSTEM_FILE)), around.wrapper_dir.map(|dir| dir.join(FILE_NAME)), user];
    let project = around.cwd.map(|dir| dir.join(FILE_NAME));
    let roles = usual.map(|path| (path, Role::Usual)).into_iter().chain([(project, Role::Project)]);
    let mut found: Vec<Candidate> = Vec::with_capacity(4);
    for (path, role) in roles {
        if let Some(path) = path.filter(|path| found.iter().all(|known| known.path != *path)) {
            found.push(Candidate { path, role });
        }
    }
    found
}

/// Returns the path of the store if no setting gives it, and the source of that path.
pub(crate) fn default_store(environment: &Environment, home: &Home) -> Option<(PathBuf, Source)> {
    match environment.cache_home {
        Some(cache_home) => Some((cache_home.join("larder"), Source::Environment("XDG_CACHE_HOME"))),
        None => home.get().map(|(home, source)| (home.join(".cache/larder"), source)),
    }
}

/// Returns the path if it is absolute. By the XDG base directory specification, other values are
/// ignored.
fn absolute(value: &OsStr) -> Option<&Path> {
    Some(Path::new(value)).filter(|path| path.is_absolute())
}
