//! What stands in front of the compiler: nothing, larder, or another cache; its settings and its counters.

use crate::run;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Sub;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One way to put a cache in front of a compiler, with a store of its own.
#[derive(Clone)]
pub(crate) struct Launcher {
    pub(crate) name: &'static str,
    /// `None` for the plain compiler.
    pub(crate) program: Option<PathBuf>,
    settings: Vec<(&'static str, OsString)>,
    counter: Counter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counter {
    None,
    Larder,
    Ccache,
    /// ccache with its statistics switched off: another launcher with the same store asks for them.
    CcacheSilent,
    Sccache,
}

/// What a cache has counted, in larder's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) hit: u64,
    /// Of the hits, those that another process recorded while they waited for it; 0 where that is not counted.
    pub(crate) waited: u64,
    pub(crate) miss: u64,
    pub(crate) bypass: u64,
    pub(crate) fallback: u64,
    /// Code to count, the kind of reason in front: why not cached, why not recorded.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// ccache's counters of calls that it passes on uncached.
const CCACHE_BYPASSES: &[&str] = &[
    "autoconf_test",
    "bad_compiler_arguments",
    "called_for_link",
    "called_for_preprocessing",
    "compile_failed",
    "could_not_use_modules",
    "could_not_use_precompiled_header",
    "disabled",
    "multiple_source_files",
    "no_input_file",
    "output_to_stdout",
    "preprocessor_error",
    "recache",
    "unsupported_code_directive",
    "unsupported_compiler_option",
    "unsupported_environment_variable",
    "unsupported_source_encoding",
    "unsupported_source_language",
];

/// The reasons in larder's statistics, and what is put in front of their codes.
const LARDER_REASONS: &[(&str, &str)] =
    &[("bypass_reasons", "bypass "), ("fallback_reasons", "fallback "), ("unrecorded_reasons", UNRECORDED)];
const UNRECORDED: &str = "unrecorded ";
const LARDER_DIR: &str = "LARDER_DIR";
const CCACHE_NOSTATS: &str = "CCACHE_NOSTATS";
const SCCACHE_SOCKET: &str = "SCCACHE_SERVER_UDS";

impl Launcher {
    /// The compiler alone.
    pub(crate) fn plain() -> Self {
        Self { name: "plain", program: None, settings: Vec::new(), counter: Counter::None }
    }

    /// larder with its defaults and its store in `store`.
    pub(crate) fn larder(program: &Path, store: &Path) -> Result<Self> {
        let settings = vec![(LARDER_DIR, store.into())];
        Self { name: "larder", program: Some(program.into()), settings, counter: Counter::Larder }.checked()
    }

    /// larder, running the tool on each hit as well and comparing.
    pub(crate) fn verifying(mut self) -> Self {
        self.settings.push(("LARDER_VERIFY", "1".into()));
        self
    }

    /// With one more variable.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.settings.push((name, value.into()));
        self
    }

    /// ccache with its defaults.
    pub(crate) fn ccache(program: &Path, store: &Path) -> Result<Self> {
        let settings = vec![("CCACHE_DIR", store.into()), ("CCACHE_CONFIGPATH", store.join("no-such.conf").into())];
        Self { name: "ccache", program: Some(program.into()), settings, counter: Counter::Ccache }.checked()
    }

    /// ccache with every check loosened that still notices a changed header: it looks at times and sizes instead of
    /// contents, keeps no statistics and links instead of copying.
    pub(crate) fn ccache_loosened(program: &Path, store: &Path) -> Result<Self> {
        let mut launcher = Self::ccache(program, store)?;
        launcher.name = "ccache loosened";
        let sloppiness = "file_stat_matches,include_file_mtime,include_file_ctime,time_macros,pch_defines,locale";
        launcher.settings.push(("CCACHE_SLOPPINESS", sloppiness.into()));
        launcher.settings.push((CCACHE_NOSTATS, "1".into()));
        launcher.settings.push(("CCACHE_HARDLINK", "1".into()));
        launcher.counter = Counter::CcacheSilent;
        Ok(launcher)
    }

    /// ccache told of the directory above all places, whose paths it then makes relative, and to leave the working directory
    /// out of its key.
    pub(crate) fn ccache_anywhere(program: &Path, store: &Path, above: &Path) -> Result<Self> {
        let mut launcher = Self::ccache(program, store)?;
        launcher.name = "ccache base_dir";
        launcher.settings.push(("CCACHE_BASEDIR", above.into()));
        launcher.settings.push(("CCACHE_NOHASHDIR", "1".into()));
        Ok(launcher)
    }

    /// sccache with its defaults, and a server on a socket in its store.
    pub(crate) fn sccache(program: &Path, store: &Path) -> Self {
        let settings = vec![
            ("SCCACHE_DIR", store.into()),
            ("SCCACHE_CONF", store.join("no-such.conf").into()),
            (SCCACHE_SOCKET, store.with_extension("socket").into()),
        ];
        Self { name: "sccache", program: Some(program.into()), settings, counter: Counter::Sccache }
    }

    /// Where larder's store is; `None` for others.
    pub(crate) fn store(&self) -> Option<PathBuf> {
        self.settings.iter().find(|(name, _)| *name == LARDER_DIR).map(|(_, path)| PathBuf::from(path))
    }

    /// The variables that it wants to be set.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.settings.iter().map(|(name, value)| (*name, value))
    }

