//! Environment and configuration, read once at the start into plain values. No word reads either by itself.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use larder_config::{FILE_BYTES_MAX, Loaded, Settings};
use larder_lookup::{Ourselves, Place, RootRules, named_root};
use larder_spawn::Destinations;
use larder_store::Store;

/// Names the wrapper's real file. The wrapper sets it for us; no tool ever sees it.
pub(crate) const WRAPPER_VARIABLE: &str = "LARDER_WRAPPER";

/// Names and values.
pub(crate) type Variables = Vec<(Vec<u8>, Vec<u8>)>;

/// What a word runs in.
pub(crate) struct Surroundings {
    /// The environment as the wrapper had it.
    pub(crate) environment: Variables,
    /// The working directory, links resolved.
    pub(crate) cwd: Option<PathBuf>,
    /// Settings, where they come from, and what is wrong with them.
    pub(crate) loaded: Loaded,
    /// The wrapper's real file, where it is known.
    pub(crate) wrapper: Option<PathBuf>,
    /// The same, to know it again under other names.
    pub(crate) ourselves: Ourselves,
}

impl Surroundings {
    /// Read everything.
    pub(crate) fn read() -> Surroundings {
        let all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let named = all.iter().find(|(name, _)| name == WRAPPER_VARIABLE).map(|(_, path)| PathBuf::from(path));
        let variables: Vec<_> = all.into_iter().filter(|(name, _)| name != WRAPPER_VARIABLE).collect();
        let wrapper = named.filter(|path| path.is_file()).or_else(wrapper_beside_us);
        let cwd = std::env::current_dir().ok();
        let loaded = larder_config::load(&larder_config::Surroundings {
            env: &variables,
            read: &read_bounded,
            home: &larder_sys::home_of_user,
            wrapper_dir: wrapper.as_deref().and_then(Path::parent),
            cwd: cwd.as_deref(),
        });
        let environment = variables.into_iter().map(|(n, v)| (n.into_vec(), v.into_vec())).collect();
        let ourselves = wrapper.as_deref().map_or(nobody(), Ourselves::at);
        Surroundings { environment, cwd, loaded, wrapper, ourselves }
    }

    /// Settings as they would be with this configuration file and no other, and the environment that says so.
    pub(crate) fn with_configuration(&self, file: &Path) -> (Loaded, Variables) {
        const CONFIGURATION: &[u8] = b"LARDER_CONFIG";
        let mut environment = self.environment.clone();
        environment.retain(|(name, _)| name != CONFIGURATION);
        environment.push((CONFIGURATION.to_vec(), file.as_os_str().as_bytes().to_vec()));
        let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let variables: Vec<_> = environment.iter().map(|(name, value)| (text(name), text(value))).collect();
        let loaded = larder_config::load(&larder_config::Surroundings {
            env: &variables,
            read: &read_bounded,
            home: &larder_sys::home_of_user,
            wrapper_dir: self.wrapper.as_deref().and_then(Path::parent),
            cwd: self.cwd.as_deref(),
        });
        (loaded, environment)
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// A variable's value.
    pub(crate) fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        self.environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// The store, which need not exist yet; an error says what to do.
    pub(crate) fn store(&self) -> Result<Store> {
        let dir = self.settings().dir.as_deref();
        let dir = dir.ok_or_else(|| anyhow!("no place for the store is known: set LARDER_DIR to a directory"))?;
        Store::open(dir).with_context(|| "the store cannot be used (`larder doctor` says more)".to_owned())
    }

    /// Where a command would run that was typed here; an error where there is no working directory.
    pub(crate) fn place(&self, destinations: Destinations) -> Result<Place> {
        let cwd = self.cwd.as_deref().context("the working directory is gone: change to one that exists")?;
        Ok(Place {
            environment: self.environment.clone(),
            oddities: Vec::new(),
            cwd: cwd.as_os_str().as_bytes().to_vec(),
            roots: RootRules {
                named: self.settings().roots.iter().map(|root| named_root(root)).collect(),
                find: self.settings().find_roots,
            },
            ephemeral: self.settings().ephemeral,
            destinations,
            scope: larder_lookup::Scope::default(),
            ignores_sigpipe_itself: true,
        })
    }
}

/// No file is this one.
pub(crate) fn nobody() -> Ourselves {
    Ourselves::at(Path::new(""))
}

/// Where `larderd` was started by its own name.
fn wrapper_beside_us() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    std::fs::canonicalize(own.parent()?.join("larder")).ok().filter(|path| path.is_file())
}

/// Read a configuration file, without waiting on a FIFO and without reading a huge one whole.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file: File = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
