//! The table of all settings: the name of each, its type, where it may be set, and what it is for.
//!
//! Unaware of: where values come from, and how text becomes a value.

use std::path::PathBuf;

use larder_model::{Digest, Observer};

use crate::choices::{Class, Handover};
use crate::meaning::{self, Base, Given};
use crate::secret::masked;
use crate::size;

/// The values of all settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The scheduling class of tools.
    pub class: Class,
    /// The absolute path of a cgroup directory into which background tools are moved.
    pub class_cgroup: Option<PathBuf>,
    /// The absolute path of the store. `None` if nothing determines it.
    pub dir: Option<PathBuf>,
    /// Runs every tool untouched.
    pub disable: bool,
    /// Which processes may use records that were handed over by processes that cannot write the
    /// store.
    pub handover: Handover,
    /// Makes tools ask for huge pages.
    pub huge_pages: bool,
    /// After how many days an unused image is evicted; 0 means no limit.
    pub image_max_days: u64,
    /// The size limit for the images in the store, in bytes; 0 means no separate limit.
    pub image_max_size_bytes: u64,
    /// How many tools run at once; 0 means as many as processors.
    pub jobs: u64,
    /// The absolute path of larder's log.
    pub log: Option<PathBuf>,
    /// The size limit of the store, in bytes; 0 means no limit.
    pub max_size_bytes: u64,
    /// The only observer to use; `None` means the best that works.
    pub observer: Option<Observer>,
    /// `larder run` does not say why it did not cache a command.
    pub quiet: bool,
    /// Uses the store but never writes to it.
    pub read_only: bool,
    /// Runs the tool as if nothing were recorded, and records the result.
    pub recache: bool,
    /// A prefix of commit subjects. A record of a build lists commits with this prefix separately;
    /// an empty prefix matches every commit.
    pub record_commit_prefix: String,
    /// The absolute path for records of builds; `None` means the user's state directory.
    pub record_dir: Option<PathBuf>,
    /// The URLs of remotes, the nearest first. They contain credentials, so they must not be shown
    /// or logged unmasked.
    pub remote: Vec<String>,
    /// `larderd` uploads what was handed over to it, unsigned.
    pub remote_handover: bool,
    /// The name to which signatures of records are bound. Signatures for another name are not
    /// valid.
    pub remote_namespace: String,
    /// Results made here are not uploaded to the remotes.
    pub remote_read_only: bool,
    /// The absolute path of the secret key that signs uploaded records.
    pub remote_sign_with: Option<PathBuf>,
    /// Public keys. If there is one, only records that one of them signed are used.
    pub remote_trust: Vec<String>,
    /// Absolute paths of directories that differ between places of the same build, in addition to
    /// those that are found.
    pub roots: Vec<PathBuf>,
    /// Searches for roots: those of build systems and checkouts.
    pub find_roots: bool,
    /// Rewrites debug information for another place if the result is exact.
    pub relocate_debug: bool,
    /// Starts rustc with options that replace the paths of the checkout and of the target directory.
    pub remap_rust_paths: bool,
    /// A sandbox may get results that contain the path of another sandbox.
    pub ephemeral: bool,
    /// Limits how many tools run at once over all builds.
    pub tokens: bool,
    /// The absolute path of the file by which builds share tokens; `None` means the user's own.
    pub tokens_file: Option<PathBuf>,
    /// On one hit in this many, the tool runs as well and the results are compared; 0 means never.
    pub verify: u64,
    /// Waits for another process that runs the same action.
    pub wait: bool,
}

impl Settings {
    /// Returns a digest of the remotes' URLs, or `None` if there are no remotes.
    pub fn remotes_digest(&self) -> Option<Digest> {
        (!self.remote.is_empty()).then(|| Digest::of(self.remote.join("\n").as_bytes()))
    }

