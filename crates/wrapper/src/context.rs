//! Environment and configuration, read once at the start into plain values. Nothing else in the wrapper reads either.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use larder_config::{FILE_BYTES_MAX, Loaded, Surroundings};
use larder_lookup::{Ourselves, Place, RootRules, Scope, named_root};
use larder_spawn::Destinations;
use larder_sys::Opening;

use crate::outer;
use crate::recording::Recording;

/// What a request runs in.
pub(crate) struct Context {
    /// The place of the command.
    pub(crate) place: Place,
    /// Settings and what is wrong with them.
    pub(crate) loaded: Loaded,
    /// The wrapper's own file.
    pub(crate) ourselves: Ourselves,
    /// Its directory, as the program was started: `larderd` is beside it.
    pub(crate) own_directory: Option<PathBuf>,
    /// The build is recorded.
    pub(crate) recording: Option<Recording>,
}

/// The path that leads to the running program.
pub(crate) const OWN_FILE: &str = "/proc/self/exe";

impl Context {
    /// Read everything. `None` where there is no working directory.
    pub(crate) fn read() -> Option<Context> {
        let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let recording = Recording::find(&variables);
        let cwd = std::env::current_dir().ok()?;
        let own_program = larder_sys::own_program().ok();
        let own_directory = own_program.as_ref().and_then(|(path, _)| Path::new(OsStr::from_bytes(path)).parent());
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
        outer::find(&mut environment);
        let oddities = larder_sys::environment_oddities();
        let place = Place {
            environment,
            oddities,
            cwd: cwd.as_os_str().as_bytes().to_vec(),
            roots: RootRules {
                named: loaded.settings.roots.iter().map(|root| named_root(root)).collect(),
                find: loaded.settings.find_roots,
            },
            ephemeral: loaded.settings.ephemeral,
            scope: Scope::default(),
            destinations: Destinations::now(),
            ignores_sigpipe_itself: false,
        };
        // To compare with what may be a copy, it is read by what leads to it also where it was removed.
        let ourselves = Ourselves::here(OWN_FILE.as_bytes(), own_program.map(|(_, look)| look));
        let context = Context { place, loaded, ourselves, own_directory, recording };
        context.phase("settings");
        Some(context)
    }

    /// For the record of the build: what went before was this phase.
    pub(crate) fn phase(&self, name: &'static str) {
        self.recorded(|recording| recording.phase(name));
    }

    /// Where the build is recorded, note something.
    pub(crate) fn recorded(&self, note: impl FnOnce(&Recording)) {
        if let Some(recording) = &self.recording {
            note(recording);
        }
    }
}

/// Read a configuration file, without waiting on a FIFO and without reading a huge one whole.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let path = path.as_os_str().as_bytes();
    // Mostly there is none, and to look costs half of what it costs to open nothing.
    larder_sys::look_through(path)?;
    let file = larder_sys::open(path, Opening::Read)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
