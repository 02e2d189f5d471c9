//! The table of all settings: the name of each, its type, where it may be set, and what it is for.
//!
//! Unaware of: where values come from, and how text becomes a value.

use std::path::PathBuf;

use larder_model::{Digest, Observer};

use crate::choices::{self, Class, Handover};
use crate::meaning::{self, Base, Given};
use crate::secret::masked;
use crate::size;

/// Declares [`Settings`] with the default of each.
macro_rules! defaults {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $default:expr,)*) => {
        /// The values of all settings.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($field: $default),* }
            }
        }
    };
}

defaults! {
    /// The scheduling class of tools.
    class: Class = Class::Inherit,
    /// The absolute path of a cgroup directory into which background tools are moved.
    class_cgroup: Option<PathBuf> = None,
    /// The absolute path of the store. `None` if nothing determines it.
    dir: Option<PathBuf> = None,
    /// Runs every tool untouched.
    disable: bool = false,
    /// Which processes may use records that were handed over by processes that cannot write the
    /// store.
    handover: Handover = Handover::Apart,
    /// Makes tools ask for huge pages.
    huge_pages: bool = false,
    /// After how many days an unused image is evicted; 0 means no limit.
    image_max_days: u64 = 0,
    /// The size limit for the images in the store, in bytes; 0 means no separate limit.
    image_max_size_bytes: u64 = 0,
    /// How many tools run at once; 0 means as many as processors.
    jobs: u64 = 0,
    /// The absolute path of larder's log.
    log: Option<PathBuf> = None,
    /// The size limit of the store, in bytes; 0 means no limit.
    max_size_bytes: u64 = 10 << 30,
    /// The only observer to use; `None` means the best that works.
    observer: Option<Observer> = None,
    /// `larder run` does not say why it did not cache a command.
    quiet: bool = false,
    /// Uses the store but never writes to it.
    read_only: bool = false,
    /// Runs the tool as if nothing were recorded, and records the result.
    recache: bool = false,
    /// A prefix of commit subjects. A record of a build lists commits with this prefix separately;
    /// an empty prefix matches every commit.
    record_commit_prefix: String = String::new(),
    /// The absolute path for records of builds; `None` means the user's state directory.
    record_dir: Option<PathBuf> = None,
    /// The URLs of remotes, the nearest first. They contain credentials, so they must not be shown
    /// or logged unmasked.
    remote: Vec<String> = Vec::new(),
    /// `larderd` uploads what was handed over to it, unsigned.
    remote_handover: bool = false,
    /// The name to which signatures of records are bound. Signatures for another name are not
    /// valid.
    remote_namespace: String = String::new(),
    /// Results made here are not uploaded to the remotes.
    remote_read_only: bool = false,
    /// The absolute path of the secret key that signs uploaded records.
    remote_sign_with: Option<PathBuf> = None,
    /// Public keys. If there is one, only records that one of them signed are used.
    remote_trust: Vec<String> = Vec::new(),
    /// Absolute paths of directories that differ between places of the same build, in addition to
    /// those that are found.
    roots: Vec<PathBuf> = Vec::new(),
    /// Searches for roots: those of build systems and checkouts.
    find_roots: bool = true,
    /// Rewrites debug information for another place if the result is exact.
    relocate_debug: bool = true,
    /// Puts launchers in the place of cargo's build scripts, so that their runs are cached.
    run_build_scripts: bool = false,
    /// Starts rustc with options that replace the paths of the checkout and of the target
    /// directory.
    remap_rust_paths: bool = false,
    /// A sandbox may get results that contain the path of another sandbox.
    ephemeral: bool = false,
    /// Limits how many tools run at once over all builds.
    tokens: bool = true,
    /// The absolute path of the file by which builds share tokens; `None` means the user's own.
    tokens_file: Option<PathBuf> = None,
    /// On one hit in this many, the tool runs as well and the results are compared; 0 means never.
    verify: u64 = 0,
    /// Waits for another process that runs the same action.
    wait: bool = true,
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
    Choice(Choice),
    Roots,
    Remotes,
    Keys,
}