    /// Returns a digest of the trusted keys and the namespace, or `None` if records need no
    /// signature.
    pub fn trust_digest(&self) -> Option<Digest> {
        let all = || format!("{}\n\n{}", self.remote_trust.join("\n"), self.remote_namespace);
        (!self.remote_trust.is_empty()).then(|| Digest::of(all().as_bytes()))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            class: Class::Inherit,
            class_cgroup: None,
            dir: None,
            disable: false,
            handover: Handover::Apart,
            huge_pages: false,
            image_max_days: 0,
            image_max_size_bytes: 0,
            jobs: 0,
            log: None,
            max_size_bytes: 10 << 30,
            observer: None,
            quiet: false,
            read_only: false,
            recache: false,
            record_commit_prefix: String::new(),
            record_dir: None,
            remote: Vec::new(),
            remote_handover: false,
            remote_namespace: String::new(),
            remote_read_only: false,
            remote_sign_with: None,
            remote_trust: Vec::new(),
            roots: Vec::new(),
            find_roots: true,
            relocate_debug: true,
            remap_rust_paths: false,
            ephemeral: false,
            tokens: true,
            tokens_file: None,
            verify: 0,
            wait: true,
        }
    }
}

/// The type of a setting, for help and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Paths separated by colons, and the words that the setting knows.
    Paths,
    /// Public keys: separated by commas, or in a file an array of strings.
    Keys,
    /// URLs: separated by commas, or in a file an array of strings.
    Urls,
    /// A path: absolute, `~/…`, or relative to the file (in the environment: to the working
    /// directory).
    Path,
    /// A number of bytes with a unit.
    Size,
    /// A number.
    Number,
    /// On or off.
    Switch,
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The key in a file.
    pub key: &'static str,
    /// The environment variable.
    pub variable: &'static str,
    /// True if a project's own file may set it, because it is neither a path nor about trust. Even
    /// then such a file can only switch on: what the user has switched on stays on.
    pub project_may_set: bool,
    /// The default, in words.
    pub default: &'static str,
    /// What the setting is for, in one sentence.
    pub help: &'static str,
    field: Field,
}

/// The field of [`Settings`] for a value.
#[derive(Clone, Copy)]
enum Field {
    Path(fn(&mut Settings) -> &mut Option<PathBuf>),
    Size(fn(&mut Settings) -> &mut u64),
    Number(fn(&mut Settings) -> &mut u64),
    Switch(fn(&mut Settings) -> &mut bool),
    Text(fn(&mut Settings) -> &mut String),
    Observer(fn(&mut Settings) -> &mut Option<Observer>),
    Class(fn(&mut Settings) -> &mut Class),
    Handover(fn(&mut Settings) -> &mut Handover),
    Roots,
    Remotes,
    Keys,
    /// One of two words: off, on.
    Word(fn(&mut Settings) -> &mut bool, &'static [&'static str; 2]),
}

