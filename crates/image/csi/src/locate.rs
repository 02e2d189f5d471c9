//! Finds an image by `larder image locate`. That process has a time limit and a user of its own,
//! because it parses what remotes send.
//!
//! Unaware of: how the image is mounted.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use larder_mount::CONFINED_USER;
use serde_json::Value;
use tokio::process::Command;

use crate::attributes::{Wanted, printable};

/// The time limit for finding an image. After it, the pod starts without the image.
const PATIENCE: Duration = Duration::from_secs(30);
/// The exit codes of `larder image locate` with an answer: exact, fallback, miss.
const ANSWERS: [i32; 3] = [0, 10, 11];

/// An image that was found.
pub(crate) struct Located {
    /// Its key.
    pub(crate) key: String,
    /// The names to ask a broker for, the best first.
    pub(crate) names: Vec<String>,
}

/// Starts `larder image locate`.
#[derive(Clone, Debug)]
pub struct Finder {
    larder: PathBuf,
    store: PathBuf,
}

impl Finder {
    /// Makes a finder that starts the program `larder`, with a store of its own in `store`. Fails
    /// if the directory cannot be made.
    pub fn new(larder: &Path, store: &Path) -> Result<Finder> {
        let made = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(store)?;
            is_root().then(|| chown(store, Some(CONFINED_USER), Some(CONFINED_USER))).transpose()
        };
        made().with_context(|| format!("{}: cannot be made for the records of images", store.display()))?;
        Ok(Finder { larder: larder.to_owned(), store: store.to_owned() })
    }

    /// Finds an image. Returns `None` if there is none.
    pub(crate) async fn locate(&self, wanted: &Wanted) -> Result<Option<Located>> {
        let mut command = Command::new(&self.larder);
        command.args(["image", "locate"]).arg(format!("--key={}", wanted.key));
        command.args(wanted.fallbacks.iter().map(|fallback| format!("--fallback={fallback}")));
        command.arg("--").args(&wanted.path);
        command.env("LARDER_DIR", &self.store).env("HOME", &self.store).current_dir("/");
        command.envs(wanted.remote.iter().map(|remote| ("LARDER_REMOTE", remote)));
        command.stdin(Stdio::null()).kill_on_drop(true);
        if is_root() {
            command.uid(CONFINED_USER).gid(CONFINED_USER);
        }
        let ended = tokio::time::timeout(PATIENCE, command.output()).await;
        let ended = ended.with_context(|| format!("not found within {} s", PATIENCE.as_secs()))?;
        let ended = ended.with_context(|| format!("{} cannot be started", self.larder.display()))?;
        if !ended.status.code().is_some_and(|code| ANSWERS.contains(&code)) {
            bail!("{}", printable(&String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; ")));
        }
        let answer: Value = serde_json::from_slice(&ended.stdout).context("`larder image locate` gave no JSON")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let names: Vec<String> = answer["names"].as_array().into_iter().flatten().filter_map(text).collect();
        let key = printable(&text(&answer["key"]).unwrap_or_default());
        Ok((!names.is_empty()).then_some(Located { key, names }))
    }
}

fn is_root() -> bool {
    larder_sys::effective_user() == 0
}