/// A field with one of a few values.
#[derive(Clone, Copy)]
struct Choice {
    words: &'static [&'static str],
    /// Returns the index of the value's word.
    of: fn(&Settings) -> usize,
    /// Sets the value with the word of this index.
    put: fn(&mut Settings, usize),
}

/// Builds the table. Each row has the key, the variable, whose files may set it, the field, the
/// default in words, and what the setting is for.
macro_rules! settings {
    ($($key:literal $variable:literal $who:ident $kind:ident($($field:tt)*) $default:literal $help:literal;)*) => {
        &[$(Setting {
            key: $key,
            variable: $variable,
            project_may_set: settings!(@may $who),
            default: $default,
            help: $help,
            field: settings!(@field $kind $($field)*),
        }),*]
    };
    (@may project) => { true };
    (@may user) => { false };
    (@field Choice $name:ident, $all:expr) => {
        Field::Choice(Choice {
            words: &const { choices::words(&$all) },
            of: |s| choices::place(&$all, s.$name),
            put: |s, at| s.$name = $all[at].1,
        })
    };
    (@field Word $name:ident, $off:literal, $on:literal) => {
        settings!(@field Choice $name, [($off, false), ($on, true)])
    };
    (@field $kind:ident $name:ident) => { Field::$kind(|s| &mut s.$name) };
    (@field $kind:ident) => { Field::$kind };
}