/// Every setting, sorted by key.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "class",
        variable: "LARDER_CLASS",
        project_may_set: true,
        default: "inherit",
        help: "The priority of tools relative to other programs.",
        field: Field::Class(|s| &mut s.class),
    },
    Setting {
        key: "class_cgroup",
        variable: "LARDER_CLASS_CGROUP",
        project_may_set: false,
        default: "none",
        help: "The directory of a cgroup into which background tools are moved.",
        field: Field::Path(|s| &mut s.class_cgroup),
    },
    Setting {
        key: "debug_paths",
        variable: "LARDER_DEBUG_PATHS",
        project_may_set: true,
        default: "relocate",
        help: "With relocate, paths in debug information are rewritten for another checkout.",
        field: Field::Word(|s| &mut s.relocate_debug, &["exact", "relocate"]),
    },
    Setting {
        key: "dir",
        variable: "LARDER_DIR",
        project_may_set: false,
        default: "$XDG_CACHE_HOME/larder, else ~/.cache/larder",
        help: "The directory of the store.",
        field: Field::Path(|s| &mut s.dir),
    },
    Setting {
        key: "disable",
        variable: "LARDER_DISABLE",
        project_may_set: true,
        default: "false",
        help: "Run every tool untouched, as if larder were not there.",
        field: Field::Switch(|s| &mut s.disable),
    },
    Setting {
        key: "handover",
        variable: "LARDER_HANDOVER",
        project_may_set: false,
        default: "apart",
        help: "Which processes may use records that sandboxes hand over: sandboxes only, or all.",
        field: Field::Handover(|s| &mut s.handover),
    },
    Setting {
        key: "huge_pages",
        variable: "LARDER_HUGE_PAGES",
        project_may_set: true,
        default: "false",
        help: "Make compilers ask for huge pages: GLIBC_TUNABLES, MALLOC_CONF.",
        field: Field::Switch(|s| &mut s.huge_pages),
    },
    Setting {
        key: "image_max_days",
        variable: "LARDER_IMAGE_MAX_DAYS",
        project_may_set: false,
        default: "0",
        help: "Evict images that were not used for this many days; 0 is no limit.",
        field: Field::Number(|s| &mut s.image_max_days),
    },
    Setting {
        key: "image_max_size",
        variable: "LARDER_IMAGE_MAX_SIZE",
        project_may_set: false,
        default: "0",
        help: "Evict the least recently used images beyond this; 0: only max_size limits.",
        field: Field::Size(|s| &mut s.image_max_size_bytes),
    },
    Setting {
        key: "jobs",
        variable: "LARDER_JOBS",
        project_may_set: false,
        default: "0",
        help: "How many tools run at once, over all builds; 0 is as many as processors.",
        field: Field::Number(|s| &mut s.jobs),
    },
    Setting {
        key: "log",
        variable: "LARDER_LOG",
        project_may_set: false,
        default: "none",
        help: "Append what larder did, and why, to this file.",
        field: Field::Path(|s| &mut s.log),
    },
    Setting {
        key: "max_size",
        variable: "LARDER_MAX_SIZE",
        project_may_set: false,
        default: "10 GiB",
        help: "Evict the least recently used entries beyond this size; 0 is no limit.",
        field: Field::Size(|s| &mut s.max_size_bytes),
    },
    Setting {
        key: "observer",
        variable: "LARDER_OBSERVER",
        project_may_set: true,
        default: "auto",
        help: "How a tool is observed when it runs; auto is the best observer that works.",
        field: Field::Observer(|s| &mut s.observer),
    },
    Setting {
        key: "policy",
        variable: "LARDER_POLICY",
        project_may_set: false,
        default: "exact",
        help: "With ephemeral, a sandbox may get a result that contains another sandbox's path.",
        field: Field::Word(|s| &mut s.ephemeral, &["exact", "ephemeral"]),
    },
    Setting {
        key: "quiet",
        variable: "LARDER_QUIET",
        project_may_set: true,
        default: "false",
        help: "Do not say at a terminal why `larder run` did not cache a command.",
        field: Field::Switch(|s| &mut s.quiet),
    },
    Setting {
        key: "read_only",
        variable: "LARDER_READ_ONLY",
        project_may_set: true,
        default: "false",
        help: "Use what is in the store and add nothing to it.",
        field: Field::Switch(|s| &mut s.read_only),
    },
    Setting {
        key: "recache",
        variable: "LARDER_RECACHE",
        project_may_set: true,
        default: "false",
        help: "Run every tool and record its result anew.",
        field: Field::Switch(|s| &mut s.recache),
    },
    Setting {
        key: "record_commit_prefix",
        variable: "LARDER_RECORD_COMMIT_PREFIX",
        project_may_set: true,
        default: "none",
        help: "A record lists commits with this subject prefix separately.",
        field: Field::Text(|s| &mut s.record_commit_prefix),
    },
    Setting {
        key: "record_dir",
        variable: "LARDER_RECORD_DIR",
        project_may_set: false,
        default: "$XDG_STATE_HOME/larder/records, else ~/.local/state/larder/records",
        help: "Where `larder record` puts records of builds.",
        field: Field::Path(|s| &mut s.record_dir),
    },
    Setting {
        key: "remote",
        variable: "LARDER_REMOTE",
        project_may_set: false,
        default: "none",
        help: "URLs of remotes that share results, separated by commas, the nearest first.",
        field: Field::Remotes,
    },
    Setting {
        key: "remote_handover",
        variable: "LARDER_REMOTE_HANDOVER",
        project_may_set: false,
        default: "off",
        help: "With unsigned, larderd uploads what sandboxes hand over, unsigned.",
        field: Field::Word(|s| &mut s.remote_handover, &["off", "unsigned"]),
    },
    Setting {
        key: "remote_namespace",
        variable: "LARDER_REMOTE_NAMESPACE",
        project_may_set: false,
        default: "none",
        help: "Only signatures made for this name are valid.",
        field: Field::Text(|s| &mut s.remote_namespace),
    },
    Setting {
        key: "remote_rw_mode",
        variable: "LARDER_REMOTE_RW_MODE",
        project_may_set: false,
        default: "read_write",
        help: "With read_only, no result is uploaded to the remotes.",
        field: Field::Word(|s| &mut s.remote_read_only, &["read_write", "read_only"]),
    },
    Setting {
        key: "remote_sign_with",
        variable: "LARDER_REMOTE_SIGN_WITH",
        project_may_set: false,
        default: "none",
        help: "A file with the secret key that signs uploaded records.",
        field: Field::Path(|s| &mut s.remote_sign_with),
    },
    Setting {
        key: "remote_trust",
        variable: "LARDER_REMOTE_TRUST",
        project_may_set: false,
        default: "none",
        help: "Public keys, separated by commas: only records signed by one of them are used.",
        field: Field::Keys,
    },
    Setting {
        key: "roots",
        variable: "LARDER_ROOTS",
        project_may_set: false,
        default: "auto",
        help: "Directories that differ between checkouts: /a:/b. none: do not search for others.",
        field: Field::Roots,
    },
    Setting {
        key: "rust_paths",
        variable: "LARDER_RUST_PATHS",
        project_may_set: true,
        default: "exact",
        help: "With remap, rustc writes no path of the checkout, and all crates hit in each.",
        field: Field::Word(|s| &mut s.remap_rust_paths, &["exact", "remap"]),
    },
    Setting {
        key: "tokens",
        variable: "LARDER_TOKENS",
        project_may_set: false,
        default: "true",
        help: "A tool waits if too many tools run, or if there is not enough memory for it.",
        field: Field::Switch(|s| &mut s.tokens),
    },
    Setting {
        key: "tokens_file",
        variable: "LARDER_TOKENS_FILE",
        project_may_set: false,
        default: "none",
        help: "The file by which builds share tokens, if it is not the user's own.",
        field: Field::Path(|s| &mut s.tokens_file),
    },
    Setting {
        key: "verify",
        variable: "LARDER_VERIFY",
        project_may_set: true,
        default: "0",
        help: "On one hit in this many, also run the tool and compare; 0 is never, 1 always.",
        field: Field::Number(|s| &mut s.verify),
    },
    Setting {
        key: "wait",
        variable: "LARDER_WAIT",
        project_may_set: false,
        default: "true",
        help: "If the same action is already running, wait about as long as it took before.",
        field: Field::Switch(|s| &mut s.wait),
    },
];

