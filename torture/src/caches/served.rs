//! Caches with a server, sccache and kache. Each has its defaults, and a server of its own on a
//! socket beside its store.

use super::cache::{Cache, Counts};
use super::server::Server;
use crate::run;
use anyhow::Result;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The words and variables of one of these caches.
pub(crate) struct Words {
    /// Names the variables for the socket and for the store.
    places: [&'static str; 2],
    /// More variables for all of its programs. If a client starts a server in place of a killed one,
    /// they make that server end by itself.
    settings: &'static [(&'static str, &'static str)],
    start: &'static [&'static str],
    /// More variables for the server.
    start_settings: &'static [(&'static str, &'static str)],
    stop: &'static [&'static str],
    count: &'static [&'static str],
    /// Reads what `count` has printed.
    counts: fn(&Value) -> Option<Counts>,
}

pub(crate) const SCCACHE: Words = Words {
    places: ["SCCACHE_SERVER_UDS", "SCCACHE_DIR"],
    settings: &[("SCCACHE_CONF", "/dev/null"), ("SCCACHE_IDLE_TIMEOUT", "60"), ("SCCACHE_STARTUP_TIMEOUT", "5")],
    start: &[],
    start_settings: &[("SCCACHE_START_SERVER", "1"), ("SCCACHE_NO_DAEMON", "1"), ("SCCACHE_IDLE_TIMEOUT", "0")],
    stop: &["--stop-server"],
    count: &["--show-stats", "--stats-format", "json"],
    counts: |json| {
        let stats = &json["stats"];
        let sum = |name: &str| -> u64 {
            let counts = stats[name]["counts"].as_object();
            counts.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
        };
        let (hit, miss) = (sum("cache_hits"), sum("cache_misses"));
        let all = stats["compile_requests"].as_u64()?;
        Some(Counts { hit, miss, bypass: all.saturating_sub(hit + miss), fallback: 0 })
    },
};

pub(crate) const KACHE: Words = Words {
    places: ["KACHE_SOCKET_PATH", "KACHE_CACHE_DIR"],
    settings: &[("KACHE_CONFIG", "/dev/null"), ("KACHE_HOST_CONFIG", ""), ("KACHE_DAEMON_IDLE_TIMEOUT", "60")],
    start: &["daemon", "run"],
    start_settings: &[],
    stop: &["daemon", "stop"],
    count: &["stats", "--json"],
    counts: |json| {
        let number = |name: &str| json[name].as_u64();
        Some(Counts { hit: number("local_hits")?, miss: number("misses")?, ..Counts::default() })
    },
};

pub(crate) struct Served {
    words: &'static Words,
    program: PathBuf,
    dir: PathBuf,
    store: PathBuf,
    basic: Vec<(OsString, OsString)>,
    server: Server,
}

impl Served {
    pub(crate) fn new(words: &'static Words, program: PathBuf, dir: &Path, basic: &[(OsString, OsString)]) -> Served {
        let store = dir.join("store");
        Served { words, program, dir: dir.to_owned(), store, basic: basic.to_vec(), server: Server::default() }
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("s")
    }

    fn call(&self, words: &[&str]) -> Result<Vec<u8>> {
        let mut argv: Vec<OsString> = vec![self.program.clone().into()];
        argv.extend(words.iter().map(OsString::from));
        run::output(&argv, &[self.basic.clone(), self.env()].concat(), &self.dir)
    }
}

impl Cache for Served {
    fn before_tool(&self) -> Vec<OsString> {
        vec![self.program.clone().into()]
    }

    fn before_any(&self) -> Vec<OsString> {
        self.before_tool()
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        let [socket, store] = self.words.places;
        let places = [(socket.into(), self.socket().into()), (store.into(), self.store.clone().into())];
        let settings = self.words.settings.iter().map(|(name, value)| (name.into(), value.into()));
        places.into_iter().chain(settings).collect()
    }

    fn store(&self) -> &Path {
        &self.store
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.program)
    }

    fn start(&mut self) -> Result<()> {
        let temporary = self.dir.join("server-tmp");
        fs::create_dir_all(&temporary)?;
        let mut command = Command::new(&self.program);
        command.args(self.words.start).env_clear().envs(self.basic.iter().cloned()).envs(self.env());
        command.env("TMPDIR", temporary).envs(self.words.start_settings.iter().copied());
        self.server.start(command.current_dir(&self.dir), &self.socket())
    }

    fn stop(&mut self) {
        // This also stops a server that a client has started. There may be none, so an error is
        // ignored.
        let _ = self.call(self.words.stop);
        self.server.kill();
    }

    fn kill_server(&mut self) {
        self.server.kill();
    }

    fn pids(&self) -> Vec<u32> {
        self.server.pids()
    }

    fn counts(&self) -> Option<Counts> {
        (self.words.counts)(&serde_json::from_slice(&self.call(self.words.count).ok()?).ok()?)
    }
}