/// Every setting, sorted by key.
pub const SETTINGS: &[Setting] = settings! {
    "class" "LARDER_CLASS" project Choice(class, Class::ALL) "inherit"
        "The priority of tools relative to other programs.";
    "class_cgroup" "LARDER_CLASS_CGROUP" user Path(class_cgroup) "none"
        "The directory of a cgroup into which background tools are moved.";
    "debug_paths" "LARDER_DEBUG_PATHS" project Word(relocate_debug, "exact", "relocate") "relocate"
        "With relocate, paths in debug information are rewritten for another checkout.";
    "dir" "LARDER_DIR" user Path(dir) "$XDG_CACHE_HOME/larder, else ~/.cache/larder"
        "The directory of the store.";
    "disable" "LARDER_DISABLE" project Switch(disable) "false"
        "Run every tool untouched, as if larder were not there.";
    "handover" "LARDER_HANDOVER" user Choice(handover, Handover::ALL) "apart"
        "Which processes may use records that sandboxes hand over: sandboxes only, or all.";
    "huge_pages" "LARDER_HUGE_PAGES" project Switch(huge_pages) "false"
        "Make compilers ask for huge pages: GLIBC_TUNABLES, MALLOC_CONF.";
    "image_max_days" "LARDER_IMAGE_MAX_DAYS" user Number(image_max_days) "0"
        "Evict images that were not used for this many days; 0 is no limit.";
    "image_max_size" "LARDER_IMAGE_MAX_SIZE" user Size(image_max_size_bytes) "0"
        "Evict the least recently used images beyond this; 0: only max_size limits.";
    "jobs" "LARDER_JOBS" user Number(jobs) "0"
        "How many tools run at once, over all builds; 0 is as many as processors.";
    "log" "LARDER_LOG" user Path(log) "none"
        "Append what larder did, and why, to this file.";
    "max_size" "LARDER_MAX_SIZE" user Size(max_size_bytes) "10 GiB"
        "Evict the least recently used entries beyond this size; 0 is no limit.";
    "observer" "LARDER_OBSERVER" project Choice(observer, choices::OBSERVERS) "auto"
        "How a tool is observed when it runs; auto is the best observer that works.";
    "policy" "LARDER_POLICY" user Word(ephemeral, "exact", "ephemeral") "exact"
        "With ephemeral, a sandbox may get a result that contains another sandbox's path.";
    "quiet" "LARDER_QUIET" project Switch(quiet) "false"
        "Do not say at a terminal why `larder run` did not cache a command.";
    "read_only" "LARDER_READ_ONLY" project Switch(read_only) "false"
        "Use what is in the store and add nothing to it.";
    "recache" "LARDER_RECACHE" project Switch(recache) "false"
        "Run every tool and record its result anew.";
    "record_commit_prefix" "LARDER_RECORD_COMMIT_PREFIX" project Text(record_commit_prefix) "none"
        "A record lists commits with this subject prefix separately.";
    "record_dir" "LARDER_RECORD_DIR" user Path(record_dir)
        "$XDG_STATE_HOME/larder/records, else ~/.local/state/larder/records"
        "Where `larder record` puts records of builds.";
    "remote" "LARDER_REMOTE" user Remotes() "none"
        "URLs of remotes that share results, separated by commas, the nearest first.";
    "remote_handover" "LARDER_REMOTE_HANDOVER" user Word(remote_handover, "off", "unsigned") "off"
        "With unsigned, larderd uploads what sandboxes hand over, unsigned.";
    "remote_namespace" "LARDER_REMOTE_NAMESPACE" user Text(remote_namespace) "none"
        "Only signatures made for this name are valid.";
    "remote_rw_mode" "LARDER_REMOTE_RW_MODE" user Word(remote_read_only, "read_write", "read_only")
        "read_write"
        "With read_only, no result is uploaded to the remotes.";
    "remote_sign_with" "LARDER_REMOTE_SIGN_WITH" user Path(remote_sign_with) "none"
        "A file with the secret key that signs uploaded records.";
    "remote_trust" "LARDER_REMOTE_TRUST" user Keys() "none"
        "Public keys, separated by commas: only records signed by one of them are used.";
    "roots" "LARDER_ROOTS" user Roots() "auto"
        "Directories that differ between checkouts: /a:/b. none: do not search for others.";
    "rust_build_scripts" "LARDER_RUST_BUILD_SCRIPTS" user Switch(run_build_scripts) "false"
        "Also answer the runs of cargo's build scripts from the store.";
    "rust_paths" "LARDER_RUST_PATHS" project Word(remap_rust_paths, "exact", "remap") "exact"
        "With remap, rustc writes no path of the checkout, and all crates hit in each.";
    "tokens" "LARDER_TOKENS" user Switch(tokens) "true"
        "A tool waits if too many tools run, or if there is not enough memory for it.";
    "tokens_file" "LARDER_TOKENS_FILE" user Path(tokens_file) "none"
        "The file by which builds share tokens, if it is not the user's own.";
    "verify" "LARDER_VERIFY" project Number(verify) "0"
        "On one hit in this many, also run the tool and compare; 0 is never, 1 always.";
    "wait" "LARDER_WAIT" user Switch(wait) "true"
        "If the same action is already running, wait about as long as it took before.";
};

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
            Field::Choice(choice) => ValueKind::Choice(choice.words),
            Field::Roots => ValueKind::Paths,
            Field::Remotes => ValueKind::Urls,
            Field::Keys => ValueKind::Keys,
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
            Field::Choice(choice) => choice.words[(choice.of)(settings)].to_owned(),
            Field::Roots => {
                let first = if settings.find_roots { "auto" } else { "none" }.to_owned();
                settings.roots.iter().fold(first, |all, root| format!("{all}:{}", root.display()))
            }
            Field::Keys if settings.remote_trust.is_empty() => "none".to_owned(),
            Field::Keys => settings.remote_trust.join(","),
            Field::Remotes if settings.remote.is_empty() => "none".to_owned(),
            Field::Remotes => settings.remote.iter().map(|url| masked(url)).collect::<Vec<_>>().join(","),
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
            Field::Choice(choice) => (choice.put)(settings, meaning::choice(given, choice.words)?),
            Field::Roots => (settings.find_roots, settings.roots) = meaning::roots(given, base)?,
            Field::Remotes => settings.remote = meaning::remotes(given)?,
            Field::Keys => settings.remote_trust = meaning::keys(given)?,
        }
        Ok(())
    }

    /// Returns true if this is a switch that goes from on to off.
    pub(crate) fn goes_off(&self, before: &mut Settings, after: &mut Settings) -> bool {
        matches!(self.field, Field::Switch(of) if *of(before) && !*of(after))
    }
}