/// Other environment variables that matter, with what they do, for help and the manual.
pub const OTHER_VARIABLES: &[(&str, &str)] = &[
    ("LARDER_CONFIG", "Read this configuration file and no other."),
    ("XDG_CONFIG_HOME", "The user's file is larder/larder.toml in this directory, else in ~/.config."),
    ("XDG_CACHE_HOME", "The store is larder in this directory, else in ~/.cache, unless dir is set."),
    ("XDG_STATE_HOME", "Records are in larder/records in this directory, else in ~/.local/state."),
    ("HOME", "The directory for ~. If it is unset, the password database is used."),
];

impl Setting {
    /// Returns the setting with this key in a file.
    pub fn by_key(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// Returns the type of the setting.
    pub fn kind(&self) -> ValueKind {
        match self.field {
            Field::Path(_) => ValueKind::Path,
            Field::Size(_) => ValueKind::Size,
            Field::Number(_) => ValueKind::Number,
            Field::Switch(_) => ValueKind::Switch,
            Field::Text(_) => ValueKind::Text,
            Field::Observer(_) => ValueKind::Choice(meaning::OBSERVERS),
            Field::Class(_) => ValueKind::Choice(Class::WORDS),
            Field::Handover(_) => ValueKind::Choice(Handover::WORDS),
            Field::Roots => ValueKind::Paths,
            Field::Remotes => ValueKind::Urls,
            Field::Keys => ValueKind::Keys,
            Field::Word(_, words) => ValueKind::Choice(words),
        }
    }

    /// Returns the value in `settings` as it could be written in a file, without secrets.
    pub fn shown(&self, settings: &Settings) -> String {
        let settings = &mut settings.clone();
        match self.field {
            Field::Path(of) => of(settings).as_ref().map_or("none".to_owned(), |path| path.display().to_string()),
            Field::Size(of) => size::show_size(*of(settings)),
            Field::Number(of) => of(settings).to_string(),
            Field::Switch(of) => of(settings).to_string(),
            Field::Text(of) if of(settings).is_empty() => "none".to_owned(),
            Field::Text(of) => of(settings).clone(),
            Field::Observer(of) => of(settings).map_or("auto", Observer::name).to_owned(),
            Field::Class(of) => of(settings).name().to_owned(),
            Field::Handover(of) => of(settings).name().to_owned(),
            Field::Roots => {
                let first = if settings.find_roots { "auto" } else { "none" }.to_owned();
                settings.roots.iter().fold(first, |all, root| format!("{all}:{}", root.display()))
            }
            Field::Keys if settings.remote_trust.is_empty() => "none".to_owned(),
            Field::Keys => settings.remote_trust.join(","),
            Field::Remotes if settings.remote.is_empty() => "none".to_owned(),
            Field::Remotes => settings.remote.iter().map(|url| masked(url)).collect::<Vec<_>>().join(","),
            Field::Word(of, words) => words[usize::from(*of(settings))].to_owned(),
        }
    }

    /// Stores a value in `settings`. The error says what to write instead.
    pub(crate) fn put(&self, settings: &mut Settings, given: Given, base: &Base) -> Result<(), String> {
        match self.field {
            Field::Path(of) => *of(settings) = Some(meaning::path(given, base)?),
            Field::Size(of) => *of(settings) = meaning::size(given)?,
            Field::Number(of) => *of(settings) = meaning::number(given)?,
            Field::Switch(of) => *of(settings) = meaning::switch(given)?,
            Field::Text(of) => *of(settings) = meaning::text(given)?,
            Field::Observer(of) => *of(settings) = meaning::observer(given)?,
            Field::Class(of) => *of(settings) = meaning::class(given)?,
            Field::Handover(of) => *of(settings) = meaning::handover(given)?,
            Field::Roots => (settings.find_roots, settings.roots) = meaning::roots(given, base)?,
            Field::Remotes => settings.remote = meaning::remotes(given)?,
            Field::Keys => settings.remote_trust = meaning::keys(given)?,
            Field::Word(of, words) => *of(settings) = meaning::word(given, words)?,
        }
        Ok(())
    }

    /// Returns true if this is a switch that goes from on to off.
    pub(crate) fn goes_off(&self, before: &mut Settings, after: &mut Settings) -> bool {
        matches!(self.field, Field::Switch(of) if *of(before) && !*of(after))
    }
}
