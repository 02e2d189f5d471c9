//! All settings, as a table: how each is called, what it holds, who may set it, what it is for.
//!
//! Unaware of: where values come from, and how text becomes a value.

use std::path::PathBuf;

use larder_model::{Digest, Observer};

use crate::meaning::{self, Base, Given};
use crate::secret::masked;
use crate::size;

/// What larder was told, ready to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The class of the tools that are started.
    pub class: Class,
    /// A directory of cgroups that tools in the background are moved to, absolute.
    pub class_cgroup: Option<PathBuf>,
    /// The store, absolute. `None` where nothing gives it a place.
    pub dir: Option<PathBuf>,
    /// Every tool runs untouched.
    pub disable: bool,
    /// Whom records answer that are handed over by processes which cannot write the store.
    pub handover: Handover,
    /// Tools ask for huge pages.
    pub huge_pages: bool,
    /// For how many days an image stays that nobody uses; 0 is no limit.
    pub image_max_days: u64,
    /// What the images of the store may take, in bytes; 0 is no limit of their own.
    pub image_max_size_bytes: u64,
    /// How many tools run at once; 0 is as many as processors.
    pub jobs: u64,
    /// Where larder writes what it did, absolute.
    pub log: Option<PathBuf>,
    /// What the store may hold, in bytes; 0 is no limit.
    pub max_size_bytes: u64,
    /// The only observer to use; `None` is the best that works.
    pub observer: Option<Observer>,
    /// Use the store, never write to it.
    pub read_only: bool,
    /// Run the tool as if nothing were recorded, and record.
    pub recache: bool,
    /// How subjects of commits begin that a record lists by themselves; every one begins with nothing.
    pub record_commit_prefix: String,
    /// Where records of builds go, absolute; `None` is the place for the user's state.
    pub record_dir: Option<PathBuf>,
    /// Remotes by their URLs, the nearest first, credentials and all: not to be shown or logged as they are.
    pub remote: Vec<String>,
    /// `larderd` sends what was handed over to it, unsigned.
    pub remote_handover: bool,
    /// What signatures of records are bound to, beside the records: those of another name are not believed.
    pub remote_namespace: String,
    /// What is made here is not sent to the remotes.
    pub remote_read_only: bool,
    /// A file with the secret key by which records that are sent are signed, absolute.
    pub remote_sign_with: Option<PathBuf>,
    /// Public keys: once there is one, only records that one of them signed are believed.
    pub remote_trust: Vec<String>,
    /// What differs between places of the same build, beside what is found, absolute.
    pub roots: Vec<PathBuf>,
    /// Look for roots: build systems', checkouts'.
    pub find_roots: bool,
    /// Write debug information again for another place, where that is exact.
    pub relocate_debug: bool,
    /// A sandbox's results may hold the path of another one.
    pub ephemeral: bool,
    /// Tools wait for each other, over all builds.
    pub tokens: bool,
    /// The file by which builds know of each other's tools, absolute; `None` is the user's own.
    pub tokens_file: Option<PathBuf>,
    /// On one hit in so many the tool runs as well and is compared; 0 is never.
    pub verify: u64,
    /// Wait for another process that runs the same action.
    pub wait: bool,
}

impl Settings {
    /// Of the remotes' URLs; `None` where there is none.
    pub fn remotes_digest(&self) -> Option<Digest> {
        (!self.remote.is_empty()).then(|| Digest::of(self.remote.join("\n").as_bytes()))
    }

    /// Of the keys that a record must be signed with, and of the namespace; `None` where it need not be signed.
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
            ephemeral: false,
            tokens: true,
            tokens_file: None,
            verify: 0,
            wait: true,
        }
    }
}

/// How much of the machine tools get beside others; `docs/scheduling.md` says what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// As the build.
    #[default]
    Inherit,
    /// After what people and services wait for.
    Utility,
    /// When nobody else wants the machine.
    Background,
}

impl Class {
    pub(crate) const ALL: [(&'static str, Class); 3] =
        [("background", Class::Background), ("inherit", Class::Inherit), ("utility", Class::Utility)];
    const WORDS: &[&str] = &[Class::ALL[0].0, Class::ALL[1].0, Class::ALL[2].0];

    /// As it is written.
    pub fn name(self) -> &'static str {
        Class::ALL.iter().find(|(_, class)| *class == self).map_or("inherit", |(name, _)| name)
    }
}

/// Whom records answer that are handed over to `larderd` by processes which cannot write the store: it is a setting of
/// `larderd`'s own, so that no client decides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// Processes that cannot write the store either.
    #[default]
    Apart,
    /// Nothing is taken.
    Off,
    /// Everybody, as if they had been recorded without `larderd`.
    Trusted,
}

