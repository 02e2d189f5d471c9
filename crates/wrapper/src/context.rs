//! Reads the environment and the configuration once, at the start, into plain values. Apart from
//! `commands` and the fallbacks in `request`, no other module of the wrapper reads either.
//!
//! Unaware of: what the values are for.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_config::{FILE_BYTES_MAX, Loaded, Surroundings};
use larder_lookup::{Ourselves, Place, RootRules, Scope, named_root};
use larder_spawn::Destinations;
use larder_sys::Opening;

use crate::own_file::OWN_FILE;
use crate::recording::Recording;

/// The context of a request.
pub(crate) struct Context {
    /// What the command is started with.
    pub(crate) place: Place,
    /// The settings and the problems in them.
    pub(crate) loaded: Loaded,
    /// The wrapper's own executable.
    pub(crate) ourselves: Ourselves,
    /// The directory of the executable, as it was started. `larderd` is in the same directory.
    pub(crate) own_directory: Option<PathBuf>,
    /// Set if the build is recorded (`larder record`).
    pub(crate) recording: Option<Recording>,
    /// True for `larder run` with a terminal on standard error, unless `LARDER_QUIET` is set.
    pub(crate) is_asked_by_a_person: bool,
    /// When this process began, in ticks.
    pub(crate) began_ticks: u64,
    /// Why no record answers, once that is known.
    pub(crate) cause: RefCell<String>,
}

impl Context {
    /// Reads everything. `take_private` may remove variables that are not for the tool. Returns
    /// `None` if there is no working directory.
    pub(crate) fn read(take_private: impl FnOnce(&mut Vec<(Vec<u8>, Vec<u8>)>)) -> Option<Context> {
        let began_ticks = larder_sys::ticks();
        let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let recording = Recording::find(&variables);
        let cwd = std::env::current_dir().ok()?;
        let own_program = larder_sys::own_program().ok();
        let own_directory = own_program.as_ref().and_then(|(path, _)| larder_sys::as_path(path).parent());
        let own_directory = own_directory.map(Path::to_owned);
        let surroundings = Surroundings {
            env: &variables,
            read: &read_bounded,
            home: &larder_sys::home_of_user,
            wrapper_dir: own_directory.as_deref(),
            cwd: Some(&cwd),
        };
        let loaded = larder_config::load(&surroundings);
        let mut environment = variables.into_iter().map(|(n, v)| (n.into_vec(), v.into_vec())).collect();
        take_private(&mut environment);
        let oddities = larder_sys::environment_oddities();
        let place = Place {
            environment,
            oddities,
            cwd: cwd.as_os_str().as_bytes().to_vec(),
            roots: RootRules {
                named: loaded.settings.roots.iter().map(|root| named_root(root)).collect(),
                find: loaded.settings.find_roots,
                remap_rust: loaded.settings.remap_rust_paths,
            },
            ephemeral: loaded.settings.ephemeral,
            scope: Scope::default(),
            destinations: Destinations::now(),
            ignores_sigpipe_itself: false,
        };
        // `/proc/self/exe` can be read even if the executable was removed, to compare it with a
        // possible copy.
        let ourselves = Ourselves::here(OWN_FILE.as_bytes(), own_program.map(|(_, stat)| stat));
        let context = Context {
            place,
            loaded,
            ourselves,
            own_directory,
            recording,
            is_asked_by_a_person: false,
            began_ticks,
            cause: RefCell::default(),
        };
        context.phase("settings");
        Some(context)
    }

    /// Notes the end of a phase in the record of the build.
    pub(crate) fn phase(&self, name: &'static str) {
        self.recorded(|recording| recording.phase(name));
    }

    /// Calls `note` if the build is recorded.
    pub(crate) fn recorded(&self, note: impl FnOnce(&Recording)) {
        if let Some(recording) = &self.recording {
            note(recording);
        }
    }
}

/// Reads a configuration file. It never blocks on a FIFO and never reads a huge file whole.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.as_os_str().as_bytes();
    // Mostly the file does not exist, and a failed `stat` costs half as much as a failed `open`.
    larder_sys::stat(path)?;
    let file = larder_sys::open(path, Opening::Read)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
