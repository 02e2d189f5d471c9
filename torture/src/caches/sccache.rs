//! sccache with its defaults, and with a server of its own on a socket beside its store.

use super::cache::{Cache, Counts};
use super::server::Server;
use crate::run;
use anyhow::Result;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Sccache {
    program: PathBuf,
    dir: PathBuf,
    store: PathBuf,
    basic: Vec<(OsString, OsString)>,
    server: Server,
}

impl Sccache {
    pub(crate) fn new(program: PathBuf, dir: &Path, basic: &[(OsString, OsString)]) -> Self {
        let store = dir.join("store");
        Self { program, dir: dir.to_owned(), store, basic: basic.to_vec(), server: Server::default() }
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

impl Cache for Sccache {
    fn before_tool(&self) -> Vec<OsString> {
        vec![self.program.clone().into()]
    }

    fn before_any(&self) -> Vec<OsString> {
        self.before_tool()
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("SCCACHE_SERVER_UDS".into(), self.socket().into()),
            ("SCCACHE_DIR".into(), self.store.clone().into()),
            ("SCCACHE_CONF".into(), "/dev/null".into()),
            // If a client starts a server in place of a killed one, that server ends by itself.
            ("SCCACHE_IDLE_TIMEOUT".into(), "60".into()),
            ("SCCACHE_STARTUP_TIMEOUT".into(), "5".into()),
        ]
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
        command.env_clear().envs(self.basic.iter().cloned()).envs(self.env()).env("TMPDIR", temporary);
        command.env("SCCACHE_START_SERVER", "1").env("SCCACHE_NO_DAEMON", "1").env("SCCACHE_IDLE_TIMEOUT", "0");
        self.server.start(command.current_dir(&self.dir), &self.socket())
    }

    fn stop(&mut self) {
        // This also stops a server that a client has started. There may be none, so an error is
        // ignored.
        let _ = self.call(&["--stop-server"]);
        self.server.kill();
    }

    fn kill_server(&mut self) {
        self.server.kill();
    }

    fn pids(&self) -> Vec<u32> {
        self.server.pids()
    }

    fn counts(&self) -> Option<Counts> {
        let text = self.call(&["--show-stats", "--stats-format", "json"]).ok()?;
        let json: Value = serde_json::from_slice(&text).ok()?;
        let stats = &json["stats"];
        let sum = |name: &str| -> u64 {
            let counts = stats[name]["counts"].as_object();
            counts.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
        };
        let (hit, miss) = (sum("cache_hits"), sum("cache_misses"));
        let all = stats["compile_requests"].as_u64()?;
        Some(Counts { hit, miss, bypass: all.saturating_sub(hit + miss), fallback: 0 })
    }
}