    /// Where sccache's server listens.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.settings.iter().find(|(name, _)| *name == SCCACHE_SOCKET).map(|(_, path)| PathBuf::from(path))
    }

    /// The same, keeping statistics where it is measured without.
    pub(crate) fn counting(&self) -> Self {
        let mut counting = self.clone();
        if self.counter == Counter::CcacheSilent {
            counting.settings.retain(|(name, _)| *name != CCACHE_NOSTATS);
            counting.counter = Counter::Ccache;
        }
        counting
    }

    /// Whether it keeps statistics as it is.
    pub(crate) fn counts_while_measured(&self) -> bool {
        !matches!(self.counter, Counter::None | Counter::CcacheSilent)
    }

    /// Build tools split `CC="larder gcc"` at spaces.
    fn checked(self) -> Result<Self> {
        let path = self.program.as_deref().unwrap_or(Path::new("")).to_string_lossy();
        ensure!(
            !path.contains(char::is_whitespace),
            "the path of {} has a space: set CARGO_TARGET_DIR to one without",
            path
        );
        Ok(self)
    }

    /// What goes into `CC` for this compiler.
    pub(crate) fn compiler(&self, compiler: &str) -> String {
        self.program.as_ref().map_or_else(|| compiler.to_owned(), |program| format!("{} {compiler}", program.display()))
    }

    /// The environment of a build: the little that a build needs, and the launcher's settings.
    pub(crate) fn apply(&self, command: &mut Command, home: &Path) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", home).env("LANG", "C.UTF-8");
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
    }

    /// The counters by now; `None` where nothing counts.
    pub(crate) fn counts(&self, home: &Path) -> Result<Option<Counts>> {
        let Some(program) = &self.program else { return Ok(None) };
        let mut command = Command::new(program);
        self.apply(&mut command, home);
        match self.counter {
            Counter::None | Counter::CcacheSilent => Ok(None),
            Counter::Larder => {
                let text =
                    run::output(command.args(["stats", "--json"])).context("larder does not tell its statistics")?;
                larder_counts(&text).map(Some)
            }
            Counter::Ccache => Ok(Some(ccache_counts(&run::output(command.arg("--print-stats"))?))),
            Counter::Sccache => {
                let text = run::output(command.args(["--show-stats", "--stats-format", "json"]))?;
                sccache_counts(&text).map(Some)
            }
        }
    }
}

impl Counts {
    /// Adds what was counted elsewhere.
    pub(crate) fn add(&mut self, other: &Self) {
        self.hit += other.hit;
        self.waited += other.waited;
        self.miss += other.miss;
        self.bypass += other.bypass;
        self.fallback += other.fallback;
        for (code, count) in &other.reasons {
            *self.reasons.entry(code.clone()).or_default() += count;
        }
    }

