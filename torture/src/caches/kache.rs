//! kache with its defaults, and with a daemon of its own on a socket beside its store.

use super::cache::{Cache, Counts};
use super::server::Server;
use crate::run;
use anyhow::Result;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Kache {
    program: PathBuf,
    dir: PathBuf,
    store: PathBuf,
    basic: Vec<(OsString, OsString)>,
    daemon: Server,
}

impl Kache {
    pub(crate) fn new(program: PathBuf, dir: &Path, basic: &[(OsString, OsString)]) -> Self {
        let store = dir.join("store");
        Self { program, dir: dir.to_owned(), store, basic: basic.to_vec(), daemon: Server::default() }
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

impl Cache for Kache {
    fn before_tool(&self) -> Vec<OsString> {
        vec![self.program.clone().into()]
    }

    fn before_any(&self) -> Vec<OsString> {
        self.before_tool()
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("KACHE_CACHE_DIR".into(), self.store.clone().into()),
            ("KACHE_CONFIG".into(), "/dev/null".into()),
            ("KACHE_HOST_CONFIG".into(), OsString::new()),
            ("KACHE_SOCKET_PATH".into(), self.socket().into()),
            // If a client starts a daemon in place of a killed one, that daemon ends by itself.
            ("KACHE_DAEMON_IDLE_TIMEOUT".into(), "60".into()),
        ]
    }

    fn store(&self) -> &Path {
        &self.store
    }

    fn program(&self) -> Option<&Path> {
        Some(&self.program)
    }

    fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["daemon", "run"]).env_clear().envs(self.basic.iter().cloned()).envs(self.env());
        self.daemon.start(command.current_dir(&self.dir), &self.socket())
    }

    fn stop(&mut self) {
        // This also stops a daemon that a client has started. There may be none, so an error is
        // ignored.
        let _ = self.call(&["daemon", "stop"]);
        self.daemon.kill();
    }

    fn kill_server(&mut self) {
        self.daemon.kill();
    }

    fn pids(&self) -> Vec<u32> {
        self.daemon.pids()
    }

    fn counts(&self) -> Option<Counts> {
        let json: Value = serde_json::from_slice(&self.call(&["stats", "--json"]).ok()?).ok()?;
        let events = &json["data"]["events"];
        let number = |name: &str| events[name].as_u64();
        Some(Counts { hit: number("local_hits")?, miss: number("misses")?, ..Counts::default() })
    }
}
