//! The context in which a command runs: its environment, its working directory and the settings
//! that matter.
//!
//! Unaware of: which command it is, what is done with the values.

use larder_compiler::{Family, differs_between_jobs, environment, is_of_job};
use larder_model::{
    ALL_VARIABLES, HISTORY_VARIABLES, HOST_NAME, INHERITED, INTERNAL_VARIABLES, JOB_VARIABLES, OfHistory, SIGNALS,
    SOCKETS, Terminal, UMASK, looked_for_along_path, of_host_field,
};
use larder_spawn::Destinations;

use crate::scope::Scope;
use crate::search_path::with_any;

/// The settings about roots.
#[derive(Clone, Debug, Default)]
pub struct RootRules {
    /// Directories that the user named.
    pub named: Vec<Vec<u8>>,
    /// True if further roots are searched for.
    pub find: bool,
    /// True if the working directory of rustc is a root, because rustc is told to replace its path.
    pub remap_rust: bool,
}

/// The context in which a command runs: what its process was started with, and the settings that
/// matter. Read once.
pub struct Place {
    /// The environment, as pairs of name and value.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
    /// Environment entries without a `=`. They are passed to the tool and are otherwise ignored.
    pub oddities: Vec<Vec<u8>>,
    /// The working directory with links resolved.
    pub cwd: Vec<u8>,
    /// The settings about roots.
    pub roots: RootRules,
    /// The setting `policy = "ephemeral"`: a result of one sandbox may be used in another although
    /// it holds the first one's path.
    pub ephemeral: bool,
    /// The options of `larder run`.
    pub scope: Scope,
    /// The terminals or files that standard output and error lead to.
    pub destinations: Destinations,
    /// True if this process ignores SIGPIPE only because Rust's runtime start-up set that. The
    /// command would not ignore it.
    pub ignores_sigpipe_itself: bool,
}

impl Place {
    /// Returns the value of a variable.
    pub fn variable(&self, name: &[u8]) -> Option<&[u8]> {
        self.environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// Returns the present value for an observation of this name. The name is that of a variable,
    /// or a reserved one for something else that a process inherits: `UMASK`, `SOCKETS`,
    /// `SIGNALS`, `INHERITED`, `ALL_VARIABLES`, `JOB_VARIABLES`, one of `found_along_path`, `host_field` or `OfHistory`, or the empty name for
    /// [`Place::whole_environment`].
    pub fn asked(&self, name: &[u8]) -> Option<Vec<u8>> {
        match name {
            b"" => Some(self.whole_environment()),
            UMASK => Some(format!("{:o}", larder_sys::umask()).into_bytes()),
            SOCKETS => Some(larder_sys::sockets()),
            SIGNALS => Some(larder_sys::signals_and_niceness()),
            INHERITED => Some(larder_sys::limits_and_rights(true)),
            ALL_VARIABLES => Some(self.listed_variables(|_| true).join(&b'\n')),
            JOB_VARIABLES => {
                let mut listed = self.listed_variables(is_of_job);
                listed.sort_unstable();
                Some(listed.join(&b'\n'))
            }
            name if of_host_field(name).is_some() => larder_sys::host_field(of_host_field(name)?),
            name => match (looked_for_along_path(name), OfHistory::of_fact_name(name)) {
                (Some(programs), _) => self.variable(b"PATH").map(|path| with_any(path, programs, &self.cwd)),
                (None, Some((variable, how))) => {
                    let value = self.history_value(variable)?;
                    match how {
                        OfHistory::Value(_) => Some(value),
                        OfHistory::Length(length) if value.len() != length => None,
                        OfHistory::Length(_) | OfHistory::IsSet => Some(Vec::new()),
                    }
                }
                (None, None) => self.variable(name).map(<[u8]>::to_vec),
            },
        }
    }

    /// Returns the value of a variable that [`OfHistory`] concerns.
    pub fn history_value(&self, variable: &[u8]) -> Option<Vec<u8>> {
        if variable == HOST_NAME { larder_sys::host_field(b'n') } else { self.variable(variable).map(<[u8]>::to_vec) }
    }

    /// Returns the variables for which `is_meant` is true as a command that lists them sees them, for
    /// the observations `ALL_VARIABLES` and `JOB_VARIABLES`. Variables with observations of their own
    /// are left out, and those that differ between jobs are there without their values.
    fn listed_variables(&self, is_meant: fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let is_listed = |name: &[u8]| {
            is_meant(name)
                && !self.is_ignored(name)
                && !HISTORY_VARIABLES.contains(&name)
                && !INTERNAL_VARIABLES.iter().any(|own| own.as_bytes() == name)
        };
        let pairs = self.environment.iter().filter(|(name, _)| is_listed(name));
        let shown = |(name, value): &(Vec<u8>, Vec<u8>)| match differs_between_jobs(name) {
            true => name.clone(),
            false => [name, &b"="[..], value].concat(),
        };
        pairs.map(shown).chain(self.oddities.iter().cloned()).collect()
    }

    /// Returns true if the caller wants this variable to be ignored.
    fn is_ignored(&self, variable: &[u8]) -> bool {
        self.scope.no_env.iter().any(|ignored| ignored == variable)
    }

    /// Returns the names of the variables with an observation of their own if a command may read
    /// variables unseen: those of the shells' history, and those that are set here and differ between
    /// the jobs of a CI service.
    pub fn history_variables(&self) -> impl Iterator<Item = &[u8]> {
        let set = self.environment.iter().map(|(name, _)| name.as_slice());
        let of_job = set.filter(|name| differs_between_jobs(name) && !self.is_ignored(name));
        HISTORY_VARIABLES.iter().copied().chain(of_job)
    }

    /// Returns all variables that a program may read without a call that we see, as the value of
    /// one observation (the one with the empty name). Variables that differ between equal builds
    /// are left out, as in the key of an unknown tool.
    pub fn whole_environment(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for variable in environment(Family::Generic, &self.environment) {
            for part in [&variable.name[..], b"=", &variable.value, b"\n"] {
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// Returns the environment as a program receives it: one `NAME=VALUE` per entry.
    pub fn environment_block(&self) -> Vec<Vec<u8>> {
        let pairs = self.environment.iter().map(|(name, value)| [name, &b"="[..], value].concat());
        pairs.chain(self.oddities.iter().cloned()).collect()
    }

    /// Returns `PWD` if it is another path of the working directory than the kernel's.
    pub(crate) fn apparent_cwd(&self) -> Option<Vec<u8>> {
        let pwd = self.variable(b"PWD")?;
        if pwd == self.cwd || pwd.first() != Some(&b'/') {
            return None;
        }
        let (named, actual) = (larder_sys::stat(pwd).ok()?, larder_sys::stat(b".").ok()?);
        (named.file_id() == actual.file_id()).then(|| pwd.to_vec())
    }

    pub(crate) fn terminal(&self) -> Terminal {
        let Destinations { stdout, stderr, .. } = self.destinations;
        match stderr.or(stdout) {
            None => Terminal::None,
            Some(size) => Terminal::Some {
                stdout: stdout.is_some(),
                stderr: stderr.is_some(),
                columns: size.columns,
                rows: size.rows,
            },
        }
    }
}