impl Handover {
    pub(crate) const ALL: [(&'static str, Handover); 3] =
        [("apart", Handover::Apart), ("off", Handover::Off), ("trusted", Handover::Trusted)];
    const WORDS: &[&str] = &[Handover::ALL[0].0, Handover::ALL[1].0, Handover::ALL[2].0];

    /// As it is written.
    pub fn name(self) -> &'static str {
        Handover::ALL.iter().find(|(_, handover)| *handover == self).map_or("apart", |(name, _)| name)
    }
}

/// What a setting holds, for help and completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Paths with colons between them, and the words that a setting knows.
    Paths,
    /// Public keys: with commas between them, or in a file an array of strings.
    Keys,
    /// URLs: with commas between them, or in a file an array of strings.
    Urls,
    /// A path: absolute, `~/…`, or relative to the file (in the environment: to the working directory).
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
    /// Its name in a file.
    pub key: &'static str,
    /// Its name in the environment.
    pub variable: &'static str,
    /// A project's own file may set it: it is neither a path nor what is trusted. Even then such a file only switches
    /// on: what the user has switched on stays on.
    pub project_may_set: bool,
    /// What holds when nobody sets it, in words.
    pub default: &'static str,
    /// What it is for, in one sentence.
    pub help: &'static str,
    field: Field,
}

/// Where in [`Settings`] a value goes.
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
        help: "How much of the machine tools get beside others.",
        field: Field::Class(|s| &mut s.class),
    },
    Setting {
        key: "class_cgroup",
        variable: "LARDER_CLASS_CGROUP",
        project_may_set: false,
        default: "none",
        help: "A cgroup's directory that tools in the background are moved to.",
        field: Field::Path(|s| &mut s.class_cgroup),
    },
    Setting {
        key: "debug_paths",
        variable: "LARDER_DEBUG_PATHS",
        project_may_set: true,
        default: "relocate",
        help: "Whether debug information is written again for another place, where that is exact.",
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
        help: "Whom larderd lets records answer that sandboxes hand over: other sandboxes, or all.",
        field: Field::Handover(|s| &mut s.handover),
    },
    Setting {
        key: "huge_pages",
        variable: "LARDER_HUGE_PAGES",
        project_may_set: true,
        default: "false",
        help: "Have compilers ask for huge pages: GLIBC_TUNABLES, MALLOC_CONF.",
        field: Field::Switch(|s| &mut s.huge_pages),
    },
    Setting {
        key: "image_max_days",
        variable: "LARDER_IMAGE_MAX_DAYS",
        project_may_set: false,
        default: "0",
        help: "Evict images that nobody used for so many days; 0 is no limit.",
        field: Field::Number(|s| &mut s.image_max_days),
    },
    Setting {
        key: "image_max_size",
        variable: "LARDER_IMAGE_MAX_SIZE",
        project_may_set: false,
        default: "0",
        help: "Evict the least recently used images beyond this; 0: max_size alone counts.",
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
        help: "Evict the least recently used when the store holds more than this; 0 is no limit.",
        field: Field::Size(|s| &mut s.max_size_bytes),
    },
    Setting {
        key: "observer",
        variable: "LARDER_OBSERVER",
        project_may_set: true,
        default: "auto",
        help: "How a tool is watched when its result is not known yet; auto is the best that works.",
        field: Field::Observer(|s| &mut s.observer),
    },
    Setting {
        key: "policy",
        variable: "LARDER_POLICY",
        project_may_set: false,
        default: "exact",
        help: "With ephemeral, a sandbox gets what another made although it holds its path.",
        field: Field::Word(|s| &mut s.ephemeral, &["exact", "ephemeral"]),
    },
    Setting {
        key: "read_only",
        variable: "LARDER_READ_ONLY",
        project_may_set: true,
        default: "false",
        help: "Use what the store holds and add nothing to it.",
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
        help: "A record lists commits whose subject begins so by themselves.",
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
        help: "Remotes that share results, by URL, the nearest first, with commas between them.",
        field: Field::Remotes,
    },
    Setting {
        key: "remote_handover",
        variable: "LARDER_REMOTE_HANDOVER",
        project_may_set: false,
        default: "off",
        help: "With unsigned, larderd sends what sandboxes hand over, unsigned.",
        field: Field::Word(|s| &mut s.remote_handover, &["off", "unsigned"]),
    },
    Setting {
        key: "remote_namespace",
        variable: "LARDER_REMOTE_NAMESPACE",
        project_may_set: false,
        default: "none",
        help: "Signatures are for this name; those for another are none.",
        field: Field::Text(|s| &mut s.remote_namespace),
    },
    Setting {
        key: "remote_rw_mode",
        variable: "LARDER_REMOTE_RW_MODE",
        project_may_set: false,
        default: "read_write",
        help: "With read_only, nothing that is made here goes to the remotes.",
        field: Field::Word(|s| &mut s.remote_read_only, &["read_write", "read_only"]),
    },
    Setting {
        key: "remote_sign_with",
        variable: "LARDER_REMOTE_SIGN_WITH",
        project_may_set: false,
        default: "none",
        help: "A file with the secret key by which records that are sent are signed.",
        field: Field::Path(|s| &mut s.remote_sign_with),
    },
    Setting {
        key: "remote_trust",
        variable: "LARDER_REMOTE_TRUST",
        project_may_set: false,
        default: "none",
        help: "Public keys, with commas between them: only records that one of them signed count.",
        field: Field::Keys,
    },
    Setting {
        key: "roots",
        variable: "LARDER_ROOTS",
        project_may_set: false,
        default: "auto",
        help: "Directories that differ between places of a build: /a:/b. none: do not look for more.",
        field: Field::Roots,
    },
    Setting {
        key: "tokens",
        variable: "LARDER_TOKENS",
        project_may_set: false,
        default: "true",
        help: "A tool waits while as many run as may, or there is no memory for it.",
        field: Field::Switch(|s| &mut s.tokens),
    },
    Setting {
        key: "tokens_file",
        variable: "LARDER_TOKENS_FILE",
        project_may_set: false,
        default: "none",
        help: "The file by which builds share tokens, where not the user's own.",
        field: Field::Path(|s| &mut s.tokens_file),
    },
    Setting {
        key: "verify",
        variable: "LARDER_VERIFY",
        project_may_set: true,
        default: "0",
        help: "On one hit in so many run the tool as well and compare; 0 is never, 1 always.",
        field: Field::Number(|s| &mut s.verify),
    },
    Setting {
        key: "wait",
        variable: "LARDER_WAIT",
        project_may_set: false,
        default: "true",
        help: "Where the same action runs already, wait for it, about as long as it took before.",
        field: Field::Switch(|s| &mut s.wait),
    },
];

