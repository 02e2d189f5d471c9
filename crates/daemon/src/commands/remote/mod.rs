//! `larder remote`: checks remotes, and uploads and downloads by hand.
//!
//! Unaware of: how anything is downloaded or uploaded (`../../remote/`).

mod check;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use larder_config::{Settings, masked};
use larder_ipc::flush_remotes;
use larder_store::Store;

use super::daemon::{self, Reachability};
use super::{FINE, PROBLEM};
use crate::cli::{Remotes, RemotesFlush, RemotesWord};
use crate::remote::{Moved, pull, push, remote_client, runtime, settings_digest};
use crate::say;
use crate::surroundings::Surroundings;

/// The number of failures that are printed one by one.
const TOLD_MAX: u64 = 20;

/// Runs the subcommand and prints what was done.
pub(crate) fn run(around: &Surroundings, options: &Remotes, out: &mut dyn Write) -> Result<u8> {
    let settings = around.settings();
    if settings.remote.is_empty() {
        if let Some(problem) =
            around.loaded.problems.iter().chain(&around.loaded.notes).find(|it| it.is_about_remotes())
        {
            bail!("no remote is used: {problem}");
        }
        bail!("there is no remote: set `remote` in larder.toml or LARDER_REMOTE to a URL, such as redis://host:6379");
    }
    match &options.word {
        RemotesWord::Check(options) => check::run(around, options, out),
        RemotesWord::Push => {
            if settings.remote_read_only {
                bail!("not uploading: remote_rw_mode is read_only");
            }
            let store = around.store()?;
            let mut told = 0;
            let moved = push(store.directory(), settings, &mut |what| {
                told += 1;
                if told <= TOLD_MAX {
                    say::tell(what);
                }
            })?;
            said(moved, "sent", settings, out)
        }
        RemotesWord::Pull => {
            let store = around.store()?;
            said(pull(store.directory(), settings, around.cwd()?)?, "fetched", settings, out)
        }
        RemotesWord::Flush(options) => flush(around, &around.store()?, options, out),
    }
}

/// Returns why remotes of the settings cannot be opened. `larderd` skips such remotes.
fn unopened(settings: &Settings) -> Vec<String> {
    let Ok(runtime) = runtime() else { return Vec::new() };
    let _inside = runtime.enter();
    let why = |url: &String| remote_client::open(url, settings).err().map(|error| format!("{}: {error}", masked(url)));
    settings.remote.iter().filter_map(why).collect()
}

fn said(moved: Moved, how: &str, settings: &Settings, out: &mut dyn Write) -> Result<u8> {
    let Moved { records, there, failed, bytes } = moved;
    let there = if there > 0 { format!(", {there} already there") } else { String::new() };
    writeln!(out, "{} {how}, {}{there}; {failed} failed", say::count(records, "record", "records"), say::bytes(bytes))?;
    // Remotes that cannot be opened were reported when that failed.
    Ok(if failed == 0 && unopened(settings).is_empty() { FINE } else { PROBLEM })
}

fn flush(around: &Surroundings, store: &Store, options: &RemotesFlush, out: &mut dyn Write) -> Result<u8> {
    match daemon::find_settled(store) {
        Reachability::Runs(_) => {}
        // It is unknown what a larderd that does not answer still has to upload.
        Reachability::Silent(why) => bail!("{}: {why}", daemon::unanswered(store)),
        Reachability::OnDemand | Reachability::Nothing => {
            if store.queued_uploads()?.is_empty() {
                writeln!(out, "nothing to upload, and larderd does not run")?;
                let unopened = unopened(around.settings());
                for why in &unopened {
                    writeln!(out, "not used: {}", say::one_line(why))?;
                }
                return Ok(if unopened.is_empty() { FINE } else { PROBLEM });
            }
            daemon::begin(around, store)?;
        }
    }
    let patience = Duration::from_secs(options.timeout);
    let (state, unshared) = flush_remotes(&store.daemon_socket(), patience).context("larderd does not answer")?;
    let others = state.settings != settings_digest(around.settings());
    if others {
        writeln!(out, "larderd runs with other remotes: run `larder daemon stop`, and the next larderd uses these")?;
    }
    let unopened = unopened(around.settings());
    for why in &unopened {
        writeln!(out, "not used: {}", say::one_line(why))?;
    }
    let sent = say::count(state.sent, "record", "records");
    writeln!(
        out,
        "{sent} sent, {} left, {} dropped since larderd started; {} failed attempts",
        state.queued, state.dropped, state.failed
    )?;
    if unshared.lost > 0 {
        let lost = say::count(unshared.lost, "record", "records");
        writeln!(out, "{lost} not shared: no remote accepts them, or too many came at once; see larderd's log")?;
    }
    let why = say::one_line(&String::from_utf8_lossy(&unshared.trouble));
    if state.queued > 0 && !why.is_empty() {
        writeln!(out, "not sent: {why}; waiting will not fix that: see `larder remote check`")?;
    }
    Ok(if state.queued == 0 && unshared.lost == 0 && unopened.is_empty() && !others { FINE } else { PROBLEM })
}
