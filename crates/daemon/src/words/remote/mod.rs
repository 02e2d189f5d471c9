//! `larder remote`: whether remotes work, and sending and fetching by hand.
//!
//! Unaware of: how anything is fetched or sent (`../../remote/`).

mod check;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use larder_config::{Settings, masked};
use larder_ipc::flush_remotes;
use larder_store::Store;

use super::daemon::{self, Found};
use super::{FINE, PROBLEM};
use crate::cli::{Remotes, RemotesFlush, RemotesWord};
use crate::remote::{Moved, far, pull, push, runtime, settings_digest};
use crate::say;
use crate::surroundings::Surroundings;

/// Failures that are said one by one.
const TOLD_MAX: u64 = 20;

/// Do it, and say what was done.
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
                bail!("nothing is sent with remote_rw_mode = read_only");
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
            let cwd = around.cwd.as_deref().context("the working directory is gone: change to one that exists")?;
            let store = around.store()?;
            said(pull(store.directory(), settings, cwd)?, "fetched", settings, out)
        }
        RemotesWord::Flush(options) => flush(around, &around.store()?, options, out),
    }
}

/// Why remotes of the settings cannot be opened, which `larderd` does without.
fn unopened(settings: &Settings) -> Vec<String> {
    let Ok(runtime) = runtime() else { return Vec::new() };
    let _inside = runtime.enter();
    let why = |url: &String| far::open(url, settings).err().map(|error| format!("{}: {error}", masked(url)));
    settings.remote.iter().filter_map(why).collect()
}

fn said(moved: Moved, how: &str, settings: &Settings, out: &mut dyn Write) -> Result<u8> {
    let Moved { records, there, failed, bytes } = moved;
    let there = if there > 0 { format!(", {there} there already") } else { String::new() };
    writeln!(out, "{} {how}, {}{there}; {failed} failed", say::count(records, "record", "records"), say::bytes(bytes))?;
    // They were said when they could not be opened.
    Ok(if failed == 0 && unopened(settings).is_empty() { FINE } else { PROBLEM })
}

fn flush(around: &Surroundings, store: &Store, options: &RemotesFlush, out: &mut dyn Write) -> Result<u8> {
    match daemon::find_settled(store) {
        Found::Runs(_) => {}
        // Nobody knows what it has yet to send.
        Found::Silent(why) => bail!("{}: {why}", daemon::unanswered(store)),
        Found::OnDemand | Found::Nothing => {
            if store.queued_uploads()?.is_empty() {
                writeln!(out, "nothing is to be sent, and larderd does not run")?;
                let unopened = unopened(around.settings());
                for why in &unopened {
                    writeln!(out, "done without: {}", say::one_line(why))?;
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
        writeln!(out, "larderd began with other remotes: `larder daemon stop`, and the next one takes these")?;
    }
    let unopened = unopened(around.settings());
    for why in &unopened {
        writeln!(out, "done without: {}", say::one_line(why))?;
    }
    let sent = say::count(state.sent, "record", "records");
    writeln!(
        out,
        "{sent} sent, {} left, {} dropped since larderd began; {} failed attempts",
        state.queued, state.dropped, state.failed
    )?;
    if unshared.lost > 0 {
        let lost = say::count(unshared.lost, "record", "records");
        writeln!(out, "{lost} not shared: no remote takes them, or too many came at once; larderd's log says which")?;
    }
    let why = say::one_line(&String::from_utf8_lossy(&unshared.trouble));
    if state.queued > 0 && !why.is_empty() {
        writeln!(out, "not sent: {why}; waiting does not mend that: `larder remote check` says more")?;
    }
    Ok(if state.queued == 0 && unshared.lost == 0 && unopened.is_empty() && !others { FINE } else { PROBLEM })
}
