//! `larder daemon`: starts, stops, queries and installs the `larderd` that records for sandboxes.
//!
//! Unaware of: what larderd does once it runs (`serve/`).

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use larder_ipc::{State, ask, listens};
use larder_store::Store;
use serde_json::json;

use super::{FINE, PROBLEM, print_json};
use crate::cli::{AsJson, Daemon, DaemonStart, DaemonWord};
use crate::surroundings::Surroundings;
use crate::{say, units};

/// The longest time for a start or a stop.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Runs the subcommand and prints what was done.
pub(crate) fn run(around: &Surroundings, options: &Daemon, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    match &options.word {
        DaemonWord::Start(options) => start(around, &store, options, out),
        DaemonWord::Stop => stop(&store, out),
        DaemonWord::Status(options) => status(&store, options, out),
        DaemonWord::Install(options) => units::install(around, &store, options, out),
    }
}

/// How `larderd` can be reached.
pub(crate) enum Reachability {
    Runs(State),
    /// It does not run, but something (such as systemd) listens on its socket and starts it on
    /// demand.
    OnDemand,
    /// It holds its lock, but does not answer.
    Silent(String),
    Nothing,
}

/// Looks for the `larderd` of this store.
pub(crate) fn find(store: &Store) -> Reachability {
    if store.daemon_runs() {
        return match ask(&store.daemon_socket()) {
            Ok(state) => Reachability::Runs(state),
            Err(error) => Reachability::Silent(error.to_string()),
        };
    }
    if listens(&store.daemon_socket()).is_ok() { Reachability::OnDemand } else { Reachability::Nothing }
}

/// Looks for it, and waits while one that is starting or exiting does not answer.
pub(crate) fn find_settled(store: &Store) -> Reachability {
    let until = Instant::now() + PATIENCE;
    loop {
        match find(store) {
            Reachability::Silent(_) if Instant::now() < until => std::thread::sleep(PAUSE),
            found => return found,
        }
    }
}

/// Returns what to do about a larderd that does not answer.
pub(crate) fn unanswered(store: &Store) -> String {
    let log = store.daemon_log();
    format!("larderd does not answer: the end of {} has its process ID; end that process with `kill -9`", log.display())
}

fn start(around: &Surroundings, store: &Store, options: &DaemonStart, out: &mut dyn Write) -> Result<u8> {
    match find(store) {
        Reachability::Runs(state) => {
            writeln!(out, "larderd is already running: process {}", state.pid)?;
            return Ok(FINE);
        }
        Reachability::OnDemand => {
            writeln!(out, "larderd is started on demand: its socket is already listened on, for example by systemd")?;
            return Ok(FINE);
        }
        Reachability::Silent(_) | Reachability::Nothing => {}
    }
    let state = launch(around, store, options)?;
    writeln!(out, "larderd runs: process {}", state.pid)?;
    Ok(FINE)
}

/// Starts it if it does not run, and waits until it answers.
pub(crate) fn begin(around: &Surroundings, store: &Store) -> Result<()> {
    match find(store) {
        Reachability::Runs(_) => Ok(()),
        _ => launch(around, store, &DaemonStart::USUAL).map(drop),
    }
}

fn launch(around: &Surroundings, store: &Store, how: &DaemonStart) -> Result<State> {
    store.may_be_written().context("larderd must be able to write to the store: start it outside of the sandbox")?;
    start_apart(around, how)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match find(store) {
            Reachability::Runs(state) => return Ok(state),
            Reachability::Silent(why) if Instant::now() > until => bail!("{}: {why}", unanswered(store)),
            _ if Instant::now() > until => {
                bail!("larderd did not start: `larderd serve` says why, or {}", store.daemon_log().display())
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Starts it in a session of its own, and does not wait for it.
pub(crate) fn start_apart(around: &Surroundings, how: &DaemonStart) -> Result<()> {
    let idle = how.idle.to_string();
    let mut words = vec![&b"serve"[..], b"--idle", idle.as_bytes()];
    words.extend(how.hits_only.then_some(&b"--hits-only"[..]));
    around.start_larderd(&words)
}

fn stop(store: &Store, out: &mut dyn Write) -> Result<u8> {
    if !store.daemon_runs() {
        writeln!(out, "larderd does not run")?;
        return Ok(FINE);
    }
    let proof = store.proof_of_writing().context("larderd can only be stopped by a user who can write to its store")?;
    let state = larder_ipc::stop(&store.daemon_socket(), &proof).with_context(|| unanswered(store))?;
    let until = Instant::now() + PATIENCE;
    while store.daemon_runs() {
        if Instant::now() > until {
            bail!("larderd did not exit in time: process {} is still working", state.pid);
        }
        std::thread::sleep(PAUSE);
    }
    writeln!(out, "larderd exited: it was process {}", state.pid)?;
    Ok(FINE)
}

fn status(store: &Store, options: &AsJson, out: &mut dyn Write) -> Result<u8> {
    let found = find(store);
    let socket = store.daemon_socket();
    if options.json {
        let state = if let Reachability::Runs(state) = &found { *state } else { State::default() };
        let object = json!({
            "runs": matches!(found, Reachability::Runs(_)),
            "on_demand": matches!(found, Reachability::OnDemand),
            "socket": socket.display().to_string(),
            "pid": state.pid,
            "up_s": state.up_s,
            "idle_s": state.idle_s,
            "recorded": state.recorded,
            "refused": state.refused,
        });
        print_json(&object, out)?;
    } else {
        writeln!(out, "{}", sentence(&found))?;
    }
    Ok(if matches!(found, Reachability::Runs(_) | Reachability::OnDemand) { FINE } else { PROBLEM })
}

fn sentence(found: &Reachability) -> String {
    match found {
        Reachability::Runs(state) => format!(
            "larderd runs: process {}, for {} s, exits after {} s without work; {} accepted, {} refused",
            state.pid,
            state.up_s,
            state.idle_s,
            say::count(state.recorded, "hand-over", "hand-overs"),
            state.refused
        ),
        Reachability::OnDemand => "larderd does not run, but is started on demand".to_owned(),
        Reachability::Silent(why) => format!("larderd runs, but does not answer: {why}"),
        Reachability::Nothing => "larderd does not run: `larder daemon start`".to_owned(),
    }
}