    /// How many commands ran the tool.
    pub(crate) fn runs(&self) -> u64 {
        self.miss + self.bypass + self.fallback
    }

    /// How many runs larder gave a reason for not recording.
    pub(crate) fn unrecorded(&self) -> u64 {
        self.reasons.iter().filter(|(code, _)| code.starts_with(UNRECORDED)).map(|(_, count)| count).sum()
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        let less = |code: &String, count: u64| count.saturating_sub(before.reasons.get(code).copied().unwrap_or(0));
        let reasons = self.reasons.iter().map(|(code, &count)| (code.clone(), less(code, count)));
        Self {
            hit: self.hit.saturating_sub(before.hit),
            waited: self.waited.saturating_sub(before.waited),
            miss: self.miss.saturating_sub(before.miss),
            bypass: self.bypass.saturating_sub(before.bypass),
            fallback: self.fallback.saturating_sub(before.fallback),
            reasons: reasons.filter(|&(_, count)| count > 0).collect(),
        }
    }
}

fn larder_counts(text: &str) -> Result<Counts> {
    let json: serde_json::Value = serde_json::from_str(text).context("`larder stats --json` prints no JSON")?;
    let field =
        |name: &str| json[name].as_u64().with_context(|| format!("`larder stats --json` has no integer `{name}`"));
    let mut reasons = BTreeMap::new();
    for (name, kind) in LARDER_REASONS {
        for (code, count) in json[name].as_object().into_iter().flatten() {
            reasons.insert(format!("{kind}{code}"), count.as_u64().unwrap_or(0));
        }
    }
    Ok(Counts {
        hit: field("hit")?,
        waited: json["waited"].as_u64().unwrap_or(0),
        miss: field("miss")?,
        bypass: field("bypass")?,
        fallback: field("fallback")?,
        reasons,
    })
}

fn ccache_counts(text: &str) -> Counts {
    let mut counts = Counts::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once('\t')) {
        let value = value.trim().parse().unwrap_or(0);
        match name {
            "direct_cache_hit" | "preprocessed_cache_hit" => counts.hit += value,
            "cache_miss" => counts.miss += value,
            "internal_error" | "missing_cache_file" | "modified_input_file" => counts.fallback += value,
            _ if CCACHE_BYPASSES.contains(&name) && value > 0 => {
                counts.bypass += value;
                counts.reasons.insert(format!("bypass {name}"), value);
            }
            _ => {}
        }
    }
    counts
}

fn sccache_counts(text: &str) -> Result<Counts> {
    let json: serde_json::Value = serde_json::from_str(text).context("sccache's statistics are no JSON")?;
    let sum = |name: &str| -> u64 {
        let counts = json["stats"][name]["counts"].as_object();
        counts.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
    };
    Ok(Counts { hit: sum("cache_hits"), miss: sum("cache_misses"), ..Counts::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_larders_statistics() {
        let text = r#"{"hit":3,"miss":2,"bypass":1,"fallback":0,"bypass_reasons":{"link":1},"unrecorded_reasons":{"clock":2}}"#;
        let counts = larder_counts(text).expect("well-formed");
        assert_eq!((counts.hit, counts.miss, counts.unrecorded()), (3, 2, 2));
        assert!(larder_counts(r#"{"hit":3}"#).is_err());
    }

    #[test]
    fn reads_ccaches_counters() {
        let counts = ccache_counts("direct_cache_hit\t5\ncache_miss\t2\ncalled_for_link\t1\nfiles_in_cache\t9\n");
        assert_eq!((counts.hit, counts.miss, counts.bypass), (5, 2, 1));
    }

    #[test]
    fn a_difference_drops_reasons_that_did_not_grow() {
        let counts = |miss, clock| Counts {
            miss,
            reasons: [("unrecorded clock".to_owned(), clock)].into(),
            ..Counts::default()
        };
        assert_eq!(counts(5, 2) - counts(3, 2), Counts { miss: 2, ..Counts::default() });
    }
}