/// Variables that matter here and are no setting, with what they do: for help and the manual.
pub const OTHER_VARIABLES: &[(&str, &str)] = &[
    ("LARDER_CONFIG", "Read this configuration file and no other."),
    ("XDG_CONFIG_HOME", "The user's file is larder/larder.toml in here, else in ~/.config."),
    ("XDG_CACHE_HOME", "The store is larder in here, else in ~/.cache, where nothing sets it."),
    ("XDG_STATE_HOME", "Records are larder/records in here, else in ~/.local/state, where nothing sets it."),
    ("HOME", "What ~ stands for, else the home directory in the password database."),
];

impl Setting {
    /// The setting that a file calls `key`.
    pub fn by_key(key: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// What it holds.
    pub fn kind(&self) -> Kind {
        match self.field {
            Field::Path(_) => Kind::Path,
            Field::Size(_) => Kind::Size,
            Field::Number(_) => Kind::Number,
            Field::Switch(_) => Kind::Switch,
            Field::Text(_) => Kind::Text,
            Field::Observer(_) => Kind::Choice(meaning::OBSERVERS),
            Field::Class(_) => Kind::Choice(Class::WORDS),
            Field::Handover(_) => Kind::Choice(Handover::WORDS),
            Field::Roots => Kind::Paths,
            Field::Remotes => Kind::Urls,
            Field::Keys => Kind::Keys,
            Field::Word(_, words) => Kind::Choice(words),
        }
    }

    /// Its value in `settings`, as it could be written in a file, but for secrets.
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

    /// Put what was given into `settings`, or say what would do instead.
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

    /// Whether it is a switch that goes from on to off between the two.
    pub(crate) fn goes_off(&self, before: &mut Settings, after: &mut Settings) -> bool {
        matches!(self.field, Field::Switch(of) if *of(before) && !*of(after))
    }
}
