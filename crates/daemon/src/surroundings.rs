//! Environment and configuration, read once at the start into plain values. Subcommands read
//! neither by themselves.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use larder_config::{FILE_BYTES_MAX, Loaded, Settings, larderd_needs};
use larder_lookup::{Ourselves, Place, RootRules, named_root};
use larder_spawn::{Command, Destinations};
use larder_store::Store;

/// The environment variable with the path of the wrapper's real file. The wrapper sets it for
/// `larderd` only; no tool ever sees it.
pub(crate) const WRAPPER_VARIABLE: &str = "LARDER_WRAPPER";

/// Environment variables as pairs of name and value.
pub(crate) type Variables = Vec<(Vec<u8>, Vec<u8>)>;

/// The environment, configuration and working directory of a subcommand.
pub(crate) struct Surroundings {
    /// The environment as the wrapper had it, without [`WRAPPER_VARIABLE`].
    pub(crate) environment: Variables,
    /// The working directory, with symbolic links resolved.
    pub(crate) cwd: Option<PathBuf>,
    /// The settings, their sources, and errors in them.
    pub(crate) loaded: Loaded,
    /// The path of the wrapper's real file, if it is known.
    pub(crate) wrapper: Option<PathBuf>,
    /// Identifies the wrapper's file under any path, for example under a link.
    pub(crate) ourselves: Ourselves,
}

impl Surroundings {
    /// Reads everything.
    pub(crate) fn read() -> Surroundings {
        let all: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let named = all.iter().find(|(name, _)| name == WRAPPER_VARIABLE).map(|(_, path)| PathBuf::from(path));
        let variables: Vec<_> = all.into_iter().filter(|(name, _)| name != WRAPPER_VARIABLE).collect();
        let wrapper = named.filter(|path| path.is_file()).or_else(wrapper_beside_us);
        let cwd = std::env::current_dir().ok();
        let loaded = load(&variables, wrapper.as_deref(), cwd.as_deref());
        let environment = variables.into_iter().map(|(n, v)| (n.into_vec(), v.into_vec())).collect();
        let ourselves = wrapper.as_deref().map_or(nobody(), Ourselves::at);
        Surroundings { environment, cwd, loaded, wrapper, ourselves }
    }

    /// Returns the settings as they would be with only this configuration file, and the environment
    /// that selects it.
    pub(crate) fn with_configuration(&self, file: &Path) -> (Loaded, Variables) {
        const CONFIGURATION: &[u8] = b"LARDER_CONFIG";
        let mut environment = self.environment.clone();
        environment.retain(|(name, _)| name != CONFIGURATION);
        environment.push((CONFIGURATION.to_vec(), file.as_os_str().as_bytes().to_vec()));
        let text = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let variables: Vec<_> = environment.iter().map(|(name, value)| (text(name), text(value))).collect();
        (load(&variables, self.wrapper.as_deref(), self.cwd.as_deref()), environment)
    }

    /// Returns the effective settings.
    pub(crate) fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// Returns the value of an environment variable.
    pub(crate) fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        self.environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// Returns the value of an environment variable, if it is text.
    pub(crate) fn text(&self, name: &[u8]) -> Option<&str> {
        self.variable(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Returns the path in an environment variable, if it is absolute.
    pub(crate) fn absolute(&self, name: &[u8]) -> Option<PathBuf> {
        let path = self.variable(name).map(|value| PathBuf::from(OsStr::from_bytes(value)));
        path.filter(|path| path.is_absolute())
    }

    /// Returns the home directory: `HOME`, else what the password database says.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.absolute(b"HOME").or_else(larder_sys::home_of_user)
    }

    /// Returns the working directory. Fails if there is none.
    pub(crate) fn cwd(&self) -> Result<&Path> {
        self.cwd.as_deref().context("the working directory does not exist any more: change to one that exists")
    }

    /// Returns the environment as a started program gets it: `NAME=VALUE`.
    pub(crate) fn block(&self) -> Vec<Vec<u8>> {
        block(self.environment.iter())
    }

    /// Starts `larderd` with these words in a session of its own, and does not wait for it. It gets
    /// the variables that it needs.
    pub(crate) fn start_larderd(&self, words: &[&[u8]]) -> Result<()> {
        let program = own_program()?;
        let variables = self.environment.iter().filter(|(name, _)| larderd_needs(name, &self.settings().remote));
        let argv = [&b"larderd"[..]].iter().chain(words).map(|word| word.to_vec()).collect();
        let command = Command::new(program.as_os_str().as_bytes().to_vec(), argv, block(variables));
        larder_spawn::start_apart(&command).with_context(|| format!("{} cannot be started", program.display()))?;
        Ok(())
    }

    /// Opens the store, which need not exist yet. An error says what to do.
    pub(crate) fn store(&self) -> Result<Store> {
        let dir = self.settings().dir.as_deref();
        let dir =
            dir.ok_or_else(|| anyhow!("the directory of the store is not known: set LARDER_DIR to a directory"))?;
        Store::open(dir).with_context(|| "the store cannot be used (`larder doctor` says more)".to_owned())
    }

    /// Returns the context in which a command would run if it were typed here. Fails if there is no
    /// working directory.
    pub(crate) fn place(&self, destinations: Destinations) -> Result<Place> {
        Ok(Place {
            environment: self.environment.clone(),
            oddities: Vec::new(),
            cwd: self.cwd()?.as_os_str().as_bytes().to_vec(),
            roots: RootRules {
                named: self.settings().roots.iter().map(|root| named_root(root)).collect(),
                find: self.settings().find_roots,
                remap_rust: self.settings().remap_rust_paths,
            },
            ephemeral: self.settings().ephemeral,
            destinations,
            scope: larder_lookup::Scope::default(),
            ignores_sigpipe_itself: true,
        })
    }
}

fn load(variables: &[(OsString, OsString)], wrapper: Option<&Path>, cwd: Option<&Path>) -> Loaded {
    larder_config::load(&larder_config::Surroundings {
        env: variables,
        read: &|path| read_bounded(path, FILE_BYTES_MAX as u64 + 1),
        home: &larder_sys::home_of_user,
        wrapper_dir: wrapper.and_then(Path::parent),
        cwd,
    })
}

fn block<'v>(variables: impl Iterator<Item = &'v (Vec<u8>, Vec<u8>)>) -> Vec<Vec<u8>> {
    variables.map(|(name, value)| [name, &b"="[..], value].concat()).collect()
}

/// Returns the path of `larderd`'s program file.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("the path of larderd's program file cannot be determined")
}

/// Returns an `Ourselves` that matches no file.
pub(crate) fn nobody() -> Ourselves {
    Ourselves::at(Path::new(""))
}

/// Finds the wrapper if `larderd` was started directly: the file `larder` in the directory of
/// `larderd`.
fn wrapper_beside_us() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    std::fs::canonicalize(own.parent()?.join("larder")).ok().filter(|path| path.is_file())
}

/// Reads at most `bytes_max` bytes of a file, and does not block on a FIFO. A checkout can have a FIFO
/// or a link to `/dev/zero` in the place of each of its files.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file: File = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
